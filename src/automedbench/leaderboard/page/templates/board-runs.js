// --- stages and agreement ------------------------------------------------------------------------------------------

function drawStages() {
  for (const button of document.querySelectorAll(".stage")) {
    const open = button.dataset.stage === state.stage;
    button.setAttribute("aria-pressed", String(open));
    document.getElementById(`stage-${button.dataset.stage}`).hidden = !open;
  }
  // Wording belongs to a track: that of the ranking, else that of the chosen task.
  const track = state.track !== "all" ? state.track : TRACK_OF[state.task];
  for (const place of document.querySelectorAll(".criteria")) {
    const criteria = (DATA.rubrics[track] ?? []).filter((criterion) => criterion.stage === place.dataset.stage);
    const heading = el("p.aside", {}, `Criteria, worded for ${DATA.tracks[track]} (rubric ${DATA.rubric_versions[track]}):`);
    place.replaceChildren(...(criteria.length ? [heading, el("ul", {}, criteria.map(criterionText))] : []));
  }
}

const criterionText = (criterion) =>
  el("li", {}, el("b", {}, `${criterion.title}. `), criterion.earned_when,
    criterion.auto_tiers.length > 0 && tag(`credited in ${criterion.auto_tiers.join(", ")}`),
    criterion.levels.length > 0 && el("ul", {}, criterion.levels.map((level) => el("li", {}, level))));

const raterName = (row) => (row.measure === "alpha" ? `Krippendorff's α, ${row.raters} judgements` : `weighted κ, ${visible(row.first)} and ${visible(row.second)}`);

function drawAgreement() {
  const every = TABLES.agreement.map((row) => ({ ...row, who: raterName(row), place: trackTitle(row.track) }));
  if (!every.length) {
    fill("agreement", none(DATA.one_judge));
    return;
  }
  const columns = [
    { title: "Where", header: true, value: (row) => row.place, cell: (row) => row.place },
    { title: "Stage", value: (row) => row.stage, cell: (row) => `${row.stage} ${DATA.stages[row.stage]}` },
    { title: "Judges", value: (row) => row.who, cell: (row) => foreign(row.who) },
    { title: "Value", numeric: true, strong: true, value: (row) => row.value, cell: (row) => (known(row.value) ? row.value.toFixed(2) : DASH), heat: (row) => (known(row.value) ? Math.max(row.value, 0) : null) },
    { title: `${level()} interval`, numeric: true, value: (row) => row.low, cell: (row) => (known(row.low) ? `${row.low.toFixed(2)} to ${row.high.toFixed(2)}` : DASH) },
    { title: "Runs", numeric: true, value: (row) => row.units, cell: (row) => row.units },
  ];
  fill("agreement",
    table(columns, every, { label: "Agreement of judges", tall: every.length > 14 }),
    el("p.aside", {}, "1: judges agree fully, 0: as by chance, below 0: less than by chance; a dash where every judgement is the same. From about 0.67 (α) conclusions are called tentative, from 0.8 firm. Headline tiers."));
}

// --- runs --------------------------------------------------------------------------------------------------------

const RUN_FILTERS = {
  "run-agent": ["Agent", (run) => run.agent, (value) => visible(value)],
  "run-track": ["Track", (run) => run.track, trackTitle],
  "run-task": ["Task", (run) => run.task, (value) => TITLES[value] ?? value],
  "run-tier": ["Tier", (run) => run.tier, (value) => value],
  "run-outcome": ["Outcome", (run) => run.outcome, (value) => DATA.outcomes[value] ?? value],
  "run-code": ["Error code", (run) => run.error_codes.split(" "), codeName],
};
const RUN_KEYS = [...Object.keys(RUN_FILTERS), "run-text"];

// Path, task and track of a run in small letters, made once.
const searched = (run) => (run.searched ??= `${runPath(run)} ${TITLES[run.task] ?? ""} ${run.track} ${trackTitle(run.track)}`.toLowerCase());

function filteredRuns() {
  const chosen = Object.entries(RUN_FILTERS).filter(([key]) => state[key]);
  const words = state["run-text"].toLowerCase().split(/\s+/).filter(Boolean);
  return runs().filter((run) =>
    chosen.every(([key, [, value]]) => { const found = value(run); return Array.isArray(found) ? found.includes(state[key]) : found === state[key]; }) &&
    words.every((word) => searched(run).includes(word)));
}

function drawRunControls() {
  const levels = (value) => [...new Set(runs().flatMap(value))].filter(Boolean).sort();
  const pickers = Object.entries(RUN_FILTERS).map(([key, [title, value, name]]) => {
    const options = Object.fromEntries([["", "all"], ...levels(value).map((level) => [level, name(level)])]);
    return Object.keys(options).length > 2 || state[key] ? picker(title, key, options, state[key], (chosen) => change({ [key]: chosen })) : null;
  });
  const text = el("input", { type: "search", id: "run-text", value: state["run-text"], placeholder: "agent, task, r3 …" });
  text.addEventListener("input", () => change({ "run-text": text.value }, { replace: true }));
  const clear = RUN_KEYS.some((key) => state[key]) && el("button.plain", { type: "button", onclick: () => change(NO_FILTER) }, "Clear filters");
  fill("run-controls", pickers, el("div.control", {}, el("label", { for: "run-text" }, "Search"), text), clear);
}

function drawRuns() {
  // While someone types, their field stays as it is.
  if (document.activeElement?.id !== "run-text") drawRunControls();
  const rows = filteredRuns();
  const [title, way] = state["run-sort"].split(":");
  fill("run-table",
    el("p.aside", { role: "status" }, `${rows.length} of ${runs().length} scored runs.`),
    rows.length > 0 && table(runColumns(), rows, {
      label: "Table of runs", page: 25, sorted: title ? { title, down: way !== "up" } : undefined,
      onsort: (name, down) => { history.replaceState(null, "", hrefOf({ "run-sort": `${name}:${down ? "down" : "up"}` })); state = readState(); },
    }));
}

const runColumns = () => [
  { title: "Run", header: true, pin: true, value: runPath, cell: (run) => el("a", { href: runPage(run) }, foreign(run.agent), `\u00a0· r${run.repeat}`) },
  { title: "Task", kind: "task", value: (run) => TITLES[run.task] ?? run.task, cell: (run) => [TITLES[run.task] ?? run.task, el("small", {}, run.tier)] },
  { title: "Outcome", value: (run) => run.outcome, cell: (run) => [outcomeTags(run), run.made_up && MADE_UP(), run.no_effect && tag("no effect of the case", run.effects === "shown_only" ? "warn" : "bad", "The outputs fit their own case no better than others: constants, typed or random values, copies of the input"), known(run.contradicting) && tag("contradictions", "warn", `${Math.round(100 * run.contradicting)} % of the reports' statements contradict the references, which the score hardly sees`), run.attempts > 1 && tag(`${run.attempts} attempts`, "warn", `The last one counts; all together cost ${money(run.attempts_cost_usd)}`), run.model_lock === "violated" && tag("another model", "bad", "Lite tier: the given checkpoint was not used")] },
  scoreColumn("Overall", "overall", { strong: true }),
  scoreColumn("Agentic", "agentic"),
  scoreColumn("Task score", "task_score"),
  ...STAGES.map((stage) => scoreColumn(stage, stage.toLowerCase(), { heat: (run) => run[stage.toLowerCase()], help: DATA.stages[stage] })),
  { title: "Medal", value: (run) => run.medal, cell: (run) => run.medal },
  { title: "Codes", value: (run) => run.error_codes, cell: (run) => run.error_codes || DASH, help: "Error codes" },
  { title: "Turns", numeric: true, value: (run) => run.turns, cell: (run) => run.turns },
  { title: "Time", numeric: true, value: (run) => run.wall_s, cell: (run) => duration(run.wall_s) },
  { title: "Tokens", numeric: true, value: (run) => run.tokens_total, cell: (run) => count(run.tokens_total) },
  { title: "Cost", numeric: true, value: (run) => run.cost_usd, cell: (run) => money(run.cost_usd) },
  { title: "Files", cell: (run) => el("a", { href: `../runs/${encodePath(runPath(run))}/score.json` }, "score.json") },
];

function outcomeTags(run) {
  if (run.disqualified) return tag("⊘ disqualified", "bad");
  const outcome = DATA.outcomes[run.outcome] ?? run.outcome;
  return run.failed ? [tag("✕ failed", "bad"), run.outcome !== "submitted" && tag(outcome)] : tag(`✓ ${outcome}`, "good");
}

onChange("stages", ["stage", "track", "task"], drawStages);
onChange("stages", [], drawAgreement);
onChange("runs", RUN_KEYS, drawRuns);
