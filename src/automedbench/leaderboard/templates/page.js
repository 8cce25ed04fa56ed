"use strict";
// The leaderboard page. All data comes from JSON script elements; all text enters the document as text nodes.
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const STAGES = ["s1", "s2", "s3", "s4", "s5"];
  const LONG = 24; // lines; longer code and output start collapsed

  const records = (table) => table.rows.map((row) => Object.fromEntries(table.columns.map((name, i) => [name, row[i]])));
  const RUNS = records(DATA.runs);
  const CELLS = records(DATA.cells);
  const TASK_ROWS = records(DATA.task_rows);
  const TITLES = Object.fromEntries(DATA.tasks.map((task) => [task.id, task.title]));
  const runPath = (run) => `${run.agent}/${run.task}/${run.tier}/r${run.repeat}`;

  const state = {
    tier: Object.keys(DATA.tiers)[0],
    track: "all",
    hidden: new Set(),
    task: DATA.tasks[0]?.id,
    taskTier: Object.keys(DATA.tiers)[0],
  };

  // --- text and elements -------------------------------------------------------------------------------------

  // Characters that would vanish or reorder text (controls, bidi marks, zero-width, tags) are shown instead.
  const HIDDEN =
    /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
  const shown = (char) =>
    char === "\u001b" ? "⟨ESC⟩" : `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
  const visible = (text) => String(text).replace(/\r\n?/g, "\n").replace(HIDDEN, shown);

  function el(tag, attributes = {}, ...children) {
    const [name, ...classes] = tag.split(".");
    const element = document.createElement(name);
    if (classes.length) element.className = classes.join(" ");
    for (const [key, value] of Object.entries(attributes)) {
      if (value === undefined || value === null || value === false) continue;
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (key.startsWith("--")) element.style.setProperty(key, value);
      else element.setAttribute(key, value === true ? "" : visible(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child === undefined || child === null || child === false) continue;
      element.append(child instanceof Node ? child : document.createTextNode(visible(child)));
    }
    return element;
  }

  const fill = (id, ...children) => document.getElementById(id).replaceChildren(...children.flat(Infinity).filter(Boolean));
  const foreign = (text) => el("span.foreign", {}, text);
  const tag = (text, kind = "", title) => el(`span.tag${kind && `.${kind}`}`, { title }, text);

  // --- numbers -----------------------------------------------------------------------------------------------

  const DASH = "–";
  const known = (value) => value !== null && value !== undefined;
  const percent = (value) => (known(value) ? (100 * value).toFixed(1) : DASH);
  const share = (value) => (known(value) ? `${(100 * value).toFixed(0)} %` : DASH);
  const number = (value) => (known(value) ? value.toFixed(1) : DASH);
  const metric = (value) => (known(value) ? (Number.isInteger(value) ? String(value) : value.toFixed(4)) : DASH);

  function duration(seconds) {
    if (!known(seconds)) return DASH;
    if (seconds < 60) return `${seconds.toFixed(1)} s`;
    return seconds < 3600 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
  }

  function count(value) {
    if (!known(value)) return DASH;
    for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (value >= limit) return `${Number((value / limit).toPrecision(3))} ${unit}`;
    return value.toFixed(0);
  }

  function money(value) {
    if (!known(value)) return DASH;
    const dollars = Number(value);
    return dollars === 0 || dollars >= 0.1 ? `$${dollars.toFixed(2)}` : `$${dollars.toFixed(4)}`;
  }

  // --- tables ------------------------------------------------------------------------------------------------

  // A column: title, cell(row) → text or element, value(row) → what sorting compares; numeric and heat are optional.
  function table(columns, rows, { label, tall = false, sortable = true } = {}) {
    const body = el("tbody");
    const draw = (sorted) => body.replaceChildren(...sorted.map((row) => tableRow(columns, row)));
    const heads = columns.map((column) => {
      const head = sortable && column.value ? sortHead(column, () => sortBy(column)) : column.title;
      const kind = [column.numeric && "num", column.pin && "pin", column.name && "name"];
      return el(["th", ...kind.filter(Boolean)].join("."), { scope: "col", title: column.help }, head);
    });
    function sortBy(column) {
      const button = heads[columns.indexOf(column)].firstChild;
      const down = button.dataset.sorted !== "descending";
      heads.forEach((head) => head.firstChild.dataset && delete head.firstChild.dataset.sorted);
      button.dataset.sorted = down ? "descending" : "ascending";
      draw(sortedRows(rows, column.value, down));
    }
    draw(rows);
    const inner = el("table", {}, el("thead", {}, el("tr", {}, heads)), body);
    return el(tall ? "div.scroll.tall" : "div.scroll", { role: "region", "aria-label": label, tabindex: 0 }, inner);
  }

  const sortHead = (column, sort) =>
    el("button.head", { type: "button", onclick: sort, title: column.help ?? `Sort by ${column.title}` }, column.title);

  function sortedRows(rows, value, down) {
    const order = down ? -1 : 1;
    const compare = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
    const keyed = rows.map((row) => [value(row), row]);
    keyed.sort(([a], [b]) => (known(a) && known(b) ? order * compare(a, b) : known(b) - known(a)));
    return keyed.map(([, row]) => row);
  }

  function tableRow(columns, row) {
    const cells = columns.map((column) => {
      const content = column.cell(row);
      if (column.header) return el("th", { scope: "row" }, content);
      const heat = column.heat && known(column.heat(row)) ? column.heat(row) : undefined;
      const kind = [column.kind, column.numeric && "num", column.strong && "strong", known(heat) && "heat"];
      return el(["td", ...kind.filter(Boolean)].join("."), { "--v": heat }, content);
    });
    return el("tr", {}, cells);
  }

  const scoreColumn = (title, name, more = {}) => ({
    title, numeric: true, value: (row) => row[name], cell: (row) => percent(row[name]), ...more,
  });
  const stageColumns = STAGES.map((name) =>
    scoreColumn(name.toUpperCase(), name, { heat: (row) => row[name], help: DATA.stages[name.toUpperCase()] }));

  // --- pickers -----------------------------------------------------------------------------------------------

  function choice(label, options, current, choose) {
    const chips = Object.entries(options).map(([key, title]) =>
      el("button.chip", { type: "button", "aria-pressed": String(key === current), onclick: () => choose(key) }, title));
    return el("div.control", { role: "group", "aria-label": label }, el("span", {}, label), chips);
  }

  function picker(label, id, options, current, choose) {
    const select = el("select", { id, onchange: (event) => choose(event.target.value) },
      Object.entries(options).map(([key, title]) => el("option", { value: key, selected: key === current }, title)));
    return el("div.control", {}, el("label", { for: id }, label), select);
  }

  function agentChips() {
    const toggle = (agent) => {
      state.hidden.has(agent) ? state.hidden.delete(agent) : state.hidden.add(agent);
      drawBoard();
    };
    const chips = DATA.agents.map((agent) =>
      el("button.chip.agent", {
        type: "button", "data-agent": agent, "aria-pressed": String(!state.hidden.has(agent)), onclick: () => toggle(agent),
      }, agent));
    return el("div.control", { role: "group", "aria-label": "Agents" }, el("span", {}, "Agents"), chips);
  }

  const isShown = (row) => !state.hidden.has(row.agent);

  // --- ranking -----------------------------------------------------------------------------------------------

  function drawBoard() {
    keepFocus(() => {
      drawControls();
      const rows = records(DATA.views[state.tier][state.track] ?? { columns: [], rows: [] }).filter(isShown);
      fill("bars", rows.length ? bars(rows) : el("p.aside", {}, "Nothing is planned or shown for this choice."));
      fill("ranking-table", rows.length && rankingTable(rows));
      fill("resources", resources(rows));
      drawTask();
      drawCriteria();
    });
  }

  // Redrawn controls get the focus back, so that a keyboard user stays where they were.
  function keepFocus(draw) {
    const place = document.activeElement?.closest(".control");
    const group = place && [...document.querySelectorAll(".control")].indexOf(place);
    const item = place && [...place.querySelectorAll("button, select")].indexOf(document.activeElement);
    draw();
    if (place) document.querySelectorAll(".control")[group]?.querySelectorAll("button, select")[item]?.focus();
  }

  function drawControls() {
    const tracks = { all: "All", ...DATA.tracks };
    fill("ranking-controls",
      choice("Tiers", DATA.tiers, state.tier, (key) => { state.tier = key; drawBoard(); }),
      Object.keys(DATA.tracks).length > 1 &&
        choice("Track", tracks, state.track, (key) => { state.track = key; drawBoard(); }),
      agentChips());
    const parts = [state.track !== "all" && `track ${DATA.tracks[state.track]} only`, state.tier !== "headline" && `${DATA.tiers[state.tier]} tier only`];
    const narrowed = parts.filter(Boolean).join(", ");
    document.getElementById("ranking-note").textContent = narrowed ? `A part of the campaign, not the headline: ${narrowed}.` : "";
  }

  function bars(rows) {
    const axis = [0, 20, 40, 60, 80, 100].map((value) => el("span", { "--from": `${value}%` }, value));
    return [...rows.map(barRow), el("div.bar-row.axis-row", {}, el("span"), el("div.axis", { "aria-hidden": true }, axis), el("span"))];
  }

  function barRow(row) {
    const name = el("div.bar-name", {}, foreign(row.agent), row.provisional && el("small", {}, `provisional: ${row.n_scored} of ${row.n_planned}`));
    if (!known(row.overall)) return el("div.bar-row", {}, name, el("div.bar"), el("div.bar-value", {}, DASH));
    const said = `Overall ${percent(row.overall)}: agentic ${percent(row.agentic)}, task ${percent(row.task_score)}`;
    const half = (kind, value, label) => el(`div.seg.${kind}`, { "--w": `${50 * value}%`, title: `${label} ${percent(value)}` }, value > 0.14 && percent(value));
    const bar = el("div.bar", { role: "img", "aria-label": said }, half("agentic", row.agentic, "Agentic"), half("task", row.task_score, "Task"), whisker(row));
    return el("div.bar-row", {}, name, bar, el("div.bar-value", {}, percent(row.overall), deviation(row)));
  }

  function whisker(row) {
    if (!known(row.overall_sd) || row.overall_sd < 0.0005) return null;
    const from = Math.max(0, row.overall - row.overall_sd);
    const to = Math.min(1, row.overall + row.overall_sd);
    return el("div.whisker", { "--from": `${100 * from}%`, "--w": `${100 * (to - from)}%` });
  }

  const deviation = (row) =>
    known(row.overall_sd) &&
    el("small", { title: `standard deviation over ${row.sd_repeats} repeats` }, ` ±${percent(row.overall_sd)}`);

  function rowColumns() {
    return [
      { title: "#", numeric: true, cell: (row) => (known(row.rank) ? row.rank : DASH), value: (row) => known(row.rank) ? -row.rank : null, help: "Rank" },
      { title: "Agent", header: true, pin: true, value: (row) => row.agent, cell: (row) => [foreign(row.agent), DATA.models[row.agent] && DATA.models[row.agent] !== row.agent && el("small.foreign", {}, DATA.models[row.agent])] },
      scoreColumn("Overall", "overall", { strong: true, cell: (row) => [percent(row.overall), deviation(row)] }),
      scoreColumn("Agentic", "agentic"),
      scoreColumn("Task", "task_score"),
      ...stageColumns,
      { title: "Failed", numeric: true, value: (row) => row.failure_rate, cell: (row) => share(row.failure_rate), help: "Failure rate: runs without a complete final submission" },
      { title: "Turns", numeric: true, value: (row) => row.mean_turns, cell: (row) => number(row.mean_turns), help: "Mean number of replies per run" },
      { title: "Time", numeric: true, value: (row) => row.mean_wall_s, cell: (row) => duration(row.mean_wall_s), help: "Mean wall clock per run" },
      { title: "Tokens", numeric: true, value: (row) => row.mean_tokens, cell: (row) => count(row.mean_tokens), help: "Mean prompt and completion tokens per run" },
      { title: "Cost", numeric: true, value: (row) => (known(row.mean_cost_usd) ? Number(row.mean_cost_usd) : null), cell: costCell, help: "Mean cost in USD over the runs with a known price" },
      { title: "Runs", numeric: true, value: (row) => row.n_scored, cell: (row) => `${row.n_scored} / ${row.n_planned}`, help: "Scored of planned runs" },
      { title: "Notes", kind: "notes", cell: noteTags },
    ];
  }

  function costCell(row) {
    const partly = row.n_priced > 0 && row.n_priced < row.n_scored;
    return [money(row.mean_cost_usd), partly && el("small", {}, `over ${row.n_priced} runs`)];
  }

  function noteTags(row) {
    return [
      row.n_disqualified > 0 && tag(`⊘ ${row.n_disqualified} disqualified`, "bad"),
      row.provisional && tag("provisional", "warn"),
      row.mixed && tag(`mixed: ${row.mixed}`, "warn", "Runs of this row were not made under the same conditions"),
      row.sandbox && tag(row.sandbox, "", "Sandbox and network class"),
      row.judge && tag(`${row.judge.replace(/ \([^)]*\)/g, "")} judge`, "", `S1 to S3 judged by: ${row.judge}`),
    ];
  }

  const rankingTable = (rows) => table(rowColumns(), rows, { label: "Ranking of agents" });

  function resources(rows) {
    const charts = [
      ["Failure rate", (row) => row.failure_rate, share],
      ["Average turns", (row) => row.mean_turns, number],
      ["Average time", (row) => row.mean_wall_s, duration],
      ["Average tokens", (row) => row.mean_tokens, count],
      ["Average cost", (row) => (known(row.mean_cost_usd) ? Number(row.mean_cost_usd) : null), money],
    ];
    return charts.map(([title, value, format]) => {
      const top = title === "Failure rate" ? 1 : Math.max(...rows.map((row) => value(row) ?? 0)) || 1;
      const line = (row) =>
        el("div.mini", {}, el("div", { title: row.agent }, foreign(row.agent), el("span", {}, format(value(row)))),
          el("i", { "--w": `${(100 * (value(row) ?? 0)) / top}%` }));
      return el("div.card", {}, el("h4", {}, title), rows.map(line));
    });
  }

  // --- tasks -------------------------------------------------------------------------------------------------

  const taskRows = (task, tier) =>
    (tier === "headline" ? TASK_ROWS : CELLS.filter((row) => row.tier === tier)).filter((row) => row.task === task);

  function drawTask() {
    if (!state.task) return;
    const setTask = (task) => { state.task = task; drawBoard(); };
    const titles = Object.fromEntries(DATA.tasks.map((task) => [task.id, `${task.title} (${DATA.tracks[task.track]})`]));
    fill("matrix", DATA.tasks.length > 1 && matrix(setTask));
    fill("task-controls",
      picker("Task", "task-picker", titles, state.task, setTask),
      picker("Tier", "tier-picker", DATA.tiers, state.taskTier, (tier) => { state.taskTier = tier; drawBoard(); }));
    const rows = taskRows(state.task, state.taskTier).filter(isShown);
    fill("task-table", table(rowColumns(), rows, { label: `Ranking on ${TITLES[state.task]}` }));
    fill("run-table", runTable());
  }

  function matrix(setTask) {
    const agents = DATA.agents.filter((agent) => !state.hidden.has(agent));
    const byTask = new Map(DATA.tasks.map((task) => [task.id, {}]));
    const source = state.taskTier === "headline" ? TASK_ROWS : CELLS.filter((row) => row.tier === state.taskTier);
    source.forEach((row) => { byTask.get(row.task)[row.agent] = row; });
    const name = (task) => el("button.head", { type: "button", onclick: () => setTask(task.id) }, task.title);
    const columns = [
      { title: "Task", header: true, pin: true, value: (task) => task.title, cell: (task) => [name(task), el("small", {}, DATA.tracks[task.track])] },
      ...agents.map((agent) => {
        const value = (task) => byTask.get(task.id)[agent]?.overall ?? null;
        const partial = (task) => byTask.get(task.id)[agent]?.provisional && known(value(task));
        return { title: agent, numeric: true, name: true, heat: value, value, cell: (task) => [percent(value(task)), partial(task) && "*"] };
      }),
    ];
    const note = el("p.aside", {}, `Overall score by task, ${DATA.tiers[state.taskTier]}. Select a task to see its table below. * not all runs scored.`);
    return [note, table(columns, DATA.tasks, { label: "Overall score by task and agent", tall: DATA.tasks.length > 12 })];
  }

  function runTable() {
    const tiers = state.taskTier === "headline" ? ["lite", "standard"] : [state.taskTier];
    const rows = RUNS.filter((run) => run.task === state.task && tiers.includes(run.tier) && isShown(run));
    if (!rows.length) return el("p.aside", {}, "No run of this choice is scored yet.");
    const columns = [
      { title: "Run", header: true, pin: true, value: runPath, cell: (run) => el("a", { href: runLink(runPath(run)) }, foreign(run.agent), `\u00a0· r${run.repeat}`) },
      { title: "Tier", value: (run) => run.tier, cell: (run) => run.tier },
      { title: "Outcome", value: (run) => run.outcome, cell: outcomeTags },
      scoreColumn("Overall", "overall", { strong: true }),
      scoreColumn("Agentic", "agentic"),
      scoreColumn("Task", "task_score"),
      ...stageColumns,
      { title: "Medal", value: (run) => run.medal, cell: (run) => run.medal },
      { title: "Turns", numeric: true, value: (run) => run.turns, cell: (run) => run.turns },
      { title: "Time", numeric: true, value: (run) => run.wall_s, cell: (run) => duration(run.wall_s) },
      { title: "Tokens", numeric: true, value: (run) => run.tokens_total, cell: (run) => count(run.tokens_total) },
      { title: "Cost", numeric: true, value: (run) => (known(run.cost_usd) ? Number(run.cost_usd) : null), cell: (run) => money(run.cost_usd) },
    ];
    return table(columns, rows, { label: "Runs", tall: rows.length > 14 });
  }

  function outcomeTags(run) {
    if (run.disqualified) return tag("⊘ disqualified", "bad");
    const outcome = DATA.outcomes[run.outcome] ?? run.outcome;
    return run.failed ? [tag("✕ failed", "bad"), run.outcome !== "submitted" && tag(outcome)] : tag(`✓ ${outcome}`, "good");
  }

  // --- stages ------------------------------------------------------------------------------------------------

  function showStage(id) {
    for (const button of document.querySelectorAll(".stage")) {
      const open = button.dataset.stage === id && button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(open));
      document.getElementById(`stage-${button.dataset.stage}`).hidden = !open;
    }
  }

  // Wording belongs to a track: that of the ranking, else that of the chosen task.
  function drawCriteria() {
    const track = state.track !== "all" ? state.track : DATA.tasks.find((task) => task.id === state.task)?.track;
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

  // --- one run -----------------------------------------------------------------------------------------------

  const runLink = (path, turn) => `#${new URLSearchParams({ run: path, ...(known(turn) && { turn }) })}`;
  const turnLink = (detail, turn) => known(turn) && el("a", { href: runLink(runPath(detail.score.run), turn) }, `turn ${turn}`);
  const fileLink = (detail, name) => el("a", { href: [...detail.folder.split("/"), name].map(encodeURIComponent).join("/") }, name);

  function drawRun(path) {
    const source = document.getElementById(`run:${path}`);
    if (!source) {
      fill("run", backLink(), el("h2.run-title", {}, "No such run"), el("p", {}, "It is not scored, or not part of this campaign: ", foreign(path)));
      return;
    }
    const detail = JSON.parse(source.textContent);
    fill("run", runHead(detail), runScores(detail), findings(detail), judgement(detail), errorCodes(detail), cases(detail), groups(detail), transcript(detail), provenance(detail));
  }

  const backLink = () => el("a", { href: "#tasks" }, "← Leaderboard");

  function runHead(detail) {
    const { run, score } = detail;
    const { agent, task, tier, repeat } = score.run;
    const siblings = RUNS.filter((other) => other.agent === agent && other.task === task && other.tier === tier);
    const links = siblings.map((other) => other.repeat === repeat ? el("b", {}, ` r${other.repeat}`) : [" ", el("a", { href: runLink(runPath(other)) }, `r${other.repeat}`)]);
    return [
      el("div.crumbs", {}, backLink(), siblings.length > 1 && el("span", {}, "Repeats:", links)),
      el("h2.run-title", {}, foreign(agent), ` on ${TITLES[task] ?? task}`, el("small", {}, `${tier} tier · repeat ${repeat} · model `, foreign(score.model || DASH))),
      outcomeNotice(detail),
      run?.summary && el("p", {}, "The agent's summary: ", el("q.foreign", {}, run.summary)),
      detail.notes.length > 0 && el("div.notice", {}, el("b", {}, "Not everything is on this page:"), el("ul", {}, detail.notes.map((note) => el("li", {}, foreign(note))))),
    ];
  }

  function outcomeNotice({ score, run, audit }) {
    const text = [DATA.outcomes[score.outcome] ?? score.outcome, run?.detail].filter(Boolean).join(": ");
    if (score.disqualified) return el("p.notice.bad", {}, el("b", {}, "⊘ Disqualified. "), "Every score is 0. ", foreign(audit?.reason ?? text));
    if (score.failed) return el("p.notice.bad", {}, el("b", {}, "✕ Failed: no complete final submission. "), foreign(text));
    return el("p", {}, tag(`✓ ${DATA.outcomes[score.outcome] ?? score.outcome}`, "good"), " ", foreign(run?.detail ?? ""));
  }

  function runScores(detail) {
    const { score } = detail;
    const tile = (title, value, kind = "") => el(`div.tile${kind && `.${kind}`}`, {}, title, el("b", {}, percent(value)), el("i", { "--w": `${100 * value}%` }));
    const stages = STAGES.map((name) => tile(`${name.toUpperCase()} ${DATA.stages[name.toUpperCase()]}`, score.scores[name]));
    return [
      el("div.tiles", {}, tile("Overall", score.scores.overall), tile("Agentic", score.scores.agentic, "agentic"), tile("Task", score.scores.task, "task"), stages),
      score.unpenalised && el("p.aside", {}, `For the record, without the penalty: overall ${percent(score.unpenalised.overall)}, agentic ${percent(score.unpenalised.agentic)}, task ${percent(score.unpenalised.task)}.`),
      facts(runFacts(detail)),
    ];
  }

  const facts = (pairs) => el("dl.facts", {}, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd.foreign", {}, value))));

  function runFacts({ score }) {
    const { totals } = score;
    return [
      [`Quality (${score.quality_name})`, metric(score.quality)],
      ["Completion rate", share(score.completion_rate)],
      ["Valid outputs", share(score.valid_rate)],
      ["Medal", score.medal],
      ["Error codes", [...new Set(score.error_codes.map((error) => error.code))].join(", ") || "none"],
      ["Turns", totals.turns],
      ["Wall clock", duration(totals.wall_s)],
      ["Waiting for the model", duration(totals.api_s)],
      ["Running code", duration(totals.exec_s)],
      ["Code calls (failed)", `${totals.n_exec} (${totals.n_exec_failed})`],
      ["Tokens in / out", `${count(totals.tokens.prompt)} / ${count(totals.tokens.completion)}${totals.tokens.estimated ? " (estimated)" : ""}`],
      ["Cost", known(totals.cost_usd) ? money(totals.cost_usd) : "price unknown"],
    ];
  }

  const section = (title, ...children) => el("section", {}, el("h3", {}, title), children);

  function findings(detail) {
    const { audit } = detail;
    if (!audit) return section("Audit", el("p.aside", {}, "No audit record."));
    const kinds = { disqualifying: "bad", warning: "warn", notice: "" };
    const columns = [
      { title: "Severity", value: (row) => ["notice", "warning", "disqualifying"].indexOf(row.severity), cell: (row) => tag(row.severity, kinds[row.severity]) },
      { title: "Rule", value: (row) => row.rule, cell: (row) => [el("code", {}, row.rule), el("small", {}, row.category.replace("_", " "))] },
      { title: "Evidence", kind: "wide", cell: (row) => el("blockquote.foreign", {}, row.evidence) },
      { title: "Where", value: (row) => row.turn, cell: (row) => turnLink(detail, row.turn) || DASH },
      { title: "Source", cell: (row) => [row.source, el("small", {}, `confidence ${row.confidence}${row.blocked ? ", blocked" : ""}`)] },
    ];
    const list = audit.findings.length ? table(columns, audit.findings, { label: "Audit findings" }) : el("p.aside", {}, "No findings.");
    const rejected = detail.rejected.length > 0 && el("details", {}, el("summary", {}, `${detail.rejected.length} paths in the output folder were not collected`),
      el("ul", {}, detail.rejected.map((item) => el("li", {}, el("code.foreign", {}, item.path), ` ${item.reason}`, item.target && [" → ", el("code.foreign", {}, item.target)]))));
    const verdict = { clean: "good", warned: "warn", disqualified: "bad" }[audit.verdict];
    return section("Audit", el("p", {}, tag(audit.verdict, verdict), ` policy ${audit.policy_version}`, audit.reason && [" · ", foreign(audit.reason)]), list, rejected);
  }

  function judgement(detail) {
    const { judge, score } = detail;
    if (!judge) return section("Judge", el("p.aside", {}, "No judgement."));
    const rubric = Object.fromEntries((DATA.rubrics[score.track] ?? []).map((criterion) => [criterion.id, criterion]));
    const verdict = (row) => [percent(row.verdict), row.auto && el("small", {}, "by tier"), !row.valid && el("small", {}, "evidence invalid")];
    const columns = [
      { title: "Stage", value: (row) => row.stage, cell: (row) => row.stage },
      { title: "Criterion", header: true, value: (row) => row.id, cell: (row) => [rubric[row.id]?.title ?? row.id, el("small", {}, row.id)] },
      { title: "Verdict", numeric: true, value: (row) => row.verdict, cell: verdict, heat: (row) => row.verdict },
      { title: "Evidence", kind: "wide", cell: (row) => [row.quote && el("blockquote.foreign", {}, row.quote), turnLink(detail, row.turn)] },
      { title: "Reason", kind: "wide", cell: (row) => foreign(row.reason) },
    ];
    const stages = Object.entries(judge.stages).map(([stage, value]) => `${stage} ${percent(value)}`).join(" · ");
    const now = DATA.rubric_versions[score.track];
    return section("Judge",
      el("p", {}, tag(`${judge.kind}: ${judge.judge}`), `rubric ${judge.rubric_version} · ${stages}`,
        known(now) && now !== judge.rubric_version && tag(`titles are of rubric ${now}`, "warn")),
      table(columns, judge.criteria, { label: "Criteria" }));
  }

  function errorCodes({ score }) {
    if (!score.error_codes.length) return null;
    const line = (error) => el("li", {}, el("b", {}, `${error.code} ${DATA.errors[error.code] ?? ""} `), tag(error.stage), " ", foreign(error.evidence));
    return section("Error codes", el("p.aside", {}, `Taxonomy ${score.taxonomy}; they explain a run and change no score.`), el("ul", {}, score.error_codes.map(line)));
  }

  function cases(detail) {
    const [rows, names] = [detail.cases.rows, detail.cases.columns.slice(4)];
    if (!rows.length) return section("Cases", el("p.aside", {}, "No case table."));
    const kinds = { valid: "good", malformed: "warn", missing: "bad" };
    const marks = { valid: "✓", malformed: "!", missing: "✕" };
    const problem = ([code, message]) => el("div", {}, el("code", {}, code), " ", foreign(message));
    const columns = [
      { title: "Case", header: true, pin: true, value: ([name]) => name, cell: ([name]) => foreign(name) },
      { title: "Status", value: ([, status]) => status, cell: ([, status]) => tag(`${marks[status]} ${status}`, kinds[status]) },
      ...names.map((name, i) => ({ title: name, numeric: true, value: (row) => row[4 + i], cell: (row) => metric(row[4 + i]) })),
      { title: "Problems", kind: "wide", cell: ([, , problems, n]) => [problems.map(problem), n > problems.length && `and ${n - problems.length} more`] },
    ];
    return section("Cases", el("p.aside", {}, "Missing and malformed cases come first."), table(columns, rows, { label: "Cases", tall: rows.length > 12 }));
  }

  function groups(detail) {
    const { report } = detail;
    if (!report) return null;
    const rows = Object.entries(report.groups);
    const names = [...new Set(rows.flatMap(([, metrics]) => Object.keys(metrics)))].sort();
    const columns = [
      { title: "Class", header: true, pin: true, value: ([name]) => name, cell: ([name]) => foreign(name) },
      ...names.map((name) => ({ title: name, numeric: true, value: ([, metrics]) => metrics[name], cell: ([, metrics]) => metric(metrics[name]) })),
    ];
    const check = report.verification;
    return section("Metrics",
      facts(Object.entries(report.metrics).map(([name, value]) => [name, metric(value)])),
      check && el("p.aside", {}, `Checked with ${check.library}: ${check.value}, difference ${check.difference} (tolerance ${check.tolerance}).`),
      rows.length > 0 && table(columns, rows, { label: "Metrics by class" }));
  }

  // --- transcript --------------------------------------------------------------------------------------------

  function transcript(detail) {
    if (!detail.turns.length) return section("Transcript", el("p.aside", {}, "No transcript on this page."));
    const turns = detail.turns.map(turnBlock);
    const openAll = (open) => turns.forEach((turn) => { turn.open = open; });
    return section("Transcript",
      el("div.controls", {},
        el("button.plain", { type: "button", onclick: () => openAll(true) }, "Open all turns"),
        el("button.plain", { type: "button", onclick: () => openAll(false) }, "Close all"),
        el("span.aside", {}, "Complete in ", fileLink(detail, "conversation.json"))),
      turns,
      known(detail.plan) && el("details.turn", {}, el("summary", {}, "plan/plan.md at the end of the run"), el("div.said.foreign", {}, detail.plan)));
  }

  function turnBlock(turn) {
    const stages = [...new Set(turn.calls.map((call) => call.stage))];
    const failed = turn.calls.filter((call) => call.status !== "ok");
    const isBrief = turn.messages.length > 0 && !turn.calls.length && turn.messages.every((message) => ["system", "user"].includes(message.role));
    const summary = el("summary", {}, isBrief && turn.turn === 0 ? "Brief " : `Turn ${turn.turn} `, stages.map((stage) => tag(`${stage} ${DATA.stages[stage]}`)),
      failed.map((call) => tag(call.status, call.status === "refused" || call.status === "killed" ? "bad" : "warn")));
    return el("details.turn", { id: `turn-${turn.turn}`, open: !isBrief }, summary, inOrder(turn));
  }

  // What the agent said, its code with output, then what it was told.
  function inOrder(turn) {
    const told = (message) => message.role === "tool";
    return [turn.messages.filter((message) => !told(message)).map(said), turn.calls.map(codeCall), turn.messages.filter(told).map(said)];
  }

  const SPEAKERS = { assistant: "Agent", tool: "Harness to agent", user: "Harness to agent", system: "Brief" };

  function said(message) {
    if (!message.content.trim()) return null;
    const speaker = SPEAKERS[message.role];
    if (message.role !== "assistant") return block(speaker, message.content, "output");
    return el("div.said", {}, el("b", {}, speaker), foreign(message.content));
  }

  function codeCall(call) {
    const exit = known(call.exit_code) ? `, exit code ${call.exit_code}` : "";
    return [
      block(`${call.language} · ${call.status}${exit} · ${duration(call.elapsed_s)}`, call.code, call.status === "ok" ? "code" : "error"),
      call.stdout.trim() && block("output", call.stdout, "output"),
      call.stderr.trim() && block("error output", call.stderr, call.status === "ok" ? "output" : "error"),
      call.new_files.length > 0 && filesWritten(call.new_files),
    ];
  }

  function filesWritten(files) {
    const list = foreign(files.join("\n"));
    if (files.length < 4) return el("p.said.aside", {}, el("b", {}, "Files written"), list);
    return el("details.aside", {}, el("summary", {}, "Files written"), el("div.said", {}, list));
  }

  function block(label, text, kind) {
    const lines = text.split("\n").length;
    const body = el("pre.foreign", { tabindex: 0, "aria-label": label }, text);
    if (lines <= LONG && text.length < 4000) return el(`div.block.${kind}`, {}, el("div.label", {}, label), body);
    return el(`details.block.${kind}`, {}, el("summary", {}, `${label} · ${lines} lines`), body);
  }

  // --- provenance --------------------------------------------------------------------------------------------

  function provenance(detail) {
    const { score, run } = detail;
    const { recipe, enforced } = score;
    const files = ["score.json", "detail_report.json", "submission.json", "judge.json", "audit.json", "run.json", "conversation.json", "brief.md"];
    return section("Where these numbers come from",
      facts([
        ["Task version", recipe.task_version],
        ["Cases", recipe.cases_sha256.slice(0, 16)],
        ["Track version", recipe.track_version],
        ["Rubric version", recipe.rubric_version],
        ["Judge", `${recipe.judge_kind} (${recipe.judge})`],
        ["Code version", recipe.code_version],
        ["Image", recipe.image_sha256 ? recipe.image_sha256.slice(0, 16) : "none"],
        ["Sandbox", `${enforced.backend}, network ${enforced.network}${enforced.gpu ? ", GPU" : ""}${enforced.decoy ? ", decoy" : ""}`],
        ...(run ? runProvenance(run) : []),
      ]),
      el("p", {}, "Metric settings: ", el("code.foreign", {}, JSON.stringify(recipe.settings))),
      el("p", {}, "Files of the run: ", files.map((name, i) => [i > 0 && " · ", fileLink(detail, name)])));
  }

  const runProvenance = (run) => [
    ["Provider", run.provider],
    ["Agent", run.agent_digest],
    ["Brief", run.brief_sha256.slice(0, 16)],
    ["Attempt", run.attempt],
    ["Started", run.started_at],
    ["Ended", run.ended_at],
    ...Object.entries(run.limits).filter(([, value]) => known(value)).map(([name, value]) => [`Limit ${name}`, value]),
  ];

  // --- where we are ------------------------------------------------------------------------------------------

  let openRun = null;

  function route() {
    const place = new URLSearchParams(location.hash.slice(1));
    const path = place.get("run");
    document.getElementById("board").hidden = Boolean(path);
    document.getElementById("run").hidden = !path;
    if (!path) return leaveRun();
    if (path !== openRun) enterRun(path);
    if (place.get("turn")) goToTurn(place.get("turn"));
  }

  function enterRun(path) {
    openRun = path;
    drawRun(path);
    document.title = `${path} – AutoMedBench`;
    scrollTo({ top: 0, behavior: "instant" });
    document.getElementById("run").focus({ preventScroll: true });
  }

  function leaveRun() {
    if (openRun) document.getElementById("run").replaceChildren();
    openRun = null;
    document.title = "AutoMedBench leaderboard";
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target) target.scrollIntoView();
  }

  function goToTurn(turn) {
    document.querySelectorAll(".turn.here").forEach((element) => element.classList.remove("here"));
    const target = document.getElementById(`turn-${turn}`);
    if (!target) return;
    target.open = true;
    target.classList.add("here");
    target.scrollIntoView();
  }

  document.querySelectorAll(".stage").forEach((button) => button.addEventListener("click", () => showStage(button.dataset.stage)));
  window.addEventListener("hashchange", route);
  drawBoard();
  route();
})();
