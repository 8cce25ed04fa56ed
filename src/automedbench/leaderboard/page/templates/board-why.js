// --- where a number comes from ---------------------------------------------------------------------------------

const MEASURES = {
  overall: ["Overall", "(agentic + task) / 2"],
  agentic: ["Agentic half", "0.25·S1 + 0.15·S2 + 0.35·S3 + 0.15·S4 + 0.10·S5"],
  task_score: ["Task half", "quality × completion rate"],
  failure_rate: ["Failure rate", "runs without a complete final submission ÷ scored runs"],
  no_medal_rate: ["Runs without a medal", "fail or disqualified ÷ scored runs; what the benchmark's site calls the failure rate of synthesis"],
  ...Object.fromEntries(DATA.repeats_asked.flatMap((k) => [
    [`pass_${k}`, [`All of ${k} repeats win a medal`, `probability for ${k} repeats drawn from those scored of a cell`]],
    [`worst_${k}`, [`Worst of ${k} repeats`, `expected lowest overall score of ${k} repeats drawn from those scored of a cell`]],
  ])),
  mean_turns: ["Average turns", "mean over scored runs"],
  mean_wall_s: ["Average time", "mean wall clock over scored runs"],
  mean_tokens: ["Average tokens", "mean prompt and completion tokens over scored runs"],
  mean_cost_usd: ["Average cost", "mean over runs with a known price; unknown is never 0"],
  judge_cost_usd: ["Cost of judging", "mean over runs whose judge has a known price; apart from the run's cost"],
  ...Object.fromEntries(STAGES.map((stage) => [stage.toLowerCase(), [`${stage} ${DATA.stages[stage]}`, "mean of the stage's score"]])),
};
const USED = new Set(["failure_rate", "no_medal_rate", "mean_turns", "mean_wall_s", "mean_tokens", "mean_cost_usd", "judge_cost_usd"]);
const SPANS = { overall: ["overall_low", "overall_high"], agentic: ["agentic_low", "agentic_high"], task_score: ["task_low", "task_high"] };

// A number that opens where it comes from. `tiers`: choice of tiers that the row is about.
function why(row, measure, text, tiers) {
  if (!known(row[measure])) return text;
  const name = MEASURES[measure][0];
  return el("button.why", {
    type: "button", "aria-haspopup": "dialog", "aria-label": `${name} of ${row.agent}: ${text}. Where it comes from`,
    onclick: (event) => openWhy(event.currentTarget, row, measure, text, tiers),
  }, text);
}

function openWhy(button, row, measure, text, tiers) {
  const [name, formula] = MEASURES[measure];
  const found = runsOf(row, tiers);
  const place = [TITLES[row.task] ?? row.task ?? trackTitle(row.track), DATA.tiers[row.tier ?? tiers] ?? row.tier ?? tiers].filter(Boolean).join(" · ");
  const [low, high] = (SPANS[measure] ?? []).map((key) => row[key]);
  const pairs = [
    ["Exactly", known(row[measure]) ? String(row[measure]) : DASH],
    SPANS[measure] && [`${percent(DATA.confidence).replace(".0", "")} % interval`, known(low) ? `${percent(low)} to ${percent(high)}` : "insufficient for inference: below 3 repeats in a cell"],
    ["Is", formula],
    ["Pooling", USED.has(measure) ? "mean over runs" : DATA.pooling_text],
    ["Runs scored", `${row.n_scored} of ${row.n_planned}`],
    ["Task-tier cells scored", `${row.cells_scored} of ${row.cells_planned}`],
    known(row.min_repeats) && ["Fewest repeats in a cell", row.min_repeats],
    measure === "mean_cost_usd" && ["Runs with a known price", row.n_priced],
    ["Judge of S1–S3", row.judge || DASH],
    ["Sandbox", row.sandbox || DASH],
    ...["task_version", "track_version", "rubric_version", "code_version"].map((key) => [VERSIONS[key], levelsOf(found, key)]),
    row.mixed && ["Not the same for all", row.mixed],
    row.outdated && ["Not as the campaign asks now", row.outdated],
  ];
  const filter = { "run-agent": row.agent, "run-track": row.task ? "" : row.track ?? "", "run-task": row.task ?? "", "run-tier": tierOf(tiers).length === 1 ? tierOf(tiers)[0] : "" };
  const table = row.tier ? "cells" : row.task ? "tasks" : row.track ? "tracks" : "overall";
  const box = document.getElementById("why");
  box.replaceChildren(
    el("button.plain.close", { type: "button", "aria-label": "Close", onclick: () => box.hidePopover() }, "✕"),
    el("h3", {}, `${name}: `, text),
    el("p.aside", {}, foreign(row.agent), ` · ${place}`),
    facts(pairs.filter(Boolean)),
    el("ul", {},
      el("li", {}, el("button.why", { type: "button", onclick: () => { box.hidePopover(); change({ ...NO_FILTER, ...filter, go: "runs" }); } }, `The ${found.length} runs it is made of`)),
      found.length === 1 && el("li", {}, el("a", { href: runPage(found[0]) }, "The run's page")),
      el("li", {}, "Files: ", [`${table}.csv`, `${table}.json`, "runs.csv"].map((file, i) => [i > 0 && " · ", el("a", { href: file }, file)]))));
  showWhy(box, button);
}

const VERSIONS = { task_version: "Task version", track_version: "Scorer version", rubric_version: "Rubric version", code_version: "Code version" };
const NO_FILTER = { "run-agent": "", "run-track": "", "run-task": "", "run-tier": "", "run-outcome": "", "run-code": "", "run-text": "" };
const levelsOf = (rows, key) => [...new Set(rows.map((row) => row[key]))].sort().join(", ") || DASH;

let RUNS_BY_AGENT = null;

function runsOf(row, tiers) {
  const among = row.tier ? [row.tier] : tierOf(tiers);
  RUNS_BY_AGENT ??= Map.groupBy(runs(), (run) => run.agent);
  return (RUNS_BY_AGENT.get(row.agent) ?? []).filter((run) => among.includes(run.tier) &&
    (!row.track || run.track === row.track) && (!row.task || run.task === row.task));
}

function showWhy(box, button) {
  box.showPopover();
  const from = button.getBoundingClientRect();
  const x = Math.max(12, Math.min(from.left, innerWidth - box.offsetWidth - 12));
  const below = from.bottom + 8 + box.offsetHeight < innerHeight;
  box.style.setProperty("--x", `${x}px`);
  box.style.setProperty("--y", `${below ? from.bottom + 8 : Math.max(12, from.top - box.offsetHeight - 8)}px`);
  box.querySelector(".close").focus({ preventScroll: true });
}
