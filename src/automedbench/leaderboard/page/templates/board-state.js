// --- data ----------------------------------------------------------------------------------------------------
// What the board shows, and the choices that lead to it. Choices live in the hash, so that a view can be linked and
// the back button works: change(…) writes them there, and every section that depends on one is drawn again.

const DATA = data("data");
const STAGES = ["S1", "S2", "S3", "S4", "S5"];
const TIERS = Object.keys(DATA.tiers);
const AGENTS = DATA.agents;
const AGENT_INDEX = new Map(AGENTS.map((agent, i) => [agent, i]));
const TITLES = Object.fromEntries(DATA.tasks.map((task) => [task.id, task.title]));
const TRACK_OF = Object.fromEntries(DATA.tasks.map((task) => [task.id, task.track]));
const CASES = Object.fromEntries(DATA.tasks.map((task) => [task.id, task.n_cases]));
const TABLES = Object.fromEntries(Object.entries(DATA.tables).map(([name, table]) => [name, ledger(table)]));
const SCORED_TASKS = new Map(AGENTS.map((agent) => [agent, [...new Set(TABLES.cells.filter((row) => row.agent === agent && row.n_scored).map((row) => row.task))]]));
const VIEWS = new Map();

// Rows of one ranking, made into objects when first asked for.
function view(tier, track) {
  const key = `${tier}/${track}`;
  if (!VIEWS.has(key)) VIEWS.set(key, ledger(DATA.views[tier]?.[track] ?? { n: 0, columns: {} }));
  return VIEWS.get(key);
}

let allRuns = null;
const runs = () => (allRuns ??= ledger(data("run-data")));

const trackTitle = (track) => (known(track) && track !== "all" ? DATA.tracks[track] ?? track : "All tracks");
const tierOf = (choice) => DATA.tier_choices[choice] ?? [];
const isHeadline = () => state.tier === "headline";
const placeOf = (row) => state.track === "all" ? row.track === null : row.track === state.track;

// --- state ---------------------------------------------------------------------------------------------------

const DEFAULTS = {
  tier: TIERS[0] ?? "", track: "all", hide: "", task: DATA.tasks[0]?.id ?? "", at: TIERS[0] ?? "",
  k: String(DATA.repeats_asked.findLast((k) => k <= 3) ?? 1), x: "cost", radar: "stages", compare: "", stage: "", go: "", score: "overall", agent: AGENTS[0] ?? "",
  rows: "", "run-agent": "", "run-track": "", "run-task": "", "run-tier": "", "run-outcome": "", "run-code": "", "run-text": "", "run-sort": "",
};
const ALLOWED = {
  tier: TIERS, at: TIERS, track: ["all", ...Object.keys(DATA.tracks)], task: DATA.tasks.map((task) => task.id),
  k: DATA.repeats_asked.map(String), x: ["cost", "tokens", "time", "turns"], radar: ["stages", "tracks"], score: ["overall", "agentic", "task_score"], agent: AGENTS, stage: ["", ...STAGES], rows: ["", "all"],
};

let state = { ...DEFAULTS };
// Lists of names (hide, compare): names are encoded, so that a comma in one does no harm.
const list = (text) => (text ? text.split(",").map(decode) : []);
const unlist = (names) => names.map(encodeURIComponent).join(",");
const decode = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
const TOP = 15; // agents that charts and tables begin with
const top = (rows) => (state.rows === "all" ? rows : rows.slice(0, TOP));
const hidden = () => new Set(list(state.hide));
const isShown = (row) => !hidden().has(row.agent);

function readState() {
  const hash = location.hash.slice(1);
  if (hash && !hash.includes("=")) return { ...state, go: document.getElementById(hash) ? hash : "" };
  const found = { ...DEFAULTS };
  for (const [key, value] of new URLSearchParams(hash))
    if (Object.hasOwn(DEFAULTS, key) && (!ALLOWED[key] || ALLOWED[key].includes(value))) found[key] = value;
  return found;
}

function hashOf(choices) {
  const chosen = Object.entries(choices).filter(([key, value]) => value !== DEFAULTS[key]);
  return chosen.length ? `#${new URLSearchParams(chosen)}` : location.href.split("#")[0];
}

const hrefOf = (changes) => hashOf({ ...state, go: "", ...changes });

// `replace` for what is typed: not every letter is a step back.
function change(changes, { replace = false } = {}) {
  const target = hrefOf(changes);
  history[replace ? "replaceState" : "pushState"](null, "", target);
  applyState();
}

const SECTIONS = []; // { id, keys, draw }: a part of a section, drawn again when one of the keys changes and it is not folded
const onChange = (id, keys, draw) => SECTIONS.push({ id, keys, draw, drawn: false });
const isFolded = ({ id }) => document.getElementById(id).classList.contains("folded");
const drawMissing = () => SECTIONS.filter((part) => !part.drawn && !isFolded(part)).forEach(drawSection);

function applyState() {
  const next = readState();
  const changed = new Set(Object.keys(next).filter((key) => next[key] !== state[key]));
  state = next;
  for (const part of SECTIONS) part.drawn &&= !part.keys.some((key) => changed.has(key));
  keepFocus(drawMissing);
  if (state.go && changed.has("go")) goTo(state.go);
}

function drawSection(part) {
  part.drawn = true;
  part.draw();
}

// The first sections at once, the others when there is time: a page of 10 000 runs then opens like a small one.
function drawAll() {
  state = readState();
  SECTIONS.slice(0, 2).forEach(drawSection);
  const rest = SECTIONS.slice(2);
  const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 1));
  const step = () => {
    const part = rest.shift();
    if (part && !part.drawn) drawSection(part);
    if (rest.length) idle(step, { timeout: 300 });
    else document.documentElement.dataset.ready = "yes";
  };
  if (state.go) { while (rest.length) drawSection(rest.shift()); goTo(state.go); }
  idle(step, { timeout: 300 });
}

function goTo(id) {
  drawMissing();
  const target = document.getElementById(`${id}-title`) ?? document.getElementById(id);
  if (target) fold(target.closest("section"), false);
  target?.scrollIntoView({ block: "start" });
  target?.focus({ preventScroll: true });
}

// On a narrow screen, and with many agents, sections below the ranking begin folded: else the page is many screens long.
function foldSections() {
  if (!matchMedia("(max-width: 640px)").matches && AGENTS.length <= TOP) return;
  for (const section of document.querySelectorAll("main > section[id]:not(#ranking)")) {
    const title = section.querySelector("h2");
    title.replaceChildren(el("button.fold", { type: "button", onclick: () => fold(section, !section.classList.contains("folded")) }, title.textContent));
    fold(section, true);
  }
}

function fold(section, folded) {
  section?.querySelector("h2 > .fold")?.setAttribute("aria-expanded", String(!folded));
  section?.classList.toggle("folded", folded);
  if (!folded) drawMissing();
}

function scopeText() {
  const names = hidden();
  const shown = AGENTS.filter((agent) => !names.has(agent)).length;
  return `${DATA.tiers[state.tier]} · ${trackTitle(state.track)} · ${shown} of ${AGENTS.length} agents`;
}

// Below the title of a section: what the choices above make of it.
function drawScope(id, more = "") {
  const place = document.querySelector(`#${id} > .scope`);
  const link = el("a", { href: "#ranking", "data-go": "ranking" }, "change");
  place.replaceChildren(...[document.createTextNode(`${scopeText()}. `), more && document.createTextNode(`${more} `), link].filter(Boolean));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-go]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
  document.getElementById("menu").hidePopover();
  event.preventDefault();
  const id = link.dataset.go;
  if (!id) { window.scrollTo({ top: 0 }); return; }
  if (state.go === id) goTo(id);
  else change({ go: id });
});
window.addEventListener("popstate", applyState);
window.addEventListener("hashchange", applyState);
window.addEventListener("beforeprint", () => document.querySelectorAll("section.folded").forEach((section) => fold(section, false)));
window.addEventListener("beforeprint", drawMissing);
