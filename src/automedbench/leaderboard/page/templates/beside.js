// Runs side by side: the pages of the runs in frames, which look at the same case and slice and scroll together.

const TITLES = data("titles");
const RUNS = ledger(data("run-data"));
const BY_PATH = new Map(RUNS.map((run) => [runPath(run), run]));
const TASKS = [...new Set(RUNS.map((run) => run.task))].sort((a, b) => nameOf(a).localeCompare(nameOf(b)));
const KEYS = ["a", "b", "task", "tier", "case", "repeat"];

let frames = []; // { run, element, cases } in the order in which they stand
let view; // what the viewers look at
let together = true;
const arrived = new Set(); // addresses whose case was shown: from then on the reader chooses

function nameOf(task) { return Object.hasOwn(TITLES, task) ? TITLES[task] : task; }
const read = () => Object.fromEntries([...new URLSearchParams(location.hash.slice(1))].filter(([key]) => KEYS.includes(key)));
function go(choices) {
  location.hash = String(new URLSearchParams(Object.entries(choices).filter(([, value]) => value)));
}
const best = (runs) => sortedRows(runs, (run) => run.overall, true);
const labelOf = (run) => `${run.agent} · ${run.tier} · r${run.repeat}`;

// --- which runs ----------------------------------------------------------------------------------------------

// Two runs: those of the address, else the best two of one task.
function pair({ a, b }) {
  const first = BY_PATH.get(a) ?? best(RUNS)[0];
  const like = RUNS.filter((run) => run.task === first.task && run !== first);
  const fair = like.filter((run) => run.tier === first.tier);
  return [first, BY_PATH.get(b) ?? best(fair.filter((run) => run.agent !== first.agent))[0] ?? best(fair)[0] ?? like[0] ?? first];
}

// One run of each agent on a task and tier, the best agent first.
function everyone({ task, tier, repeat }) {
  const found = RUNS.filter((run) => run.task === task);
  const tiers = [...new Set(found.map((run) => run.tier))];
  const there = found.filter((run) => run.tier === (tiers.includes(tier) ? tier : tiers[0]));
  const repeats = [...new Set(there.map((run) => run.repeat))].sort((x, y) => x - y);
  const which = repeats.includes(Number(repeat)) ? Number(repeat) : repeats[0];
  return { runs: best(there.filter((run) => run.repeat === which)), tiers, repeats, tier: there[0]?.tier, repeat: which };
}

// --- frames --------------------------------------------------------------------------------------------------

function frameOf(run) {
  const element = el("iframe", { src: runPage(run), title: `Run ${runPath(run)}`, loading: "lazy", allow: "fullscreen" });
  return { run, element, cases: [] };
}

function drawFrames(runs, many) {
  const wanted = runs.map(runPath).join();
  const place = document.getElementById("frames");
  if (place.dataset.runs === `${many}:${wanted}`) return;
  place.dataset.runs = `${many}:${wanted}`;
  place.classList.toggle("many", many);
  view = undefined;
  frames = runs.map(frameOf);
  place.replaceChildren(...frames.map(({ run, element }) => el("figure", {},
    el("figcaption", {}, el("a", { href: runPage(run) }, foreign(run.agent), ` · r${run.repeat}`), ` · overall ${percent(run.overall)} · task ${percent(run.task_score)}`), element)));
}

const tell = (frame, message) => frame.element.contentWindow?.postMessage(message, "*");
const others = (source) => frames.filter((frame) => frame.element.contentWindow !== source);

window.addEventListener("message", ({ source, data: message }) => {
  const from = frames.find((frame) => frame.element.contentWindow === source);
  if (!from || typeof message !== "object" || message === null) return;
  const many = Boolean(read().task);
  if (message.ready) welcome(from, Array.isArray(message.cases) ? message.cases.map(String) : [], many);
  if (message.view && frames.every((frame) => frame.run.task === from.run.task)) {
    view = message.view;
    if (together || many) others(source).forEach((frame) => tell(frame, { view }));
    if (many) drawCases();
  }
  if (message.scroll && together && !many) others(source).forEach((frame) => tell(frame, { scroll: message.scroll }));
  if (many && message.height > 0) from.element.style.setProperty("--tall", `${Math.min(message.height + 8, 1200)}px`);
});

function welcome(frame, cases, many) {
  [frame.cases, frame.ready] = [cases, true];
  if (many) tell(frame, { only: "cases" });
  if (many) drawCases();
  const { case: wanted } = read();
  if (wanted && cases.includes(wanted) && !arrived.has(location.hash)) { arrived.add(location.hash); chooseCase(wanted); }
  else if (view) tell(frame, { view });
  else if (wanted && (arrived.has(location.hash) || !frames.every((each) => each.ready))) return; // it comes, or may come
  else if (many || frames.every((each) => each.cases.length && each.run.task === frame.run.task)) chooseCase(mostShown()[0]);
}

// --- one case ------------------------------------------------------------------------------------------------

// Cases by the number of runs that show them.
function mostShown() {
  const shown = new Map();
  for (const frame of frames) for (const name of frame.cases) shown.set(name, (shown.get(name) ?? 0) + 1);
  return [...shown].sort(([, a], [, b]) => b - a).map(([name]) => name);
}

function chooseCase(name) {
  const first = frames.find((frame) => frame.cases.includes(name));
  if (first) tell(first, { view: { ...view, case: name, place: undefined }, answer: true }); // all others follow it
}

function drawCases() {
  const place = document.getElementById("cases");
  if (!place) return;
  const names = mostShown();
  const options = Object.fromEntries(names.map((name) => [name, `${visible(name)} (${frames.filter((frame) => frame.cases.includes(name)).length} of ${frames.length} runs)`]));
  keepFocus(() => place.replaceChildren(names.length ? picker("Case", "case", options, view?.case, chooseCase) : el("span.aside", {}, "No run of this task shows a case.")));
}

// --- what differs --------------------------------------------------------------------------------------------

const NUMBERS = [
  ["Overall", "overall", percent], ["Agentic", "agentic", percent], ["Task", "task_score", percent],
  ...["S1", "S2", "S3", "S4", "S5"].map((stage) => [stage, stage.toLowerCase(), percent]),
  ["Turns", "turns", count], ["Time", "wall_s", duration], ["Tokens", "tokens_total", count], ["Cost", "cost_usd", money],
];

function differences([a, b]) {
  const signed = (shown, by) => `${by > 0 ? "+" : by < 0 ? "−" : "±"}${shown(Math.abs(by))}`;
  const columns = [
    { title: "Number", header: true, cell: ([name]) => name },
    { title: "Left", numeric: true, cell: ([, key, shown]) => shown(a[key]) },
    { title: "Right", numeric: true, cell: ([, key, shown]) => shown(b[key]) },
    { title: "Right − left", numeric: true, cell: ([, key, shown]) => (known(a[key]) && known(b[key]) ? signed(shown, b[key] - a[key]) : DASH) },
  ];
  return [el("h2", {}, "What differs"), table(columns, NUMBERS, { label: "What differs between the two runs", sortable: false })];
}

// --- drawing -------------------------------------------------------------------------------------------------

function drawPair(choices) {
  const [a, b] = pair(choices);
  const like = [...new Set([...sortedRows(RUNS.filter((run) => run.task === a.task), labelOf, false), a, b])];
  const options = Object.fromEntries(like.map((run) => [runPath(run), visible(labelOf(run))]));
  const choose = (end, title, run) => picker(title, `run-${end}`, options, runPath(run), (path) => go({ a: runPath(a), b: runPath(b), [end]: path }));
  const button = el("button.chip", { type: "button", "aria-pressed": String(together), onclick: () => { together = !together; button.setAttribute("aria-pressed", String(together)); } }, "Together");
  fill("title", "Two runs side by side");
  fill("controls", picker("Task", "task", Object.fromEntries(TASKS.map((task) => [task, nameOf(task)])), a.task, (task) => go({ a: runPath(best(RUNS.filter((run) => run.task === task))[0]) })),
    choose("a", "Left", a), choose("b", "Right", b), el("button.plain", { type: "button", onclick: () => go({ a: runPath(b), b: runPath(a) }) }, "⇄ swap"), button);
  fill("note", a.task === b.task ? "Together: both show the same case and slice, and scroll to the same part and turn." : "Different tasks: the cases are not the same, and only the scrolling goes together.");
  drawFrames([a, b], false);
  fill("differences", differences([a, b]));
}

function drawEveryone(choices) {
  const { runs, tiers, repeats, tier, repeat } = everyone(choices);
  const now = { task: choices.task, tier, repeat: String(repeat) };
  fill("title", `One case of ${nameOf(choices.task)}, of all agents`);
  fill("controls",
    picker("Task", "task", Object.fromEntries(TASKS.map((task) => [task, nameOf(task)])), choices.task, (task) => go({ task })),
    tiers.length > 1 && picker("Tier", "tier", Object.fromEntries(tiers.map((name) => [name, name])), tier, (name) => go({ ...now, tier: name })),
    repeats.length > 1 && picker("Repeat", "repeat", Object.fromEntries(repeats.map((name) => [name, `r${name}`])), String(repeat), (name) => go({ ...now, repeat: name })),
    el("div.control", { id: "cases" }));
  fill("note", runs.length ? "Best overall score first. The viewers look at the same case, slice and zoom." : "No run of this task is scored.");
  drawFrames(runs, true);
  fill("differences");
  drawCases();
}

function draw() {
  const choices = read();
  const task = choices.task && TASKS.includes(choices.task) ? choices.task : null;
  const ways = [["Two runs", "#a=", !task], ["One case of all agents", `#${new URLSearchParams({ task: task ?? TASKS[0] ?? "" })}`, task]];
  fill("nav", ways.map(([title, href, here]) => el("a", { href, "aria-current": here ? "page" : null }, title)));
  if (!RUNS.length) fill("note", "No run is scored.");
  else if (task) drawEveryone(choices);
  else drawPair(choices);
}

document.querySelector(".top .wrap").append(themeButton());
window.addEventListener("hashchange", draw);
draw();
