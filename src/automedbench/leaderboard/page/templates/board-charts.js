// --- charts --------------------------------------------------------------------------------------------------
// Specifications were compiled when the page was built and name colours by tokens; data come in here. Vega evaluates
// their expressions by walking them (ast), so that the content policy needs no eval.

const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const CHARTS = new Map(); // place → what to draw there
const inView = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { inView.unobserve(entry.target); drawChart(entry.target); }
}, { rootMargin: "400px" });

function fillTokens(spec, tokens) {
  if (Array.isArray(spec)) {
    const only = spec.length === 1 && typeof spec[0] === "string" && spec[0][0] === "@" && tokens[spec[0].slice(1)];
    return Array.isArray(only) ? only : spec.map((value) => fillTokens(value, tokens));
  }
  if (spec && typeof spec === "object")
    return Object.fromEntries(Object.entries(spec).map(([key, value]) => [key, fillTokens(value, tokens)]));
  return typeof spec === "string" && spec[0] === "@" ? tokens[spec.slice(1)] : spec;
}

function chartTokens(names, more) {
  const theme = DATA.themes[isDark() ? "dark" : "light"];
  const index = (name) => AGENT_INDEX.get(name) ?? names.indexOf(name);
  return {
    ...theme.colours,
    agents: names.map(visible),
    colours: names.map((name) => theme.series[index(name) % theme.series.length]),
    shapes: names.map((name) => DATA.shapes[index(name) % DATA.shapes.length]),
    ...more,
  };
}

// A place for a chart. `rows` are table rows; `names` those who have a colour and a symbol; `label` says in words what is drawn.
function chart(name, rows, { label, names = AGENTS.filter((agent) => isShown({ agent })), tokens = {}, height }) {
  const place = el("div.chart", { role: "img", "aria-label": label, "data-chart": name, "--h": height && `${height}px` });
  const neutral = ["agent", "place", "who", "title"];
  const safe = rows.map((row) => ({ ...row, ...Object.fromEntries(neutral.filter((key) => known(row[key])).map((key) => [key, visible(row[key])])) }));
  CHARTS.set(place, { name, rows: safe, names, tokens, view: null });
  inView.observe(place);
  return place;
}

// Vega holds on to timers and listeners of a chart: those of places that left the page are let go.
function forgetCharts() {
  for (const [place, made] of CHARTS)
    if (!place.isConnected && made.touched) { made.view?.finalize(); inView.unobserve(place); CHARTS.delete(place); }
    else made.touched = place.isConnected;
}

// One at a time: a second call while the first still runs draws again after it, in the colours of then.
async function drawChart(place) {
  const made = CHARTS.get(place);
  if (!made || !place.isConnected) return;
  made.again = made.busy;
  if (made.busy) return;
  made.busy = true;
  try { await embedChart(place, made); } finally { made.busy = false; }
  if (made.again) drawChart(place);
}

async function embedChart(place, made) {
  const spec = fillTokens(DATA.charts[made.name], chartTokens(made.names, made.tokens));
  spec.data.find((source) => source.name === "rows").values = made.rows;
  made.view?.finalize();
  made.view = null;
  const inner = el("div");
  place.replaceChildren(inner);
  const drawn = await window.vegaEmbed(inner, spec, {
    mode: "vega", ast: true, actions: false, defaultStyle: false, renderer: "svg", hover: false, tooltip: showTip, logLevel: 1,
  });
  if (!place.isConnected) { drawn.view.finalize(); return; }
  made.view = drawn.view;
  inner.querySelector("svg").setAttribute("aria-hidden", "true"); // the place around it is the image, and has a name
  place.classList.add("drawn");
}

const redrawCharts = () => { for (const [place, made] of CHARTS) if ((made.view || made.busy) && place.isConnected) drawChart(place); };
document.addEventListener("themechange", redrawCharts);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
window.addEventListener("beforeprint", () => { for (const place of CHARTS.keys()) if (!CHARTS.get(place).view) drawChart(place); });

// What is pointed at, as text; pairs without a title are headings.
function showTip(handler, event, item, value) {
  const tip = document.getElementById("tip");
  tip.hidden = !known(value) || value === "";
  if (tip.hidden) return;
  const pairs = typeof value === "object" ? Object.entries(value) : [["", value]];
  tip.replaceChildren(el("dl", {}, pairs.map(([title, text]) =>
    title.trim() ? [el("dt", {}, title), el("dd.foreign", {}, text)] : el("dd.whole.foreign", {}, text))));
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const x = Math.max(6, Math.min(event.clientX + 14, innerWidth - width - 6));
  const y = event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18;
  tip.style.setProperty("--x", `${x}px`);
  tip.style.setProperty("--y", `${Math.max(6, y)}px`);
}
window.addEventListener("scroll", () => { document.getElementById("tip").hidden = true; }, { passive: true });

// A chart with its title, a caption, its numbers as a table, and the files for papers.
function figure(title, content, { caption, numbers, files, level = "h3" } = {}) {
  const exported = files && DATA.exported.includes(files) &&
    ["svg", "png"].map((kind) => [" · ", el("a", { href: `charts/${files}.${kind}` }, kind.toUpperCase())]);
  return el("figure", {}, title && el(level, {}, title), content,
    (caption || exported) && el("figcaption", {}, caption, exported && [" For papers (headline, all tracks)", exported]),
    numbers && el("details.numbers", {}, el("summary", {}, "Numbers"), numbers));
}
