// The case viewer: slices with overlays, boxes, before and after, texts side by side. Pictures are data of the page.

const SIDES = { input: "Input", prediction: "Prediction", reference: "Reference", difference: "Difference" };
const DIFFED = 25; // words; shorter texts are read, not compared word by word
const MAX_WORDS = 1500;

// What the reader chose stays from case to case.
const seen = {
  on: { prediction: true, reference: true }, opacity: 0.55, labels: false, mode: "side", left: "prediction", right: "reference",
  share: 50, zoom: 1,
};
const ZOOMS = [1, 1.5, 2, 3, 4, 6, 8];
let chose = () => {}; // hears which case, slice and way of looking the reader has now

function caseViewer(views) {
  const names = views.map((view) => view.case);
  let current = 0;
  const body = el("div.view");
  const chips = views.map((view, i) =>
    el("button.chip.case", { type: "button", onclick: () => show(i) }, view.case, el("small", {}, view.why)));
  const level = el("span", { role: "status" });
  const button = (label, act) => el("button.chip", { type: "button", onclick: act }, label);
  const root = el("div.viewer", { role: "group", "aria-label": "Case viewer", tabindex: 0 },
    el("div.case-list", {}, chips),
    el("div.control", {}, button("Full screen", whole), button("Smaller", () => zoom(-1)), button("Larger", () => zoom(1)), level), body,
    el("p.aside.keys", {}, "Keys: [ ] case · ← → slice · + − zoom · f full screen · p prediction · r reference · l box labels · m way of comparing"));
  let drawn;
  const report = () => chose({ case: names[current], place: drawn.slider?.place(), seen: { ...seen, on: { ...seen.on } } });

  // Look as another viewer does: at the same case, where this run has a view of it.
  function follow(view) {
    for (const key of Object.keys(seen)) if (typeof view.seen?.[key] === typeof seen[key]) seen[key] = view.seen[key];
    root.classList.toggle("elsewhere", !names.includes(view.case));
    if (!names.includes(view.case)) {
      body.replaceChildren(el("p.notice", {}, "This run has no view of ", foreign(view.case), "."));
      return;
    }
    show(names.indexOf(view.case));
    if (view.place) drawn.slider?.go(view.place);
    zoom();
  }

  // The picture scrolls in its place when it is larger; what was in the middle stays there.
  function zoom(by) {
    const places = [...root.querySelectorAll(".frame-place")];
    const middles = places.map((place) => [(place.scrollLeft + place.clientWidth / 2) / place.scrollWidth, (place.scrollTop + place.clientHeight / 2) / place.scrollHeight]);
    if (known(by)) seen.zoom = by ? ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, ZOOMS.indexOf(seen.zoom) + by))] : 1;
    root.style.setProperty("--zoom", seen.zoom);
    level.textContent = `${Math.round(100 * seen.zoom)} %`;
    places.forEach((place, n) => place.scrollTo(middles[n][0] * place.scrollWidth - place.clientWidth / 2, middles[n][1] * place.scrollHeight - place.clientHeight / 2));
  }
  function whole() {
    if (document.fullscreenElement) document.exitFullscreen();
    else root.requestFullscreen?.();
  }

  function show(i) {
    current = (i + views.length) % views.length;
    chips.forEach((chip, n) => chip.setAttribute("aria-pressed", String(n === current)));
    drawn = drawCase(views[current]);
    body.replaceChildren(drawn.element);
  }
  function byKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
    if (event.target.type === "range" && event.key.startsWith("Arrow")) return;
    const { top, bottom } = root.getBoundingClientRect();
    if (bottom < 0 || top > innerHeight || event.target.closest?.("input[type=search], input[type=text]")) return;
    const act = { "[": () => show(current - 1), "]": () => show(current + 1), "+": () => zoom(1), "-": () => zoom(-1), 0: () => zoom(0),
      f: whole, ...drawn.keys }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
    report();
  }
  show(0);
  zoom(0);
  for (const kind of ["click", "input", "change"]) root.addEventListener(kind, report);
  document.addEventListener("keydown", byKey); // also without focus, while it is in sight
  return { element: root, names, follow, report, open: (name) => { show(names.indexOf(name)); root.scrollIntoView(); root.focus({ preventScroll: true }); } };
}

function drawCase(view) {
  const bases = view.frames[0]?.layers.filter((layer) => !layer.overlay) ?? [];
  const pictures = !view.frames.length ? { element: textsOf(view), keys: {} } : bases.length > 1 ? comparison(view) : overlays(view);
  const numbers = Object.entries(view.metrics).filter(([, value]) => known(value));
  const marks = { valid: ["✓ valid", "good"], malformed: ["! malformed", "warn"], missing: ["✕ missing", "bad"] };
  return {
    keys: pictures.keys,
    slider: pictures.slider,
    element: el("div", { id: `case-${view.case}` },
      el("p.view-head", {}, el("b.foreign", {}, view.case), " ", tag(...marks[view.status]), " ", view.why !== view.status && view.why,
        el("span.aside", {}, numbers.slice(0, 6).map(([name, value]) => ` · ${name} ${metric(value)}`)),
        el("a.others", { href: besideHref({ task: ID.task, tier: ID.tier, case: view.case }) }, " of all agents")),
      pictures.element),
  };
}

// --- frames ------------------------------------------------------------------------------------------------

function image(view, frame, layer, extra = {}) {
  const alt = layer.overlay ? "" : `${SIDES[layer.side]} of ${view.case}, ${frame.title}`;
  return el(`img.layer.${layer.side}`, { src: layer.picture, alt, draggable: "false", width: frame.width, height: frame.height, ...extra });
}

// As wide as there is room, and as high as the window: small pictures are shown larger, with their pixels.
const canvas = (frame, ...content) =>
  el("div.canvas", { "--ratio": `${frame.width} / ${frame.height}`, "--shape": `${frame.width / frame.height}` }, content);

function frameSlider(view, draw) {
  const start = Math.max(0, view.frames.findIndex((frame) => /largest|lowest/.test(frame.title)));
  const slider = el("input", { type: "range", min: 0, max: view.frames.length - 1, value: start, "aria-label": "Slice" });
  const title = el("span", { role: "status" });
  const update = () => {
    const frame = view.frames[Number(slider.value)];
    title.replaceChildren(visible(frame.title));
    slider.setAttribute("aria-valuetext", frame.title);
    draw(frame);
  };
  const step = (by) => { slider.value = Number(slider.value) + by; update(); };
  const plain = (frame) => frame.title.split(" · ")[0]; // "axial 4 of 36", without what this run's frame shows there
  const place = () => ({ title: plain(view.frames[Number(slider.value)]), share: view.frames.length > 1 ? slider.value / (view.frames.length - 1) : 0 });
  // The same slice, else one as far along.
  const go = (there) => {
    const same = view.frames.findIndex((frame) => plain(frame) === there?.title);
    slider.value = same >= 0 ? same : Math.round((Number(there?.share) || 0) * (view.frames.length - 1));
    update();
  };
  slider.addEventListener("input", update);
  const many = view.frames.length > 1;
  return {
    update, place, go,
    element: el("div.control.slices", {}, many && el("span", {}, view.frames[0].title.startsWith("image") ? "Image" : "Slice"), many && slider, title),
    keys: many ? { ArrowLeft: () => step(-1), ArrowRight: () => step(1) } : {},
  };
}

function toggle(label, pressed, act) {
  const button = el("button.chip", { type: "button", "aria-pressed": String(pressed), onclick: () => flip() }, label);
  function flip() {
    const now = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(now));
    act(now);
  }
  return { button, flip };
}

// One picture below, what prediction and reference mark above it.
function overlays(view) {
  const place = el("div.frame-place");
  const apply = () => {
    for (const side of ["prediction", "reference"])
      place.querySelectorAll(`.overlay.${side}, .box.${side}`).forEach((layer) => { layer.hidden = !seen.on[side]; });
    place.style.setProperty("--opacity", seen.opacity);
    place.classList.toggle("labelled", seen.labels);
  };
  const slider = frameSlider(view, (frame) => {
    place.replaceChildren(canvas(frame, frame.layers.map((layer) => {
      const picture = image(view, frame, layer);
      if (layer.overlay) picture.classList.add("overlay");
      return picture;
    }), frame.boxes.map(boxOf)));
    apply();
  });
  const sides = ["prediction", "reference"].filter((side) => view.frames.some((frame) =>
    frame.boxes.some((box) => box.side === side) || frame.layers.some((layer) => layer.overlay && layer.side === side)));
  const hasBoxes = view.frames.some((frame) => frame.boxes.length);
  const switches = Object.fromEntries(sides.map((side) => [side, toggle(SIDES[side], seen.on[side], (on) => { seen.on[side] = on; apply(); })]));
  const labels = toggle("Box labels", seen.labels, (on) => { seen.labels = on; apply(); });
  const opacity = el("input", { type: "range", min: 10, max: 100, value: 100 * seen.opacity, "aria-label": "Opacity of the prediction",
    oninput: (event) => { seen.opacity = event.target.value / 100; apply(); } });
  const filled = view.frames.some((frame) => frame.layers.some((layer) => layer.overlay && layer.side === "prediction"));
  slider.update();
  const keys = { ...slider.keys, p: switches.prediction?.flip, r: switches.reference?.flip, l: hasBoxes && labels.flip };
  const asks = !sides.length && view.texts.length > 0; // a picture that is asked about: the texts stand beside it
  return {
    keys, slider,
    element: el(`div.pictures${asks ? ".asked" : ""}`, {}, place, el("div.panel", {}, slider.element,
      el("div.control", {}, sides.map((side) => switches[side].button), hasBoxes && labels.button),
      filled && el("div.control", {}, el("span", {}, "Opacity"), opacity),
      sides.length > 0 && !hasBoxes && el("p.aside", {}, "Areas are the prediction, lines the reference. The patient's right is on the left."),
      hasBoxes && boxLegend(), legendOf(view), asks && textsOf(view)), !asks && textsOf(view)),
  };
}

function boxOf(box) {
  const score = known(box.score) ? ` ${box.score.toFixed(2)}` : "";
  const pair = known(box.matched) ? (box.matched ? ", found its pair" : ", without a pair") : "";
  const cut = (value) => `${(100 * value).toFixed(3)}%`;
  const edge = box.side === "prediction" ? box.y0 < 0.06 : box.y1 > 0.94; // no room for the label outside
  const kind = `div.box.${box.side}${box.matched === false ? ".alone" : ""}${edge ? ".edge" : ""}`;
  const label = `${SIDES[box.side]}: ${box.label}${score}${pair}`;
  return el(kind, { title: label, "--x": cut(box.x0), "--y": cut(box.y0), "--width": cut(box.x1 - box.x0), "--height": cut(box.y1 - box.y0) },
    el("span.foreign", {}, `${box.label}${score}`));
}

const boxLegend = () =>
  el("ul.legend", {}, [["reference", "", "true box"], ["prediction", "", "predicted box"], ["reference", ".alone", "true box that was missed"],
    ["prediction", ".alone", "predicted box without a pair"]].map(([side, alone, name]) => el("li", {}, el(`i.line.${side}${alone}`), name)));

const legendOf = (view) =>
  view.legend.length > 0 && el("ul.legend", {}, view.legend.map((item) => el("li", {}, el("i.swatch", { "--c": item.colour }), foreign(item.name))));

// Several pictures of the same thing: beside each other, or one above the other behind a line that moves.
function comparison(view) {
  const place = el("div.frame-place");
  const sides = Object.keys(SIDES).filter((side) => view.frames[0].layers.some((layer) => layer.side === side && !layer.overlay));
  if (!sides.includes(seen.left)) seen.left = sides[0];
  if (!sides.includes(seen.right)) seen.right = sides[sides.length - 1];
  let frameNow;
  const slider = frameSlider(view, (frame) => { frameNow = frame; draw(); });
  const names = Object.fromEntries(sides.map((side) => [side, SIDES[side]]));
  const chooseSide = (end, title) => picker(title, `viewer-${end}`, names, seen[end], (side) => { seen[end] = side; draw(); });
  const line = el("input.compare", { type: "range", min: 0, max: 100, value: seen.share, "aria-label": "Where the left picture ends",
    oninput: (event) => { seen.share = Number(event.target.value); place.style.setProperty("--share", `${seen.share}%`); } });
  const ends = el("div.controls", {}, chooseSide("left", "Left"), chooseSide("right", "Right"));
  const mode = toggle("One over the other", seen.mode === "over", (on) => { seen.mode = on ? "over" : "side"; draw(); });
  const layerOf = (side) => frameNow.layers.find((layer) => layer.side === side && !layer.overlay);

  function draw() {
    const over = seen.mode === "over";
    [ends.hidden, line.hidden] = [!over, !over];
    place.style.setProperty("--share", `${seen.share}%`);
    place.replaceChildren(over ? above() : beside());
    line.style.setProperty("--shape", place.firstChild.style.getPropertyValue("--shape"));
  }
  const above = () => canvas(frameNow, image(view, frameNow, layerOf(seen.right)), image(view, frameNow, layerOf(seen.left), { "data-end": "left" }),
    el("b.end.at-left", {}, SIDES[seen.left]), el("b.end.at-right", {}, SIDES[seen.right]), el("i.divider"));
  const beside = () => el("div.beside", {}, sides.map((side) => el("figure", {}, canvas(frameNow, image(view, frameNow, layerOf(side))), el("figcaption", {}, SIDES[side]))));

  slider.update();
  return {
    keys: { ...slider.keys, m: mode.flip }, slider,
    element: el("div.pictures.wide", {}, el("div", {}, place, line), el("div.panel", {}, slider.element, el("div.control", {}, mode.button), ends, legendOf(view)), textsOf(view)),
  };
}

// --- texts -------------------------------------------------------------------------------------------------

function textsOf(view) {
  if (!view.texts.length) return null;
  const [prediction, reference] = ["prediction", "reference"].map((side) => view.texts.find((text) => text.side === side && !text.title.startsWith("Why")));
  const wordsOf = (text) => visible(text.text).match(/\s*\S+/g) ?? [];
  const compared = prediction && reference && [prediction, reference].some((text) => wordsOf(text).length >= DIFFED);
  const same = compared && commonWords(wordsOf(prediction), wordsOf(reference));
  const content = (text) => {
    if (!same || (text !== prediction && text !== reference)) return foreign(text.text);
    const kept = text === prediction ? same[0] : same[1];
    return marked(wordsOf(text), kept, text === prediction ? "ins.extra" : "del.lacking");
  };
  return el("div.texts", {}, view.texts.map((text) => el(`div.text.${text.side}`, {}, el("h3.foreign", {}, text.title), el("div.said", {}, content(text)))),
    same && el("p.aside", {}, "Marked: words that only the report has, and words that only the reference has."));
}

// Longest common subsequence of words: which words of each side the other one has in the same order.
function commonWords(first, second) {
  const plain = (words) => words.slice(0, MAX_WORDS).map((word) => word.toLowerCase().replace(/[^\p{L}\p{N}]/gu, ""));
  const [a, b] = [plain(first), plain(second)];
  const width = b.length + 1;
  const length = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      length[i * width + j] = a[i] === b[j] ? length[(i + 1) * width + j + 1] + 1 : Math.max(length[(i + 1) * width + j], length[i * width + j + 1]);
  const kept = [new Set(), new Set()];
  for (let i = 0, j = 0; i < a.length && j < b.length; )
    if (a[i] === b[j]) { kept[0].add(i++); kept[1].add(j++); }
    else if (length[(i + 1) * width + j] >= length[i * width + j + 1]) i++;
    else j++;
  return kept;
}

function marked(words, kept, kind) {
  const runs = [];
  words.forEach((word, i) => {
    const common = kept.has(i) || i >= MAX_WORDS;
    if (runs.length && runs[runs.length - 1].common === common) runs[runs.length - 1].text += word;
    else runs.push({ common, text: word });
  });
  return runs.map((part) => (part.common ? foreign(part.text) : el(`${kind}.foreign`, {}, part.text)));
}
