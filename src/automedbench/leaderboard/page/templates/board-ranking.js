// --- ranking -------------------------------------------------------------------------------------------------

const SCORE_KEYS = ["tier", "track", "hide", "rows"];
const level = () => `${percent(DATA.confidence).replace(".0", "")} %`;
const span = (low, high) => known(low) && known(high) && el("small.span", { title: `${level()} interval` }, `${percent(low)}–${percent(high)}`);
const none = (text) => el("p.aside", {}, text);

function agentControl() {
  const names = hidden();
  const toggle = (agent) => {
    const next = new Set(names);
    next.has(agent) ? next.delete(agent) : next.add(agent);
    change({ hide: unlist(AGENTS.filter((name) => next.has(name))) });
  };
  const chips = AGENTS.map((agent) =>
    el("button.chip.agent", {
      type: "button", "data-agent": agent, title: agent, "aria-pressed": String(!names.has(agent)), onclick: () => toggle(agent),
    }, foreign(middle(agent))));
  const all = names.size > 0 && el("button.plain", { type: "button", onclick: () => change({ hide: "" }) }, "Show all");
  return el("div.control.agents", { role: "group", "aria-label": "Agents" }, el("span", {}, "Agents"), chips, all);
}

function drawControls() {
  const tracks = { all: "All tracks", ...DATA.tracks };
  const repeats = Object.fromEntries(DATA.repeats_asked.map((k) => [k, k === 1 ? "1 repeat" : `${k} repeats`]));
  fill("controls",
    Object.keys(DATA.tiers).length > 1 && picker("Tiers", "choose-tiers", DATA.tiers, state.tier, (tier) => change({ tier })),
    Object.keys(DATA.tracks).length > 1 && picker("Track", "choose-track", tracks, state.track, (track) => change({ track })));
  const several = Object.keys(repeats).length > 1;
  fill("more-controls", several && choice("Reliability over", repeats, state.k, (k) => change({ k })), agentControl());
  const shownOnes = AGENTS.filter((agent) => isShown({ agent })).length;
  document.getElementById("filters").textContent = `${shownOnes} of ${AGENTS.length} agents${several ? `, reliability over ${repeats[state.k]}` : ""}`;
  const parts = [state.track !== "all" && `track ${trackTitle(state.track)} only`, !isHeadline() && `${DATA.tiers[state.tier]} tier only`];
  const narrowed = parts.filter(Boolean).join(", ");
  document.getElementById("ranking-note").textContent = narrowed ? `A part of the campaign, not the headline: ${narrowed}.` : "";
}

// Of all runs shown: their number, and what one takes.
function drawSums(rows) {
  const sum = (name) => rows.reduce((total, row) => total + row[name], 0);
  const mean = (name, n = "n_scored") => {
    const found = rows.filter((row) => known(row[name]) && row[n]);
    return found.length ? found.reduce((total, row) => total + row[name] * row[n], 0) / found.reduce((total, row) => total + row[n], 0) : null;
  };
  const sums = {
    "runs scored": `${sum("n_scored")} / ${sum("n_planned")}`, "turns a run": number(mean("mean_turns")), "time a run": duration(mean("mean_wall_s")),
    "tokens a run": count(mean("mean_tokens")), "cost a run": money(mean("mean_cost_usd", "n_priced")), failed: share(mean("failure_rate")),
  };
  fill("sums", Object.entries(sums).map(([title, text]) => el("div", {}, el("dt", {}, title), el("dd", {}, text))));
}

// Names that differ at their ends are cut in the middle.
const middle = (name, most = 30) => {
  const text = visible(name);
  return text.length > most ? `${text.slice(0, most / 2 - 1)}…${text.slice(-most / 2)}` : text;
};

function moreButton(n) {
  if (n <= TOP) return null;
  const all = state.rows === "all";
  return el("button.plain", { type: "button", onclick: () => change({ rows: all ? "" : "all" }) }, all ? `Show the first ${TOP}` : `Show all ${n} agents`);
}

function drawRanking() {
  const rows = view(state.tier, state.track).filter(isShown);
  if (!rows.length) { fill("ranking-chart", none("Nothing is planned or shown for this choice.")); fill("ranking-table"); return; }
  const summary = rows.map((row) => `${row.agent} ${percent(row.overall)}`).join(", ");
  const key = el("p.key", {},
    el("span", {}, el("span.swatch.agentic"), "Agentic half"), el("span", {}, el("span.swatch.task"), "Task half"),
    rows.some((row) => known(row.overall_low)) && el("span", {}, el("i.whisker-key"), `${level()} interval`),
    rows.some((row) => row.tie) && el("span", {}, el("b", {}, "a b "), "same letter: not told apart on these tasks"));
  fill("ranking-chart", figure("", [key, chart("ranking", top(rows), { label: `Overall score of agents: ${summary}`, height: 24 * top(rows).length + 46 })],
    { caption: certainty(rows), files: "ranking" }));
  drawSums(rows);
  fill("ranking-table", rankingTable(state.tier, rows, "Ranking of agents"));
}

// In words, whether differences may be believed.
function certainty(rows) {
  const scored = rows.filter((row) => known(row.overall));
  if (!scored.length) return "No run is scored yet.";
  const weak = scored.filter((row) => !row.sufficient);
  if (weak.length === scored.length) return "Insufficient for inference: below 3 repeats in a cell, so there are no intervals and no ties; ranks are only the order of the means.";
  const some = weak.length ? `Insufficient for inference (below 3 repeats in a cell): ${weak.map((row) => visible(row.agent)).join(", ")}.` : "";
  return `${separation(rows)} Whiskers: ${level()} interval of a score; differences have their own, so whiskers of agents that are told apart may overlap. ${some}`;
}

// What letters say; without any, which difference this design would have shown.
function separation(rows) {
  if (rows.some((row) => row.tie)) return "Agents with a letter in common cannot be told apart on these tasks; * all its differences hold for tasks like these as well.";
  const found = TABLES.comparisons.filter(placeOf).map((row) => row.sdd).filter(known).sort((a, b) => a - b);
  return isHeadline() && found.length ? `No two agents are told apart; this design shows differences from about ${percent(found[Math.floor(found.length / 2)])} points on.` : "No two agents are told apart.";
}

// Conditions that all rows share are said once below the table, others in each row. `lead`: columns before the scores.
function rankingTable(tiers, rows, label, lead = RANK_COLUMNS) {
  const scored = rows.filter((row) => known(row.overall));
  const same = (value) => new Set(scored.map(value)).size <= 1;
  const all = { sandbox: same((row) => row.sandbox), judge: same((row) => row.judge), sufficient: same((row) => row.sufficient) };
  const first = scored[0];
  const shared = first && [
    all.sandbox && first.sandbox && ` Sandbox and network: ${first.sandbox}.`,
    all.judge && first.judge && ` S1–S3 ${JUDGED(first)}: ${first.judge}.`,
  ].filter(Boolean);
  const marked = lead.map((column) => (column.header ? { ...column, cell: (row) => [column.cell(row), " ", noteTags(row, all), column.below?.(row)] } : column));
  const columns = [...marked, ...rowColumns(tiers, all)].filter((column) => !column.when || rows.some(column.when));
  const made = agentTable(columns, rows, label);
  made.classList.add("ranked");
  return [made, shared?.length > 0 && el("p.aside", {}, "All rows:", shared, " Select a number to see where it comes from.")];
}

const agentTable = (columns, rows, label, more = {}) =>
  table(columns, rows, { label, page: state.rows === "all" ? Infinity : TOP, more: moreButton(rows.length), ...more });

const MADE_UP = () => tag("made-up data", "bad", "A rehearsal: the numbers mean nothing");
const JUDGED = (row) => (row.judge.startsWith("heuristic") ? "judged by rules, not by a model" : "judged by models");

function rankCell(row) {
  if (!known(row.rank)) return DASH;
  const range = known(row.rank_best) && row.rank_best !== row.rank_worst;
  const text = range ? `${row.rank_best}–${row.rank_worst}` : String(row.rank);
  const help = range ? `Rank ${row.rank} by the mean; ${row.rank_best} to ${row.rank_worst} are possible` : row.sufficient ? "" : "By the mean only: insufficient for inference";
  return el("span", { title: help || null }, text);
}

// Leads to the agent's own section.
function agentLink(agent) {
  const open = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    const there = state.go === "agents";
    change({ agent, go: "agents" });
    if (there) goTo("agents");
  };
  return el("a.agent", { href: hrefOf({ agent, go: "agents" }), title: agent, onclick: open }, foreign(middle(agent, 32)));
}

const SCAFFOLDS = new Set(Object.values(DATA.about).map((about) => about.scaffold)).size;

function modelLine({ agent }) {
  const { model, scaffold, lab } = DATA.about[agent] ?? {};
  const parts = [model !== agent && model && middle(model, 24), SCAFFOLDS > 1 && scaffold, lab].filter(Boolean);
  return parts.length > 0 && el("small.foreign", { title: model }, parts.join(" · "));
}

const RANK_COLUMNS = [
  { title: "#", numeric: true, cell: rankCell, value: (row) => (known(row.rank) ? -row.rank : null), csv: (row) => row.rank, help: "Rank by the mean; a range where the data allow several" },
  { title: "Agent", header: true, pin: true, value: (row) => row.agent, cell: (row) => agentLink(row.agent), below: modelLine },
  { title: "Tie", when: (row) => row.tie, cell: (row) => (row.tie ? `${row.tie}${row.generalises ? " *" : ""}` : ""), help: "Agents with a letter in common cannot be told apart on these tasks; * differences hold for tasks like these too" },
];

function measured(title, name, tiers, format, help, more = {}) {
  const value = (row) => (known(row[name]) ? Number(row[name]) : null);
  return { title, numeric: true, value, help, cell: (row) => why(row, name, format(value(row)), tiers), ...more };
}

function rowColumns(tiers, same) {
  const score = (title, name, spans, more = {}) => measured(title, name, tiers, percent, MEASURES[name].join(": "), {
    cell: (row) => [why(row, name, percent(row[name]), tiers), span(row[spans[0]], row[spans[1]])], ...more,
  });
  return [
    score("Overall", "overall", SPANS.overall, { strong: true }),
    { title: "Runs", numeric: true, value: (row) => row.n_scored, cell: (row) => runsCell(row), help: "Scored of planned runs, and the cases of their tasks; attempts that failed before" },
    score("Agentic", "agentic", SPANS.agentic),
    score("Task", "task_score", SPANS.task_score),
    ...STAGES.map((stage) => measured(stage, stage.toLowerCase(), tiers, percent, DATA.stages[stage], { heat: (row) => row[stage.toLowerCase()] })),
    measured(state.k === "1" ? "Medals" : `All ${state.k} win`, `pass_${state.k}`, tiers, percent, `Probability that all of ${state.k} repeats of a task win a medal (pass^${state.k})`),
    measured(`Worst of ${state.k}`, `worst_${state.k}`, tiers, percent, `Expected lowest overall score of ${state.k} repeats of a cell`, { when: () => state.k !== "1" }),
    measured("Failed", "failure_rate", tiers, share, "Failure rate: runs without a complete final submission", {
      cell: (row) => [why(row, "failure_rate", share(row.failure_rate), tiers), failedCell(row, tiers)],
    }),
    measured("Turns", "mean_turns", tiers, number, "Mean number of replies per run"),
    measured("Time", "mean_wall_s", tiers, duration, "Mean wall clock per run"),
    measured("Tokens", "mean_tokens", tiers, count, "Mean prompt and completion tokens per run"),
    measured("Cost", "mean_cost_usd", tiers, money, "Mean cost in USD over the runs with a known price", { cell: (row) => costCell(row, tiers) }),
  ];
}

function runsCell(row) {
  const cases = casesOf(row);
  return [`${row.n_scored} / ${row.n_planned}`, cases > 0 && el("small", {}, `${cases} cases`),
    row.attempts > row.n_scored && el("small", {}, `${row.attempts} attempts, all ${money(row.attempts_cost_usd)} per run`)];
}

// Cases of the tasks that a row has scores of; every run of a task is on the same ones.
function casesOf(row) {
  const tasks = row.task ? [row.task] : SCORED_TASKS.get(row.agent) ?? [];
  return tasks.filter((task) => row.task || !row.track || TRACK_OF[task] === row.track).reduce((sum, task) => sum + (CASES[task] ?? 0), 0);
}

const FAILED = { submitted: "incomplete", stopped: "not submitted" };

// Why most of the failed runs did, in a word.
function failedCell(row, tiers) {
  if (!row.n_failed) return null;
  if (row.n_disqualified) return el("small.dq", {}, `⊘ ${row.n_disqualified} disq.`);
  const outcomes = runsOf(row, tiers).filter((run) => run.failed).map((run) => run.outcome);
  const often = (outcome) => outcomes.filter((other) => other === outcome).length;
  const word = outcomes.reduce((a, b) => (often(b) > often(a) ? b : a));
  return el("small", { title: "What most of the failed runs ended with" }, FAILED[word] ?? word.replaceAll("_", " "));
}

function costCell(row, tiers) {
  const partly = row.n_priced > 0 && row.n_priced < row.n_scored;
  return [why(row, "mean_cost_usd", money(row.mean_cost_usd), tiers), partly && el("small", {}, `over ${row.n_priced} runs`)];
}

function noteTags(row, same) {
  return [
    row.made_up && MADE_UP(),
    row.n_no_effect > 0 && tag(`${row.n_no_effect} without effect of the case`, "bad", "Outputs fit their own case no better than others: S3 of such a run is 0, S4 at most 0.3, and it wins no medal, unless effects are shown only"),
    row.n_contradicting > 0 && tag(`${row.n_contradicting} won with contradictions`, "warn", "Runs with a medal, of whose reports more than a tenth of the statements contradict the references by an opposite or a negation, which the score hardly sees"),
    row.provisional && tag("provisional", "warn"),
    row.other_judge && tag("other judge", "warn", "Not judged as the preset's published rows, and not to be compared with them"),
    row.other_tasks && tag("other tasks", "warn", "Planned on other tasks or tiers than most agents here, and so without a rank"),
    known(row.overall) && !row.sufficient && !same.sufficient && tag("insufficient for inference", "warn", "Below 3 repeats in a cell: no interval, no test"),
    row.mixed && tag(`mixed: ${row.mixed}`, "warn", "Runs of this row were not made under the same conditions"),
    row.outdated && tag(`outdated: ${row.outdated}`, "warn", "Runs of this row were not made or scored as the campaign asks now"),
    row.sandbox && !same.sandbox && tag(row.sandbox, "", "Sandbox and network class"),
    row.judge && !same.judge && tag(JUDGED(row), "", `S1 to S3 judged by: ${row.judge}`),
  ];
}

// --- what a run takes ------------------------------------------------------------------------------------------

const RESOURCES = [
  ["Failure rate", "failure_rate", share, "no complete final submission"],
  ["Runs without a medal", "no_medal_rate", share, "what the public site counts as failed here"],
  ["Average turns", "mean_turns", number, "replies of the model in a run"],
  ["Average time", "mean_wall_s", duration, "wall clock of a run"],
  ["Average tokens", "mean_tokens", count, "prompt and completion of a run"],
  ["Average cost", "mean_cost_usd", money, "of runs with a known price"],
  ["Cost of judging", "judge_cost_usd", money, "of a run, apart from its own"],
];

function drawResources() {
  const rows = top(view(state.tier, state.track).filter(isShown));
  const wanted = { judge_cost_usd: rows.some((row) => Number(row.judge_cost_usd) > 0), no_medal_rate: DATA.medal_rate.includes(state.track) };
  const shownOnes = RESOURCES.filter(([, name]) => wanted[name] ?? true);
  fill("resources", shownOnes.map(([title, name, format, text]) => {
    const value = (row) => (known(row[name]) ? Number(row[name]) : null);
    const top = name.endsWith("_rate") ? 1 : Math.max(...rows.map((row) => value(row) ?? 0)) || 1;
    const line = (row) =>
      el("div.mini", {}, el("div", { title: row.agent }, foreign(middle(row.agent, 20)), why(row, name, format(value(row)), state.tier)),
        el("i", { "--w": `${(100 * (value(row) ?? 0)) / top}%` }));
    return el("div.card", {}, el("h4", {}, title, el("small", {}, text)), rows.map(line));
  }));
}

// --- how sure the order is -------------------------------------------------------------------------------------

function drawCertainty() {
  fill("certainty", halvesFigure(), poolingFigure());
}

function halvesFigure() {
  const rows = view(state.tier, state.track).filter(isShown).filter((row) => known(row.overall));
  if (!rows.length) return null;
  const summary = rows.map((row) => `${row.agent} ${percent(row.agentic)} and ${percent(row.task_score)}`).join(", ");
  return figure("Agentic × Task", chart("halves", rows, { names: rows.map((row) => row.agent), label: `Agentic and task half of agents: ${summary}`, height: 360 }), {
    caption: `Work against result. Along a dashed line the overall score is the same.${rows.some((row) => known(row.agentic_low)) ? ` Whiskers: ${level()} intervals.` : ""}`, files: "halves",
  });
}

function poolingFigure() {
  if (!isHeadline()) return null;
  const main = view("headline", state.track).filter(isShown);
  const other = new Map(TABLES.other.filter(placeOf).map((row) => [row.agent, row]));
  const rows = main.filter((row) => known(row.overall)).map((row) => ({ agent: row.agent, main: row, other: other.get(row.agent) }));
  const difference = ({ main, other }) => (other ? other.overall - main.overall : null);
  const apart = rows.filter((row) => !row.other || row.main.rank !== row.other.rank || Math.abs(difference(row)) >= EQUAL);
  if (!apart.some((row) => row.other)) return rows.length > 0 && none("By tasks or by runs: both poolings give the same scores and ranks.");
  const [here, there] = DATA.pooling === "tasks" ? ["by tasks", "by runs"] : ["by runs", "by tasks"];
  const columns = [
    { title: "Agent", header: true, value: (row) => row.agent, cell: (row) => foreign(row.agent) },
    { title: `${here} (used)`, numeric: true, strong: true, value: (row) => row.main.overall, cell: (row) => percent(row.main.overall) },
    { title: "rank", numeric: true, value: (row) => (row.other ? -row.main.rank : null), csv: (row) => row.main.rank, cell: (row) => row.main.rank ?? DASH },
    { title: there, numeric: true, value: (row) => row.other?.overall ?? null, cell: (row) => (row.other ? percent(row.other.overall) : el("small", {}, "no rank: other tasks than most")) },
    { title: "rank", numeric: true, value: (row) => (row.other ? -row.other.rank : null), csv: (row) => row.other?.rank, cell: (row) => [row.other?.rank ?? DASH, row.other && row.other.rank !== row.main.rank && " ⇅"] },
    { title: "difference", numeric: true, value: difference, cell: (row) => signed(difference(row)) },
  ];
  return el("figure", {}, el("h3", {}, "Both poolings"), agentTable(columns, apart, "Overall score by both poolings"),
    el("figcaption", {}, "By tasks: every task counts the same. By runs: every run does, as in the paper's table, so tasks with more repeats weigh more. ⇅ the rank changes. ", apart.length < rows.length && "Agents whom it makes no difference to are left out."));
}

const signed = (value) => (known(value) ? `${value >= 0.0005 ? "+" : value <= -0.0005 ? "−" : ""}${percent(Math.abs(value))}` : DASH);

onChange("ranking", [...SCORE_KEYS, "k"], () => { drawControls(); drawRanking(); });
onChange("ranking", SCORE_KEYS, drawResources);
onChange("ranking", SCORE_KEYS, drawCertainty);
