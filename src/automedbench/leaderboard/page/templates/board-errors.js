// --- error atlas -------------------------------------------------------------------------------------------------

const codeName = (code) => `${code} ${DATA.errors[code]?.title ?? ""}`.trim();
const agentsFirst = (rows) => [...rows].sort((a, b) => (AGENT_INDEX.get(a.agent) ?? 0) - (AGENT_INDEX.get(b.agent) ?? 0));

function drawErrors() {
  drawScope("errors", isHeadline() ? "" : "Error codes are shown for the headline tiers.");
  const rows = TABLES.errors.filter(placeOf).filter((row) => row.stage === null).map((row) => ({ ...row, name: codeName(row.code) }));
  const fired = rows.some((row) => row.n_with_code > 0);
  if (!rows.length || !fired) { fill("atlas", codeList(), none(rows.length ? "No run of this choice has an error code." : "No error codes are recorded.")); return; }
  fill("atlas",
    summaryText(),
    el("div.figures", {}, sharesFigure(rows), costsFigure()),
    el("h3", {}, "By agent"), summaryTable(), codeList(), stageTable(), pairsTable());
}

// Missing knowledge is what a language model judges; rules cannot.
const NOT_MEASURABLE = "not measurable by rules";

function summaryText() {
  const all = TABLES.error_summary.filter(placeOf).find((row) => row.agent === null);
  if (!all) return null;
  const ratio = known(all.ratio) ? ` Engineering (E2–E5) to knowledge (E1): ${number(all.ratio)} to 1.` : all.n_engineering ? ` Engineering (E2–E5): ${all.n_engineering}, knowledge (E1): ${known(all.n_knowledge) ? "none" : NOT_MEASURABLE}.` : "";
  const recovery = known(all.recovery_rate) ? ` Of ${all.n_two_or_more} runs with two codes or more, ${share(all.recovery_rate)} were still completed.` : "";
  return el("p", {}, `${all.n_fired} codes in ${all.n_runs} runs; ${all.n_without_code} runs have none.${ratio}${recovery} Codes explain runs and change no score (taxonomy ${DATA.taxonomy}).`);
}

function sharesFigure(rows) {
  const agents = agentsFirst(rows.filter((row) => row.agent !== null && isShown(row)));
  if (!agents.length) return null;
  const all = rows.filter((row) => row.agent === null);
  const names = [...new Set(agents.map((row) => row.agent))];
  const drawn = [...agents, ...all.map((row) => ({ ...row, agent: "all agents" }))];
  const columns = [
    { title: "Code", header: true, pin: true, value: (row) => row.code, cell: (row) => row.name },
    { title: "Agent", value: (row) => row.agent, cell: (row) => foreign(row.agent) },
    { title: "Runs with it", numeric: true, value: (row) => row.run_share, cell: (row) => known(row.run_share) ? [codeLink(row), el("small", {}, share(row.run_share))] : NOT_MEASURABLE },
    { title: "Of all fired", numeric: true, value: (row) => row.fired_share, cell: (row) => share(row.fired_share), help: "Share of the fired codes (run, code), as the paper counts" },
    { title: "By rule", numeric: true, value: (row) => row.n_by_rule, cell: (row) => row.n_by_rule },
    { title: "By judge", numeric: true, value: (row) => row.n_by_judge, cell: (row) => row.n_by_judge },
  ];
  return figure("Runs with an error code", chart("error_shares", drawn, { names, label: `Share of runs with a code: ${all.map((row) => `${row.name} ${share(row.run_share)}`).join(", ")}`, height: 28 * (names.length + 1) + 40 }), {
    caption: "Percent of an agent's runs that have the code at least once. Disqualified runs are in no share.",
    numbers: table(columns, drawn, { label: "Runs with an error code", tall: drawn.length > 14 }), files: "errors",
  });
}

const codeLink = (row) => AGENT_INDEX.has(row.agent)
  ? el("a", { href: hrefOf({ ...NO_FILTER, "run-agent": row.agent, "run-code": row.code, "run-track": row.track ?? "", go: "runs" }) }, `${row.n_with_code} of ${row.n_runs}`)
  : `${row.n_with_code} of ${row.n_runs}`;

function costsFigure() {
  const rows = TABLES.error_costs.filter(placeOf).filter((row) => row.agent === null).map((row) => ({ ...row, name: codeName(row.code) }));
  const drawn = rows.filter((row) => known(row.within_difference));
  const columns = [
    { title: "Code", header: true, pin: true, value: (row) => row.code, cell: (row) => row.name },
    { title: "Within cells", numeric: true, strong: true, value: (row) => row.within_difference, cell: (row) => signed(row.within_difference), help: "Mean over cells (agent × task × tier) that have runs with and without the code" },
    { title: "Interval", numeric: true, value: (row) => row.low, cell: (row) => (known(row.low) ? `${signed(row.low)} to ${signed(row.high)}` : DASH) },
    { title: "Cells", numeric: true, value: (row) => row.n_cells, cell: (row) => row.n_cells },
    { title: "Unadjusted", numeric: true, value: (row) => row.difference, cell: (row) => signed(row.difference), help: "Mean of the runs with it minus mean of the runs without it" },
    { title: "Runs with / without", numeric: true, value: (row) => row.n_with, cell: (row) => `${row.n_with} / ${row.n_without}` },
  ];
  if (!rows.length) return null;
  const content = drawn.length ? chart("error_costs", drawn, { names: [], label: `Difference in points: ${drawn.map((row) => `${row.name} ${signed(row.within_difference)}`).join(", ")}`, height: 28 * drawn.length + 50 })
    : none("No cell has runs with and runs without a code, so its cost within cells is not known.");
  return figure("What a code costs", content, {
    caption: "Overall score of runs with the code minus runs of the same agent, task and tier without it, in points. Association, not proof of cause.",
    numbers: table(columns, rows, { label: "Cost of error codes" }),
  });
}

function pairsTable() {
  const rows = TABLES.error_pairs.filter(placeOf).filter((row) => row.n_both > 0);
  if (!rows.length) return null;
  const columns = [
    { title: "Codes", header: true, value: (row) => row.first + row.second, cell: (row) => `${row.first} + ${row.second}` },
    { title: "Runs with both", numeric: true, value: (row) => row.n_both, cell: (row) => row.n_both },
    { title: "Of runs with either", numeric: true, value: (row) => row.jaccard, cell: (row) => share(row.jaccard), heat: (row) => row.jaccard },
    { title: "Lift", numeric: true, value: (row) => row.lift, cell: (row) => number(row.lift), help: "How much more often together than if they were independent" },
  ];
  return el("details.numbers", {}, el("summary", {}, "Codes that go together"), table(columns, rows, { label: "Pairs of codes" }));
}

function summaryTable() {
  const rows = agentsFirst(TABLES.error_summary.filter(placeOf).filter((row) => row.agent !== null && isShown(row)));
  const columns = [
    { title: "Agent", header: true, pin: true, value: (row) => row.agent, cell: (row) => foreign(row.agent) },
    { title: "Codes fired", numeric: true, value: (row) => row.n_fired, cell: (row) => row.n_fired },
    { title: "Runs without", numeric: true, value: (row) => row.n_without_code, cell: (row) => `${row.n_without_code} / ${row.n_runs}` },
    { title: "Knowledge (E1)", numeric: true, value: (row) => row.n_knowledge, cell: (row) => row.n_knowledge ?? NOT_MEASURABLE },
    { title: "Engineering (E2–E5)", numeric: true, value: (row) => row.n_engineering, cell: (row) => row.n_engineering },
    { title: "Two codes or more", numeric: true, value: (row) => row.n_two_or_more, cell: (row) => row.n_two_or_more },
    { title: "Recovery rate", numeric: true, value: (row) => row.recovery_rate, cell: (row) => [share(row.recovery_rate), row.n_two_or_more > 0 && el("small", {}, `${row.n_recovered} of ${row.n_two_or_more}`)], help: "Share of completed runs among runs with two codes or more" },
  ];
  return table(columns, rows, { label: "Error codes by agent" });
}

function codeList() {
  const item = ([code, text]) => el("div", {}, el("dt", {}, `${code} ${text.title}`), el("dd", {}, text.meaning));
  return el("dl.terms.codes", {}, Object.entries(DATA.errors).map(item));
}

function stageTable() {
  const rows = TABLES.errors.filter(placeOf).filter((row) => row.stage !== null && row.agent === null);
  if (!rows.length) return null;
  const columns = [
    { title: "Stage", header: true, value: (row) => row.stage, cell: (row) => `${row.stage} ${DATA.stages[row.stage]}` },
    { title: "Code", value: (row) => row.code, cell: (row) => codeName(row.code) },
    { title: "Runs", numeric: true, value: (row) => row.n_with_code, cell: (row) => `${row.n_with_code} of ${row.n_runs}` },
    { title: "Share", numeric: true, value: (row) => row.run_share, cell: (row) => share(row.run_share), heat: (row) => row.run_share },
  ];
  return el("details.numbers", {}, el("summary", {}, "By stage"), table(columns, rows, { label: "Error codes by stage" }));
}

onChange("errors", SCORE_KEYS, drawErrors);
