// --- agents by track, lite against standard, one agent ---------------------------------------------------------

const HALVES = { overall: "Overall", agentic: "Agentic half", task_score: "Task half" };

function drawTracks() {
  const rows = view(state.tier, "all").filter(isShown);
  const [measure, [low, high]] = [state.score, SPANS[state.score]];
  const place = (title, of, more = {}) => ({
    title, numeric: true, name: true, value: (row) => of(row)?.[measure] ?? null, heat: (row) => of(row)?.[measure] ?? null,
    cell: (row) => placeCell(of(row), measure, low, high), ...more,
  });
  const columns = [
    { title: "Agent", header: true, pin: true, value: (row) => row.agent, cell: (row) => agentLink(row.agent) },
    ...Object.entries(DATA.tracks).map(([track, title]) => {
      const found = new Map(view(state.tier, track).map((row) => [row.agent, row]));
      return place(title, (row) => found.get(row.agent));
    }),
    place("All tracks", (row) => row, { strong: true }),
  ];
  fill("tracks-controls", choice("Score", HALVES, measure, (score) => change({ score })));
  fill("tracks-table", rows.length ? agentTable(columns, rows, `${HALVES[measure]} by agent and track`) : none("Nothing is planned or shown for this choice."),
    el("p.aside", {}, `${DATA.tiers[state.tier] ?? ""}.${rows.some((row) => row.tie) ? " Letters: agents of a track that share one are not told apart." : ""} –: no run scored; empty: not planned.`));
}

function placeCell(row, measure, low, high) {
  if (!row) return "";
  return [
    why(row, measure, percent(row[measure]), state.tier), measure === "overall" && row.tie && el("sup", {}, row.tie), span(row[low], row[high]),
    row.provisional && el("small", { title: "scored of planned runs" }, `${row.n_scored}/${row.n_planned}`),
  ];
}

function drawTiers() {
  const order = view(state.tier, state.track).map((row) => row.agent);
  const rows = TABLES.tiers.filter(placeOf).filter(isShown).sort((a, b) => order.indexOf(a.agent) - order.indexOf(b.agent));
  if (!rows.length) { fill("tiers-table", none("No task has scored runs of an agent in both tiers.")); return; }
  const score = (title, name) => scoreColumn(title, name, { heat: (row) => row[name] });
  const columns = [
    { title: "Agent", header: true, pin: true, value: (row) => row.agent, cell: (row) => agentLink(row.agent) },
    score("Agentic, lite", "agentic_lite"), score("Agentic, standard", "agentic_standard"),
    { title: "Change", numeric: true, strong: true, value: (row) => row.agentic_change, cell: (row) => (known(row.agentic_change) ? `${signed(row.agentic_change)} %` : DASH), help: "Lite against standard, relative" },
    score("Task, lite", "task_lite"), score("Task, standard", "task_standard"),
    score("Overall, lite", "overall_lite"), score("Overall, standard", "overall_standard"),
    { title: "Tasks", numeric: true, value: (row) => row.n_tasks, cell: (row) => row.n_tasks },
    { title: "Runs", numeric: true, value: (row) => row.n_lite + row.n_standard, cell: (row) => `${row.n_lite} + ${row.n_standard}`, help: "Lite and standard" },
  ];
  fill("tiers-table", agentTable(columns, rows, "Lite against standard"),
    el("p.aside", {}, `${trackTitle(state.track)}. Over the tasks that an agent has scored runs of in both tiers. Change: how much more (+) or less (−) of the agentic half it earns when the brief names the method. No test is made of it.`));
}

const ABOUT = { model: "Model", scaffold: "Scaffold", lab: "Lab", access: "Access", weights: "Weights", hardware: "Hardware", date: "Last run" };

function drawAgents() {
  const rows = AGENTS.filter((agent) => isShown({ agent })).map((agent) => ({ agent, ...DATA.about[agent] }));
  const columns = [
    { title: "Agent", header: true, pin: true, value: (row) => row.agent, cell: (row) => agentLink(row.agent) },
    ...Object.entries(ABOUT).map(([name, title]) => ({ title, when: (row) => row[name], value: (row) => row[name], cell: (row) => foreign(row[name] || DASH) })),
    { title: "Settings", value: (row) => Object.keys(DATA.settings[row.agent]?.settings ?? {}).length, cell: (row) => el("button.why", { type: "button", onclick: () => showSettings(row.agent) }, `${Object.keys(DATA.settings[row.agent]?.settings ?? {}).length} settings`) },
  ];
  fill("agents-table", agentTable(columns.filter((column) => !column.when || rows.some(column.when)), rows, "Agents"));
}

function showSettings(agent) {
  change({ agent, go: "agents" });
  document.querySelector("#agent-page details").open = true;
}

function drawAgent() {
  const agent = state.agent;
  if (!agent) { fill("agent-page", none("No agent is planned.")); return; }
  const options = Object.fromEntries(AGENTS.map((name) => [name, visible(name)]));
  fill("agent-controls", picker("Agent", "agent-picker", options, agent, (chosen) => change({ agent: chosen })));
  const { settings, served } = DATA.settings[agent] ?? { settings: {}, served: [] };
  const rank = view(TIERS[0], "all").find((row) => row.agent === agent);
  const rows = TABLES.cells.filter((row) => row.agent === agent);
  const task = { title: "Task", header: true, pin: true, value: (row) => TITLES[row.task], cell: (row) => [TITLES[row.task], el("small", {}, `${DATA.tracks[row.track]} · ${row.tier}`)] };
  const number = { title: "#", numeric: true, value: (row) => (known(row.rank) ? -row.rank : null), csv: (row) => row.rank, cell: rankCell, help: "Rank among the agents on this task and tier" };
  const recorded = Object.entries(settings).map(([name, values]) => [name, values.length > 3 ? `${values.length} values, by run` : values.join(" | ")]);
  fill("agent-page",
    facts([
      ["Model", DATA.about[agent]?.model || DASH],
      served.length && ["Served as", served.join(", ")],
      rank && known(rank.rank) && [DATA.tiers[TIERS[0]], `rank ${rank.rank}, overall ${percent(rank.overall)}, ${rank.n_scored} of ${rank.n_planned} runs scored`],
    ].filter(Boolean)),
    el("details.numbers", {}, el("summary", {}, "Settings in full"), recorded.length ? facts(recorded) : none("Its runs do not tell their settings.")),
    rows.length > 0 && rankingTable("headline", rows, `Tasks of ${agent}`, [task, number]),
    el("p.aside", {}, el("button.why", { type: "button", onclick: () => change({ ...NO_FILTER, "run-agent": agent, go: "runs" }) }, "All its runs")));
}

// --- data sets -------------------------------------------------------------------------------------------------

function drawDataSets() {
  const link = (page) => /^https?:\/\//.test(page) && [el("a", { href: page, rel: "noreferrer noopener" }, page.split("/")[2]), " "];
  const text = (title, name) => ({ title, value: (card) => card[name], cell: (card) => card[name] });
  const times = new Map();
  for (const { task, wall_s } of runs()) {
    const [least, most] = times.get(task) ?? [Infinity, 0];
    times.set(task, [Math.min(least, wall_s), Math.max(most, wall_s)]);
  }
  const columns = [
    { title: "Task", header: true, value: (card) => card.title, cell: (card) => [card.title, el("small", {}, card.id)] },
    text("Modality", "modality"),
    { title: "Description", kind: "wide", cell: (card) => [card.description, el("small", {}, `One case: ${card.unit}`)] },
    { title: "Cases", numeric: true, value: (card) => CASES[card.id], cell: (card) => CASES[card.id] ?? "all" },
    { title: "Time of a run", numeric: true, value: (card) => times.get(card.id)?.[0], cell: (card) => [...new Set(times.get(card.id)?.map(duration) ?? [DASH])].join(" – "), help: "Shortest and longest run of this board" },
    { title: "Data set", value: (card) => card.dataset, cell: (card) => [card.dataset, el("small", {}, card.attribution), card.homepages.map(link)] },
    text("Licence", "licence"), text("Access", "access"),
  ];
  fill("data-sets-table", table(columns, DATA.cards, { label: "Data sets by task", page: TOP }));
}

const LIMITS = {
  time_limit_s: duration, max_turns: (n) => `${n} turns`, exec_timeout_s: (s) => `${duration(s)} a call`, max_total_tokens: (n) => `${count(n)} tokens`,
  max_cost_usd: money, mem_gb: (n) => `${n} GB of memory`, disk_gb: (n) => `${n} GB of disk`, max_processes: (n) => `${n} processes`,
};

function drawRules() {
  const limits = (card) => Object.entries(LIMITS).filter(([name]) => known(card.limits[name])).map(([name, text]) => text(card.limits[name])).join(", ");
  const lines = (texts) => texts.map((text) => el("div", {}, text));
  fill("rules-table", table([
    { title: "Task", header: true, value: (card) => card.title, cell: (card) => card.title },
    { title: "Lite: the given model", cell: (card) => card.lite_model || DASH },
    { title: "Standard: candidates", kind: "wide", cell: (card) => lines(card.candidates) },
    { title: "Outputs", kind: "wide", cell: (card) => lines(card.outputs) },
    { title: "Metric", cell: (card) => lines(card.metric) },
    { title: "Limits", kind: "wide", cell: limits, help: "As the card says; a run's page has those that were kept" },
  ], DATA.cards, { label: "Rules by task", page: TOP }));
}

// Theirs: of the public benchmark, not of this board.
function drawPublished() {
  const { heads, agents } = DATA.published;
  const columns = [
    { title: "Agent", header: true, value: ([agent]) => agent, cell: ([agent]) => agent },
    ...heads.map((title, i) => ({ title, numeric: true, value: ([, scores]) => scores[i], cell: ([, scores]) => number(scores[i]) })),
  ];
  fill("published-table", table(columns, Object.entries(agents), { label: "Published numbers, theirs" }));
}

onChange("tracks", ["tier", "hide", "rows", "score"], drawTracks);
onChange("tracks", SCORE_KEYS, drawTiers);
onChange("agents", ["hide", "rows"], drawAgents);
onChange("agents", ["agent"], drawAgent);
onChange("data-sets", [], drawDataSets);
onChange("rules", [], drawRules);
onChange("published", [], drawPublished);
