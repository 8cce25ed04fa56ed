// --- two agents --------------------------------------------------------------------------------------------------

// Those of the hash if it names two, else the first two of the ranking.
function compared() {
  const named = list(state.compare).filter((agent) => AGENT_INDEX.has(agent));
  const [a, b] = named.length === 2 && named[0] !== named[1] ? named : AGENTS;
  return [a, b];
}

// The table has every pair once: turned round where a comes second.
function comparisonsOf(a, b) {
  return TABLES.comparisons.filter((row) => (row.a === a && row.b === b) || (row.a === b && row.b === a)).map((row) =>
    row.a === a ? row : {
      ...row, a, b, difference: negated(row.difference), low: negated(row.high), high: negated(row.low),
    });
}

const negated = (value) => (known(value) ? -value || 0 : value);

function drawComparison() {
  if (AGENTS.length < 2) { fill("compare-controls"); fill("comparison", none("A comparison needs two agents.")); return; }
  const [a, b] = compared();
  const options = Object.fromEntries(AGENTS.map((agent) => [agent, visible(agent)]));
  fill("compare-controls",
    picker("A", "compare-a", options, a, (agent) => change({ compare: unlist([agent, agent === b ? a : b]) })),
    el("button.plain", { type: "button", title: "Swap A and B", onclick: () => change({ compare: unlist([b, a]) }) }, "⇄ swap"),
    picker("B", "compare-b", options, b, (agent) => change({ compare: unlist([agent === a ? b : a, agent]) })));
  const rows = comparisonsOf(a, b).map((row) => ({ ...row, place: trackTitle(row.track) }));
  const whole = rows.find((row) => row.track === null);
  fill("comparison", verdict(a, b, whole), comparisonFigure(a, b, rows), taskComparison(a, b));
}

function verdict(a, b, row) {
  if (!row || !known(row.difference)) return none("These two have no scored task and tier in common.");
  const [better, worse] = row.difference >= 0 ? [a, b] : [b, a];
  const size = percent(Math.abs(row.difference));
  const names = [el("b.foreign", {}, better), " scores ", el("b", {}, `${size} points`), " more than ", el("b.foreign", {}, worse)];
  const base = row.n_cells === 1 ? " on the only task-tier cell that both have" : ` on the ${row.n_cells} task-tier cells that both have`;
  if (!row.sufficient) return el("p.verdict", {}, names, base, ". ", el("b", {}, "Insufficient for inference"), ": below 3 repeats in a cell, which is too few to tell it from chance.");
  const range = `${level()} interval ${signed(row.low)} to ${signed(row.high)}, p = ${pValue(row.p)}, corrected for all pairs`;
  const smallest = known(row.sdd) && ` Differences below about ${percent(row.sdd)} points cannot be found with this many runs.`;
  return el("p.verdict", {}, names, base, ` (${range}). `, el("b", {}, row.different ? "These tasks tell them apart" : "These tasks do not tell them apart"), ".", row.different ? onLikeTasks(row) : smallest);
}

// What follows for tasks that the campaign does not have.
function onLikeTasks(row) {
  if (!known(row.p_like)) return " Fewer than six common tasks: no design of this size can show it for tasks like these.";
  return row.generalises ? ` It holds for tasks like these as well (p = ${pValue(row.p_like)}).` : ` For tasks like these it is not shown (p = ${pValue(row.p_like)}).`;
}

function comparisonFigure(a, b, rows) {
  if (!rows.length) return null;
  const every = [
    { title: "Where", header: true, pin: true, value: (row) => row.place, cell: (row) => row.place },
    { title: "A − B", numeric: true, strong: true, value: (row) => row.difference, cell: (row) => signed(row.difference) },
    { title: `${level()} interval`, tested: true, numeric: true, value: (row) => row.low, cell: (row) => (known(row.low) ? `${signed(row.low)} to ${signed(row.high)}` : DASH) },
    { title: "p", tested: true, numeric: true, value: (row) => row.p, cell: (row) => pValue(row.p), help: "On these tasks, from the variance of runs within cells; corrected for all pairs of agents of the same place" },
    { title: "p, tasks like these", tested: true, numeric: true, value: (row) => row.p_like, cell: (row) => pValue(row.p_like), help: "Signs of task differences flipped for all pairs together; needs six tasks" },
    { title: "Smallest found", tested: true, numeric: true, value: (row) => row.sdd, cell: (row) => percent(row.sdd), help: "Smallest true difference in points that this design finds with 80 % power" },
    { title: "Cells", numeric: true, value: (row) => row.n_cells, cell: (row) => row.n_cells },
    { title: "Verdict", tested: true, value: (row) => Number(row.different), cell: (row) => !row.sufficient ? tag("insufficient for inference", "warn") : row.different ? tag("different", "good") : tag("not told apart") },
  ];
  const tested = rows.some((row) => known(row.p));
  const columns = every.filter((column) => tested || !column.tested);
  const drawn = rows.filter((row) => known(row.difference));
  const summary = drawn.map((row) => `${row.place} ${signed(row.difference)}`).join(", ");
  return figure("Difference by track, A − B", chart("differences", drawn, { label: `Score of ${a} minus score of ${b}: ${summary}`, height: 28 * drawn.length + 50 }), {
    caption: "Headline tiers. To the right A scores more. Filled: told apart on these tasks; open: not told apart, or too few repeats.",
    numbers: table(columns, rows, { label: "Differences by track" }),
  });
}

const EQUAL = 0.0005; // cells that differ by less show the same number; as in `automedbench compare`

// Cell by cell, from the table of cells: who scores more on a task and tier that both have.
function taskComparison(a, b) {
  const cells = new Map();
  for (const row of TABLES.cells) if (row.tier !== "pro" && (row.agent === a || row.agent === b) && known(row.overall)) {
    const key = `${row.task}/${row.tier}`;
    cells.set(key, { task: row.task, tier: row.tier, track: row.track, ...cells.get(key), [row.agent === a ? "a" : "b"]: row });
  }
  const both = [...cells.values()].filter((cell) => cell.a && cell.b).map((cell) => ({ ...cell, difference: cell.a.overall - cell.b.overall }));
  if (!both.length) return null;
  const wins = both.filter((cell) => cell.difference >= EQUAL).length;
  const losses = both.filter((cell) => cell.difference <= -EQUAL).length;
  const ties = both.length - wins - losses;
  const columns = [
    { title: "Task", header: true, pin: true, value: (cell) => TITLES[cell.task], cell: (cell) => [TITLES[cell.task] ?? cell.task, el("small", {}, DATA.tracks[cell.track])] },
    { title: "Tier", value: (cell) => cell.tier, cell: (cell) => cell.tier },
    { title: "A", numeric: true, value: (cell) => cell.a.overall, cell: (cell) => why(cell.a, "overall", percent(cell.a.overall), cell.tier), heat: (cell) => cell.a.overall },
    { title: "B", numeric: true, value: (cell) => cell.b.overall, cell: (cell) => why(cell.b, "overall", percent(cell.b.overall), cell.tier), heat: (cell) => cell.b.overall },
    { title: "A − B", numeric: true, strong: true, value: (cell) => cell.difference, cell: (cell) => signed(cell.difference) },
    { title: "Runs A, B", numeric: true, value: (cell) => cell.a.n_scored + cell.b.n_scored, cell: (cell) => `${cell.a.n_scored}, ${cell.b.n_scored}` },
  ];
  const part = (name, n, text) => n > 0 && el(`span.${name}`, { "--w": `${(100 * n) / both.length}%` }, text);
  return el("div", {}, el("h3", {}, "Task by task"),
    el("p", {}, `Of ${both.length} task-tier cell${both.length === 1 ? "" : "s"} with scores of both, A is ahead in ${wins}, B in ${losses}${ties ? `, and ${ties} are equal` : ""}.`),
    el("div.tally", { role: "img", "aria-label": `A ahead in ${wins}, equal in ${ties}, B ahead in ${losses}` },
      part("a", wins, `A ${wins}`), part("equal", ties, `= ${ties}`), part("b", losses, `B ${losses}`)),
    table(columns, both, { label: "Both agents by task and tier", tall: both.length > 12, sorted: { title: "A − B", down: true } }));
}

onChange("compare", ["compare"], drawComparison);
