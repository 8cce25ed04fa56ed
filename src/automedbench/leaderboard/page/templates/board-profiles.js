// --- stage profiles --------------------------------------------------------------------------------------------

// Means of stages: with intervals where the headline is shown, else those of the ranking.
function stageRows() {
  if (isHeadline()) {
    const order = view("headline", state.track).map((row) => row.agent);
    const first = new Set(top(order.filter((agent) => isShown({ agent }))));
    return TABLES.stages.filter(placeOf).filter((row) => first.has(row.agent)).sort((a, b) => order.indexOf(a.agent) - order.indexOf(b.agent));
  }
  return top(view(state.tier, state.track).filter(isShown)).flatMap((row) => STAGES.map((stage) => ({
    agent: row.agent, stage, mean: row[stage.toLowerCase()], low: null, high: null, n_scored: row.n_scored, n_planned: row.n_planned,
  })));
}

function drawProfiles() {
  drawScope("profiles");
  const rows = stageRows().filter((row) => known(row.mean));
  if (!rows.length) { fill("profile", none("No run of this choice is scored yet.")); fill("radars"); fill("radar-controls"); return; }
  const names = [...new Set(rows.map((row) => row.agent))];
  const spread = rows.some((row) => known(row.judge_spread));
  const columns = [
    { title: "Agent", header: true, pin: true, value: (row) => row.agent, cell: (row) => foreign(row.agent) },
    { title: "Stage", value: (row) => row.stage, cell: (row) => `${row.stage} ${DATA.stages[row.stage]}` },
    { title: "Mean", numeric: true, strong: true, value: (row) => row.mean, cell: (row) => percent(row.mean), heat: (row) => row.mean },
    ...(rows.some((row) => known(row.low)) ? [{ title: `${level()} interval`, numeric: true, value: (row) => row.low, cell: (row) => (known(row.low) ? `${percent(row.low)}–${percent(row.high)}` : DASH) }] : []),
    { title: "Runs", numeric: true, value: (row) => row.n_scored, cell: (row) => `${row.n_scored} / ${row.n_planned}` },
    ...(spread ? [{ title: "Spread of judges", numeric: true, value: (row) => row.judge_spread, cell: (row) => percent(row.judge_spread), help: "Mean over runs of the standard deviation between judgements" }] : []),
  ];
  const best = STAGES.map((stage) => {
    const ordered = rows.filter((row) => row.stage === stage).sort((a, b) => b.mean - a.mean);
    return `${stage}: ${ordered.map((row) => `${row.agent} ${percent(row.mean)}`).join(", ")}`;
  });
  fill("profile", figure("Mean score of each stage", chart("profile", rows, { names, label: `Stage scores. ${best.join(". ")}`, height: 360 }), {
    caption: `Agents stand in the order of the legend.${rows.some((row) => known(row.low)) ? ` Whiskers: ${level()} interval.` : " No intervals for this choice."} S1 to S3 are judged, S4 and S5 computed.`,
    numbers: table(columns, rows, { label: "Stage scores", tall: rows.length > 20 }), files: "stages",
  }));
  drawRadars(names);
}

function drawRadars(names) {
  const tracks = Object.keys(DATA.tracks);
  const kinds = { stages: "Stages", ...(tracks.length > 2 && { tracks: "Tracks" }) };
  const kind = kinds[state.radar] ? state.radar : "stages";
  fill("radar-controls", el("h3", {}, "One agent at a time"), Object.keys(kinds).length > 1 && choice("Axes", kinds, kind, (radar) => change({ radar })));
  const of = kind === "stages" ? stageValues : trackValues;
  const all = AGENTS.filter((agent) => isShown({ agent }));
  const axes = kind === "stages" ? STAGES : tracks;
  const mean = axes.map((axis) => average(all.map((agent) => of(agent, axis)).filter(known)));
  fill("radars", names.map((agent) => {
    const rows = axes.map((axis, i) => ({ axis: kind === "stages" ? axis : DATA.short[axis] ?? axis, value: of(agent, axis), reference: mean[i] }));
    const label = `${agent}: ${rows.map((row) => `${row.axis} ${percent(row.value)}`).join(", ")}`;
    return el("figure", {}, el("h4.foreign", { title: agent }, middle(agent, 24)), chart("radar", rows, { label, names: [], height: 220 }));
  }), el("p.aside.below", {}, "Rings at 25, 50, 75 and 100; dashed: mean of the agents shown. Read corners, not areas: an area depends on the order of the axes."));
}

const average = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
const stageValues = (agent, stage) => view(state.tier, state.track).find((row) => row.agent === agent)?.[stage.toLowerCase()] ?? null;
const trackValues = (agent, track) => view(state.tier, track).find((row) => row.agent === agent)?.overall ?? null;

// --- cost and score --------------------------------------------------------------------------------------------

const TAKES = {
  cost: ["Cost", "mean_cost_usd", "Mean cost per run in USD, logarithmic", money, "$~g"],
  tokens: ["Tokens", "mean_tokens", "Mean tokens per run, logarithmic", count, "~s"],
  time: ["Time", "mean_wall_s", "Mean seconds per run, logarithmic", duration, "~g"],
  turns: ["Turns", "mean_turns", "Mean turns per run, logarithmic", number, "~g"],
};

function drawFrontier() {
  drawScope("frontier");
  const every = view(state.tier, state.track).filter(isShown).filter((row) => known(row.overall));
  const some = (x) => every.some((row) => Number(row[TAKES[x][1]]) > 0);
  // Without any price the page does not begin with an empty chart.
  const x = state.x === DEFAULTS.x && !some(state.x) ? Object.keys(TAKES).find(some) ?? state.x : state.x;
  const [title, name, axis, format, tick] = TAKES[x];
  fill("frontier-controls",
    choice("What a run takes", Object.fromEntries(Object.entries(TAKES).map(([key, [label]]) => [key, label])), x, (chosen) => change({ x: chosen })),
    x !== state.x && el("span.aside", {}, "No agent has a known cost above zero."));
  const rows = every.map((row) => ({ ...row, resource: known(row[name]) ? Number(row[name]) : null, resource_text: format(row[name]) }));
  const placed = rows.filter((row) => row.resource > 0);
  const left = rows.filter((row) => !(row.resource > 0));
  const missing = left.length > 0 && el("p.aside", {}, `Not on the logarithmic axis (unknown or zero ${title.toLowerCase()}): ${left.map((row) => `${visible(row.agent)} ${percent(row.overall)}`).join(", ")}.`);
  if (!placed.length) { fill("frontier-chart", none(`No agent has a known ${title.toLowerCase()} above zero in this choice.`), missing); return; }
  const best = frontierOf(placed);
  const columns = [
    { title: "Agent", header: true, value: (row) => row.agent, cell: (row) => foreign(row.agent) },
    { title, numeric: true, value: (row) => row.resource, cell: (row) => row.resource_text },
    { title: "Overall", numeric: true, value: (row) => row.overall, cell: (row) => percent(row.overall) },
    { title: "On the frontier", value: (row) => Number(best.has(row.agent)), cell: (row) => (best.has(row.agent) ? "✓ yes" : "no") },
  ];
  fill("frontier-chart", figure("", chart("frontier", placed, {
    names: placed.map((row) => row.agent), height: 380, tokens: { resource: axis, "resource-format": tick },
    label: `Overall score against ${title.toLowerCase()}; on the frontier: ${[...best].join(", ")}`,
  }), {
    caption: `The dashed line joins the frontier: agents that no other beats with as little or less; one all of whose runs are disqualified is never on it.${placed.some((row) => known(row.overall_low)) ? " Vertical lines: intervals." : ""} The score axis need not begin at 0.`,
    numbers: table(columns, placed, { label: "Resource and score" }), files: x === "cost" && "frontier",
  }), missing);
}

// The same rule as in the chart: running maximum of the score in order of the resource.
function frontierOf(rows) {
  const found = new Set();
  let best = -1;
  for (const row of [...rows].sort((a, b) => a.resource - b.resource || b.overall - a.overall))
    if (row.overall > best && row.n_disqualified < row.n_scored) { best = row.overall; found.add(row.agent); }
  return found;
}

onChange("profiles", [...SCORE_KEYS, "radar"], drawProfiles);
onChange("frontier", [...SCORE_KEYS, "x"], drawFrontier);
