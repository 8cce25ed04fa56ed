// --- tasks -----------------------------------------------------------------------------------------------------

const BY_TASK = new Map(DATA.tasks.map((task) => [task.id, { headline: [], cells: [] }]));
TABLES.tasks.forEach((row) => BY_TASK.get(row.task)?.headline.push(row));
TABLES.cells.forEach((row) => BY_TASK.get(row.task)?.cells.push(row));

const rowsOfTask = (task, tier) => {
  const found = BY_TASK.get(task);
  if (!found) return [];
  return tier === "headline" ? found.headline : found.cells.filter((row) => row.tier === tier);
};

// Published results on the same data set; no score depends on them.
const referenceTitle = ({ who, metric, differs, origin }) => `${who}: ${metric} (${origin}). ${differs ? `Not directly comparable: ${differs}.` : "The task's metric and cases."}`;
const referenceText = ({ kind, value }) => `${kind} ${percent(value)}`;
const REFERENCES = {
  title: "Human or challenge (metric)", numeric: true, value: ({ references }) => references[0]?.value ?? null, csv: ({ references }) => references.map(referenceText).join("; "),
  cell: ({ references }) => references.map((found) => el("div", { title: referenceTitle(found) }, referenceText(found), found.differs && el("small", {}, found.differs))),
  help: "Published on the same data set, in the metric that the title of a number names: not an overall score, and part of none",
};

function referenceBands(task) {
  const { references } = DATA.tasks.find(({ id }) => id === task);
  return references.length > 0 && [
    el("p.aside", {}, "Published on the same data set, in its own metric; never part of a score:"),
    references.map((found) => el("p.band", { "--v": `${100 * found.value}%` }, referenceText(found), el("small", {}, referenceTitle(found)))),
  ];
}

function drawTask() {
  if (!state.task) { fill("task-table", none("Nothing is planned.")); return; }
  const titles = Object.fromEntries(DATA.tasks.map((task) => [task.id, `${task.title} (${DATA.tracks[task.track]})`]));
  fill("task-controls",
    picker("Task", "task-picker", titles, state.task, (task) => change({ task })),
    picker("Tier", "tier-picker", DATA.tiers, state.at, (at) => change({ at })));
  const rows = rowsOfTask(state.task, state.at).filter(isShown);
  const tiers = tierOf(state.at);
  const link = el("a", { href: hrefOf({ ...NO_FILTER, "run-task": state.task, "run-tier": tiers.length === 1 ? tiers[0] : "", go: "runs" }) }, "Runs of this task");
  fill("task-table",
    rows.length ? rankingTable(state.at, rows, `Ranking on ${TITLES[state.task]}`) : none("Nothing of this task is planned or shown in this tier."),
    referenceBands(state.task),
    el("p.aside", {}, link, " · ", el("a", { href: `beside.html#${new URLSearchParams({ task: state.task, tier: tiers[0] ?? "" })}` }, "Its cases, of all agents")));
}

function drawMatrix() {
  const agents = top(AGENTS.filter((agent) => isShown({ agent })));
  const table_of = new Map(DATA.tasks.map((task) => [task.id, new Map(rowsOfTask(task.id, state.at).map((row) => [row.agent, row]))]));
  const name = (task) => el("button.head", { type: "button", title: "Show this task's table", onclick: () => change({ task: task.id, go: "tasks" }) }, task.title);
  const columns = [
    { title: "Task", header: true, pin: true, value: (task) => task.title, cell: (task) => [name(task), el("small", {}, DATA.tracks[task.track])] },
    ...(DATA.tasks.some(({ references }) => references.length) ? [REFERENCES] : []),
    ...agents.map((agent) => {
      const of = (task) => table_of.get(task.id).get(agent);
      const value = (task) => of(task)?.overall ?? null;
      return { title: middle(agent, 24), numeric: true, name: true, heat: value, value, cell: (task) => matrixCell(of(task)) };
    }),
  ];
  const tasks = state.track === "all" ? DATA.tasks : DATA.tasks.filter((task) => task.track === state.track);
  const covered = coverage(tasks, agents, table_of);
  fill("matrix",
    el("p.aside", {}, `Overall score by task and agent, ${DATA.tiers[state.at]}${state.track === "all" ? "" : `, ${trackTitle(state.track)}`}; the stronger the colour, the higher. ${covered} Below a number: n of N runs, where not all are scored. –: no run scored; empty: not planned.`),
    table(columns, tasks, { label: "Overall score by task and agent", tall: tasks.length > 12, more: moreButton(AGENTS.length) }),
    DATA.exported.includes("tasks") && el("p.aside", {}, "For papers: ", el("a", { href: "charts/tasks.svg" }, "SVG"), " · ", el("a", { href: "charts/tasks.png" }, "PNG")));
}

function matrixCell(row) {
  if (!row) return "";
  const partial = row.provisional && el("small", { title: "scored of planned runs" }, `${row.n_scored}/${row.n_planned}`);
  return [why(row, "overall", percent(row.overall), state.at), partial];
}

function coverage(tasks, agents, table_of) {
  const rows = tasks.flatMap((task) => agents.map((agent) => table_of.get(task.id).get(agent))).filter(Boolean);
  const full = rows.filter((row) => !row.provisional).length;
  return `Coverage: ${full} of ${tasks.length * agents.length} fields complete.`;
}

onChange("tasks", ["task", "at", "hide", "k"], drawTask);
onChange("tasks", ["at", "hide", "track", "rows"], drawMatrix);
