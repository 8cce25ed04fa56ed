// The page of one run. Its records come packed in one script element.

const { shared: SHARED, detail: DETAIL } = await unpacked("packed");
const { score, run, report, judge, audit } = DETAIL;
const ID = score.run;
const STAGES = Object.keys(SHARED.stages);

const fileLink = (name) => el("a", { href: `${encodePath(DETAIL.folder)}/${encodeURIComponent(name)}` }, name);
const link = (id, ...content) => el("a", { href: `#${id}` }, content);
const part = (id, title, ...children) => el("section", { id }, el("h2", {}, title), children);
// A class or metric may be called like something that every object has (constructor).
const own = (object, key) => (Object.hasOwn(object, key) ? object[key] : undefined);
const besideHref = (choices) => `../../../../beside.html#${new URLSearchParams(choices)}`;
const yes = (value) => (value ? "yes" : "no");

// --- what it was -------------------------------------------------------------------------------------------

function head() {
  const others = SHARED.siblings.filter((repeat) => repeat !== ID.repeat);
  return el("header", {},
    el("h1.run-title", {}, foreign(ID.agent), " on ", SHARED.task,
      el("small", {}, `${SHARED.track} · ${ID.tier} tier · repeat ${ID.repeat} · model `, foreign(score.model || DASH))),
    el("p.aside.others", {}, el("a", { href: besideHref({ a: runPath(ID) }) }, "Beside another run")),
    others.length > 0 && el("p.aside", {}, "Other repeats: ", others.map((repeat) => [el("a", { href: `r${repeat}.html` }, `r${repeat}`), " "])),
    score.made_up && el("p.notice.bad", {}, el("b", {}, "Made-up data. "), "A run of a rehearsal: cases and answers stand in for the real ones, and the numbers mean nothing."),
    outcome(),
    run?.fault && el("p.notice", {}, el("b", {}, `Disturbed on purpose: ${run.fault.fault}. `), { true: "The run met the fault", false: "The run did not meet the fault" }[run.fault.met] ?? "Not known whether the run met the fault", `: ${run.fault.evidence}. It is in no rank and no mean.`),
    score.no_effect && noEffect(),
    known(score.contradicting) && el("p.notice", {}, el("b", {}, "Contradictions. "), `${Math.round(100 * score.contradicting)} % of the reports' statements contradict the references by an opposite or a negation, which the score hardly sees.`),
    run?.summary && el("p", {}, "The agent's summary: ", el("q.foreign", {}, run.summary)),
    SHARED.closed && el("p.notice", {}, el("b", {}, `Access to this data set needs ${SHARED.closed === "credentialed" ? "credentials" : "registration"}.`),
      " Transcript and quotes may repeat what it holds: check its licence before you publish this page."),
    DETAIL.notes.length > 0 && el("div.notice", {}, el("b", {}, "Not everything is on this page:"), el("ul", {}, DETAIL.notes.map((note) => el("li", {}, foreign(note))))));
}

function outcome() {
  const text = [SHARED.outcomes[score.outcome] ?? score.outcome, run?.detail].filter(Boolean).join(": ");
  if (score.disqualified) return el("p.notice.bad", {}, el("b", {}, "⊘ Disqualified. "), "Every score is 0. ", foreign(audit?.reason ?? text));
  if (score.failed) return el("p.notice.bad", {}, el("b", {}, "✕ Failed: no complete final submission. "), foreign(text));
  return el("p", {}, tag(`✓ ${SHARED.outcomes[score.outcome] ?? score.outcome}`, "good"), " ", foreign(run?.detail ?? ""));
}

function noEffect() {
  const consequence = Object.keys(score.stage_limits).length ? "It lowers S3 to S5, and there is no medal." : "It is shown only and changes no score.";
  return el("p.notice.bad", {}, el("b", {}, "No effect of the case. "), "The outputs fit their own case no better than other cases. ", consequence, " ", link("effect", "As measured"));
}

// --- scores and how they came about ------------------------------------------------------------------------

function scores() {
  const tile = (title, name, kind = "") =>
    el(`a.tile${kind && `.${kind}`}`, { href: `#how-${name}` }, title, el("b", {}, percent(score.scores[name])), el("i", { "--w": `${100 * score.scores[name]}%` }));
  const stages = STAGES.map((stage) => tile(`${stage} ${SHARED.stages[stage].title}`, stage.toLowerCase()));
  return part("scores", "Scores",
    el("div.tiles", {}, tile("Overall", "overall"), tile("Agentic", "agentic", "agentic"), tile("Task", "task", "task"), stages),
    el("details.how", { open: true }, el("summary", {}, "How each number came about"), howTable()),
    effect(),
    facts(runFacts()));
}

function howTable() {
  const earned = score.unpenalised ?? score.scores;
  const rows = [
    ["overall", "Overall", ["½ · ", link("how-agentic", `Agentic ${percent(earned.agentic)}`), " + ½ · ", link("how-task", `Task ${percent(earned.task)}`)]],
    ["agentic", "Agentic", STAGES.map((stage, i) => [i > 0 && " + ", `${(SHARED.stages[stage].weight / 100).toFixed(2)} · `, link(`how-${stage.toLowerCase()}`, `${stage} ${percent(earned[stage.toLowerCase()])}`)])],
    ...["S1", "S2", "S3"].map((stage) => [stage.toLowerCase(), `${stage} ${SHARED.stages[stage].title}`, howJudged(stage)]),
    ["s4", `S4 ${SHARED.stages.S4.title}`, howRan(earned)],
    ["s5", `S5 ${SHARED.stages.S5.title}`, howSubmitted(earned)],
    ["task", "Task", howTask()],
  ];
  return [
    score.unpenalised && el("p.notice", {}, `For the record, without the penalty: overall ${percent(earned.overall)}, agentic ${percent(earned.agentic)}, task ${percent(earned.task)}. The lines below show what was earned; the disqualification sets all of it to 0.`),
    el("dl.ledger", {}, rows.map(([name, title, formula]) => el("div", { id: `how-${name}` }, el("dt", {}, title), el("dd.value", {}, percent(earned[name])), el("dd", {}, "= ", formula)))),
  ];
}

function howJudged(stage) {
  if (!judge) return "no judgement to show";
  const criteria = judge.criteria.filter((criterion) => criterion.stage === stage);
  const limited = known(own(score.stage_limits, stage)) && `at most ${score.stage_limits[stage]}, as the case has no effect on the outputs; `;
  const verdicts = criteria.map((criterion, i) => [i > 0 && " · ", link(`criterion-${criterion.id}`, `${criterion.id} ${verdictText(criterion)}`)]);
  const panel = judge.judgements.length > 1 ? `, a mean over ${judge.judgements.length} judgements` : "";
  return [limited, `${SHARED.stages[stage].formula.toLowerCase().replace(/\.$/, "")}${panel}: `, verdicts];
}

const verdictText = (criterion) => (criterion.applicable === false ? "not applicable" : Number.isInteger(criterion.verdict) ? String(criterion.verdict) : criterion.verdict.toFixed(2));

function howRan(earned) {
  const valid = earned.s4 - score.completion_rate / 2 > 0.25;
  if (known(score.stage_limits.S4)) return [`at most ${score.stage_limits.S4}, as the case has no effect on the outputs`];
  return ["½ · ", link("cases", `completion rate ${share(score.completion_rate)}`), ` + ½ · [something submitted, and every submitted output valid: ${yes(valid)}]`];
}

function howSubmitted(earned) {
  const accepted = run ? run.submitted && score.valid_rate === 1 : null;
  const worked = earned.s5 - (accepted ? 0.5 : 0) > 0.25;
  return [`½ · [task score above 0, and not without an effect of the case: ${yes(worked)}] + ½ · [every case valid and the submission accepted: ${accepted === null ? "unknown" : yes(accepted)}]`];
}

// Value with interval and p: own answers against others', and of pictures the gain over the input.
function effect() {
  const { verdict, reason, n, own: mine, other, value, low, high, p, margin, gain, gain_low, gain_high, gain_p } = score.effect;
  const range = (from, to) => (known(from) ? `, 95 % interval ${metric(from)} to ${metric(to)}` : "");
  const tested = (found) => (known(found) ? `, p ${pValue(found)}` : "");
  const decided = known(audit?.decision?.confirmed_no_inference) && (audit.decision.confirmed_no_inference ? "An operator confirmed that no method was at work" : "An operator decided that a method was at work");
  return el("div", { id: "effect" }, el("h3", {}, "Effect of the case on the outputs"),
    el("p", {}, tag({ shown: "✓ shown", none: "✕ none", unclear: "unclear" }[verdict], { shown: "good", none: "bad" }[verdict]), ` ${reason}`),
    known(value) && el("p", {}, `Quality of ${n} outputs on their own answers ${metric(mine)}, on other cases' answers ${metric(other)}: difference ${metric(value)}${range(low, high)}${tested(p)}; it must exceed ${metric(margin)}.`),
    known(gain) && el("p", {}, `Gain over the input as it is: ${metric(gain)}${range(gain_low, gain_high)}${tested(gain_p)}.`),
    score.no_effect && verdict !== "none" && !decided && el("p.notice", {}, "No process of the run opened an input, so there can be none."),
    decided && el("p.notice", {}, `${decided}; this counts more than the measure.`),
    score.recipe.effects === "shown_only" && el("p.aside", {}, "Effects are shown only in this campaign and change no score."));
}

function howTask() {
  const earned = (score.unpenalised ?? score.scores).task;
  const { quality, completion_rate: completed } = report ?? score; // a disqualified run's score has none left
  const product = Math.abs(quality * completed - earned) < 1e-6 && Math.abs(quality - earned) > 1e-9;
  const rest = product ? [` · completion rate ${share(completed)}`] : completed < 1 && [", in which a missing case counts 0"];
  return [link("metrics", `${score.quality_name} ${metric(quality)}`), rest, ` (${SHARED.task_half})`];
}

// What is not known is told with its reason, or left out where there was no GPU.
function machineFacts(used) {
  const by = (name, shown) => `${known(used[name]) ? shown(used[name]) : "unknown"} (${used.told_by[name]})`;
  return [
    ...(used.gpu_models.length || known(used.gpu_held_s) ? [["GPU held", by("gpu_held_s", duration)], ["GPU", [...used.gpu_models, ...used.gpu_drivers.map((version) => `driver ${version}`)].join(", ")]] : []),
    ...(known(used.gpu_lease_s) ? [["Turns on a shared GPU", `${duration(used.gpu_lease_s)}, ${duration(used.gpu_waited_s)} waited for, outside of the run's time`]] : []),
    ...(known(used.gpu_idle_s) ? [["GPU idle at most", by("gpu_idle_s", duration)]] : []),
    ["CPU time", by("cpu_s", duration)],
    ["Memory at most", by("peak_memory_mib", (mib) => `${count(mib)} MiB`)],
    ["Ran on", [...used.nodes, ...used.jobs.map((job) => `Slurm job ${job}`)].join(", ")],
  ];
}

function runFacts() {
  const { totals } = score;
  return [
    ["Medal", score.medal],
    ...(score.model_lock ? [["The given checkpoint was used", { kept: "yes", violated: "no: another model", unknown: "unknown" }[score.model_lock]]] : []),
    ["Completion rate", share(score.completion_rate)],
    ["Valid outputs", share(score.valid_rate)],
    ["Error codes", [...new Set(score.error_codes.map((error) => error.code))].join(", ") || "none"],
    ["Turns", totals.turns],
    ["Wall clock", duration(totals.wall_s)],
    ["Waiting for the model", duration(totals.api_s)],
    ["Running code", duration(totals.exec_s)],
    ...(totals.gpu ? [["GPU memory at most", `${count(totals.gpu.peak_mib)} MiB`], ["GPU busy", duration(totals.gpu.busy_s)]] : []),
    ...machineFacts(score.used),
    ["Code calls (failed)", `${totals.n_exec} (${totals.n_exec_failed})`],
    ["Tokens in / out", `${count(totals.tokens.prompt)} / ${count(totals.tokens.completion)}${totals.tokens.estimated ? " (estimated)" : ""}`],
    ...(totals.tokens.cached || totals.tokens.cache_write ? [["Tokens from cache / written to it", `${count(totals.tokens.cached)} / ${count(totals.tokens.cache_write)}`]] : []),
    ["Cost of the run", known(totals.cost_usd) ? money(totals.cost_usd) : "price unknown"],
    ...(score.attempts > 1 ? [["Attempts", `${score.attempts}, the last one counts`], ["Cost of all attempts", known(score.attempts_cost_usd) ? money(score.attempts_cost_usd) : "price unknown"]] : []),
    ["Cost of judging", score.recipe.judge_kind === "heuristic" ? "none" : known(score.judge_cost_usd) ? money(score.judge_cost_usd) : "price unknown"],
  ];
}

// --- cases -------------------------------------------------------------------------------------------------

let VIEWER = null;

function cases() {
  const [rows, names] = [DETAIL.cases.rows, DETAIL.cases.columns.slice(4)];
  const views = DETAIL.views?.cases ?? [];
  if (views.length) VIEWER = caseViewer(views);
  const note = DETAIL.views?.note && el("p.aside", {}, DETAIL.views.note);
  if (!rows.length) return part("cases", "Cases", VIEWER?.element, note, el("p.aside", {}, "No case table."));
  const kinds = { valid: "good", malformed: "warn", missing: "bad" };
  const signs = { valid: "✓", malformed: "!", missing: "✕" };
  const problem = ([code, message]) => el("div", {}, el("code", {}, code), " ", foreign(message));
  const isShown = (name) => views.some((view) => view.case === name);
  const opener = (name) => el("button.head", { type: "button", title: "Show this case", onclick: () => VIEWER.open(name) }, foreign(name), " ◳");
  const filled = names.map((name, i) => [name, 4 + i]).filter(([, at]) => rows.some((row) => known(row[at])));
  const columns = [
    { title: "Case", header: true, pin: true, value: ([name]) => name, cell: ([name]) => (isShown(name) ? opener(name) : foreign(name)) },
    { title: "Status", value: ([, status]) => status, cell: ([, status]) => tag(`${signs[status]} ${status}`, kinds[status]) },
    ...filled.map(([name, at]) => ({ title: name, numeric: true, value: (row) => row[at], cell: (row) => metric(row[at]) })),
    rows.some((row) => row[3]) && { title: "Problems", kind: "wide", cell: ([, , problems, n]) => [problems.map(problem), n > problems.length && `and ${n - problems.length} more`] },
  ].filter(Boolean);
  return part("cases", "Cases", note, VIEWER?.element,
    el("h3", {}, "All cases"),
    el("p.aside", {}, "Missing and malformed cases come first.", views.length > 0 && " ◳ opens a case above."),
    table(columns, rows, { label: "Cases", page: 25 }));
}

// --- metrics -----------------------------------------------------------------------------------------------

function metrics() {
  if (!report) return null;
  const check = report.verification;
  return part("metrics", "Metrics",
    facts(Object.entries(report.metrics).map(([name, value]) => [name, metric(value)])),
    report.notes.length > 0 && el("ul.aside", {}, report.notes.map((note) => el("li", {}, note))),
    check && el("p.aside", {}, `Checked with ${check.library}: ${check.value}, difference ${check.difference} (tolerance ${check.tolerance}).`),
    groups());
}

// Classes that nothing was in and nothing was found of say nothing; they can be had all the same.
function groups() {
  const rows = Object.entries(report.groups);
  if (!rows.length) return null;
  const speaks = ([, values]) => Object.entries(values).some(([name, value]) => value && !name.includes("both_empty"));
  const speaking = rows.filter(speaks);
  const place = el("div");
  const draw = (shown) => {
    const names = [...new Set(shown.flatMap(([, values]) => Object.keys(values)))].filter((name) => shown.some(([, values]) => known(own(values, name))));
    const columns = [
      { title: "Class", header: true, pin: true, value: ([name]) => name, cell: ([name]) => foreign(name) },
      ...names.map((name) => ({ title: name, numeric: true, value: ([, values]) => own(values, name), cell: ([, values]) => metric(own(values, name)) })),
    ];
    place.replaceChildren(table(columns, shown, { label: "Metrics by class", page: 25 }));
  };
  draw(speaking.length ? speaking : rows);
  const all = el("button.plain", { type: "button", onclick: () => { draw(rows); all.parentElement.remove(); } }, "Show them");
  const hidden = rows.length - speaking.length;
  return [place, speaking.length > 0 && hidden > 0 && el("p.aside", {}, `${hidden} of ${rows.length} classes are not listed: neither there nor found in any case. `, all)];
}

// --- judge -------------------------------------------------------------------------------------------------

function judgement() {
  if (!judge) return part("judge", "Judge", el("p.aside", {}, "No judgement."));
  const now = SHARED.rubric_version;
  const stages = ["S1", "S2", "S3"].filter((stage) => judge.criteria.some((criterion) => criterion.stage === stage));
  return part("judge", "Judge",
    el("p", {}, tag(`${judge.kind}: ${judge.judge}`), ` rubric ${judge.rubric_version} `, known(now) && now !== judge.rubric_version && tag(`wording is of rubric ${now}`, "warn")),
    stages.map(stageOfJudge), panel(), injections());
}

function stageOfJudge(stage) {
  const spread = judge.spread[stage];
  return el("div.judged", { id: `judge-${stage}` },
    el("h3", {}, el(`i.swatch.${stage}`), `${stage} ${SHARED.stages[stage].title} `, el("b", {}, percent(judge.stages[stage])),
      known(spread) && el("small.inline", {}, ` ± ${percent(spread)} between judgements`)),
    judge.criteria.filter((criterion) => criterion.stage === stage).map(criterionCard));
}

function criterionCard(criterion) {
  const wording = own(SHARED.criteria, criterion.id);
  const level = criterion.applicable === false ? ["–", ""] : criterion.verdict >= 1 ? ["✓", "good"] : criterion.verdict > 0 ? ["◐", "warn"] : ["✕", "bad"];
  const votes = criterion.votes.length > 1 && el("span.votes", { title: "verdicts of the panel's judgements" }, "votes ", criterion.votes.map((vote) => el("b", {}, Number(vote.toFixed(2)), " ")));
  return el("div.criterion", { id: `criterion-${criterion.id}` },
    el("div.verdict", {}, tag(`${level[0]} ${verdictText(criterion)}`, level[1])),
    el("div", {},
      el("p", {}, el("b", {}, wording?.title ?? criterion.id), el("small.inline", {}, ` ${criterion.id} `), criterion.auto && tag("credited by the tier"), !criterion.valid && tag("evidence invalid", "bad"), criterion.weak && tag("weak quote", "warn"), votes),
      criterion.reason && el("p.foreign", {}, criterion.reason),
      criterion.quote && el("blockquote", {}, quoted(criterion)),
      wording && el("details.aside", {}, el("summary", {}, "What earns it"), wording.earned_when, wording.levels.length > 0 && el("ul", {}, wording.levels.map((text) => el("li", {}, text))))));
}

// Without a turn a quote is from the plan, or from the list of files or about the picture, which are not on the page.
function quoted({ id, turn, quote }) {
  const plain = (text) => text.replace(/\s+/g, " ");
  if (!known(turn) && !plain(DETAIL.plan ?? "").includes(plain(quote))) return [foreign(quote), el("small", {}, " files or picture")];
  return quoteLink(id, turn, quote, foreign(quote), el("small", {}, known(turn) ? `turn ${turn} ↓` : "plan ↓"));
}

function panel() {
  if (!judge.judgements.length) return null;
  const remarks = (one) => [
    ...Object.entries(one.invalid).map(([stage, why]) => el("div", {}, tag(`${stage} invalid`, "bad"), " ", foreign(why))),
    ...Object.entries(one.left_out).map(([stage, what]) => el("div", {}, tag(`${stage} shortened`), " ", foreign(what))),
    one.n_weak > 0 && tag(one.n_weak === 1 ? "1 weak quote" : `${one.n_weak} weak quotes`, "warn"),
    one.masked && tag("passages masked", "warn"), one.saw_plot && tag("saw plan.png"), one.cached > 0 && tag(`${one.cached} from the cache`),
  ];
  const columns = [
    { title: "Judgement", header: true, pin: true, value: (one) => one.judge, cell: (one) => [foreign(`${one.judge} #${one.repeat}`), el("small.foreign", {}, one.model)] },
    ...["S1", "S2", "S3"].map((stage) => ({ title: stage, numeric: true, value: (one) => one.stages[stage], cell: (one) => percent(one.stages[stage]), heat: (one) => one.stages[stage] })),
    { title: "Requests", numeric: true, value: (one) => one.requests, cell: (one) => one.requests },
    { title: "Tokens in / out", numeric: true, value: (one) => one.tokens.prompt, cell: (one) => `${count(one.tokens.prompt)} / ${count(one.tokens.completion)}` },
    { title: "Cost", numeric: true, value: (one) => (known(one.cost_usd) ? Number(one.cost_usd) : null), cell: (one) => money(one.cost_usd) },
    { title: "Remarks", kind: "wide", cell: remarks },
  ];
  return [el("h3", {}, "The panel"), table(columns, judge.judgements, { label: "Judgements" })];
}

function injections() {
  if (!judge.injections.length) return null;
  const columns = [
    { title: "Rule", header: true, value: (item) => item.rule, cell: (item) => el("code", {}, item.rule) },
    { title: "Where", value: (item) => item.where, cell: (item) => item.where },
    { title: "Passage", kind: "wide", cell: (item) => el("blockquote.foreign", {}, item.passage) },
    { title: "Turn", value: (item) => item.turn, cell: (item) => (known(item.turn) ? quoteLink(`injection-${judge.injections.indexOf(item)}`, item.turn, item.passage) : DASH) },
  ];
  return [el("h3", {}, "Passages that address the judge"), el("p.aside", {}, "They were masked before it was asked again."), table(columns, judge.injections, { label: "Injections" })];
}

// --- error codes and audit ---------------------------------------------------------------------------------

function errorCodes() {
  if (!score.error_codes.length) return null;
  const line = (error, i) =>
    el("li", {}, el("b", {}, `${error.code} ${SHARED.errors[error.code] ?? ""} `), el(`span.tag.stage.${error.stage}`, {}, error.stage), tag(error.source === "judge" ? `judge ${error.detector}` : `rule ${error.detector}`), " ",
      known(error.turn) ? quoteLink(`error-${i}`, error.turn, error.evidence, foreign(error.evidence), ` (turn ${error.turn} ↓)`) : foreign(error.evidence));
  return part("errors", "Error codes", el("p.aside", {}, `Taxonomy ${score.taxonomy}; they explain a run and change no score.`), el("ul", {}, score.error_codes.map(line)));
}

function findings() {
  if (!audit) return part("audit", "Audit", el("p.aside", {}, "No audit record."));
  const kinds = { disqualifying: "bad", warning: "warn", notice: "" };
  const columns = [
    { title: "Severity", value: (row) => Object.keys(kinds).indexOf(row.severity), cell: (row) => tag(row.severity, kinds[row.severity]) },
    { title: "Rule", value: (row) => row.rule, cell: (row) => [el("code", {}, row.rule), el("small", {}, row.category.replace("_", " "))] },
    { title: "Evidence", kind: "wide", cell: (row) => el("blockquote.foreign", {}, row.evidence) },
    { title: "Where", value: (row) => row.turn, cell: (row) => (known(row.turn) ? quoteLink(`finding-${row.id}`, row.turn, row.evidence) : DASH) },
    { title: "Source", cell: (row) => [row.source, el("small", {}, `confidence ${row.confidence}${row.blocked ? ", blocked" : ""}`)] },
  ];
  const list = audit.findings.length ? table(columns, audit.findings, { label: "Audit findings", page: 25 }) : el("p.aside", {}, "No findings.");
  const rejected = DETAIL.rejected.length > 0 && el("details", {}, el("summary", {}, `${DETAIL.rejected.length} paths in the output folder were not collected`),
    el("ul", {}, DETAIL.rejected.map((item) => el("li", {}, el("code.foreign", {}, item.path), ` ${item.reason}`, item.target && [" → ", el("code.foreign", {}, item.target)]))));
  const verdict = { clean: "good", warned: "warn", disqualified: "bad" }[audit.verdict];
  return part("audit", "Audit", el("p", {}, tag(audit.verdict, verdict), ` policy ${audit.policy_version}`, audit.reason && [" · ", foreign(audit.reason)]), decision(), list, rejected);
}

function decision() {
  const { decision: made, proposed } = audit;
  if (!made) return null;
  const what = made.decision === "lift" ? "lifted" : "upheld";
  return el("p.notice", {}, el("b", {}, `The operator ${what} the findings' verdict${proposed ? ` (${proposed})` : ""}. `), foreign(`${made.by}, ${made.date}: ${made.why}`));
}

// --- provenance --------------------------------------------------------------------------------------------

const moment = (time) => `${time.slice(0, 19).replace("T", " ")} UTC`;
const FILES = ["score.json", "detail_report.json", "submission.json", "judge.json", "audit.json", "run.json", "conversation.json", "case_views.json", "brief.md"];

function provenance() {
  const { recipe, enforced } = score;
  const short = (digest) => (digest ? el("span", { title: digest }, digest.slice(0, 16)) : "none");
  const code = (found) => `${found.digest.slice(0, 16)}${found.commit ? `, commit ${found.commit.slice(0, 12)}` : ""}${found.dirty ? " with changes" : ""}`;
  const rows = [...new Set([...FILES, ...Object.keys(score.sources)])];
  const columns = [
    { title: "File", header: true, value: (name) => name, cell: fileLink },
    { title: "SHA-256 of what was scored", kind: "wide", cell: (name) => (score.sources[name] ? el("code.hash", {}, score.sources[name]) : DASH) },
  ];
  const limits = run ? Object.entries(run.limits).filter(([, value]) => known(value)).map(([name, value]) => [`Limit ${name}`, value]) : [];
  return part("provenance", "Where these numbers come from",
    facts([
      ["Task version", recipe.task_version], ["Cases", short(recipe.cases_sha256)], ["Track version", recipe.track_version], ["Rubric version", recipe.rubric_version],
      ["Judge", `${recipe.judge_kind} (${recipe.judge})`], ["Code version", recipe.code_version], ["Code", code(recipe.code)], ["Code of the run", code(recipe.run_code)], ["Image", short(recipe.image_sha256)],
      ["Sandbox", `${enforced.backend}: ${SHARED.backends[enforced.backend] ?? ""}`], ["Network", `${enforced.network}: ${SHARED.networks[enforced.network] ?? ""}${enforced.from_cache ? " Models and packages from the campaign's cache alone." : ""}`],
      ["GPU", enforced.gpu_names.length ? enforced.gpu_names.join(", ") : yes(enforced.gpu)], ["System call filter", yes(enforced.seccomp)], ["Self-check passed", yes(enforced.selfcheck)], ["Decoy", yes(enforced.decoy)], ["Trace of opens", yes(enforced.trace)],
      ["Preset", recipe.preset], ["Model as served", recipe.served.join(", ") || "no model"], ["Hardware", score.used.machines.join("; ")],
      ...(run ? [["Provider", run.provider], ["Agent", run.agent_digest], ["Brief", short(run.brief_sha256)], ["Attempt", run.attempt], ["Started", moment(run.started_at)], ["Ended", moment(run.ended_at)]] : []),
      ...limits,
    ]),
    el("p", {}, "Signature: ", el("code.foreign", {}, DETAIL.signature)),
    el("p", {}, "Metric settings: ", el("code.foreign", {}, JSON.stringify(recipe.settings))),
    el("p", {}, "Agent's settings: ", el("code.foreign", {}, JSON.stringify(recipe.agent_settings))),
    recipe.panel.length > 0 && el("p", {}, `Judges (prompt ${recipe.prompt_version}): `, el("code.foreign", {}, JSON.stringify(recipe.panel.map((member) => member.settings)))),
    table(columns, rows, { label: "Files of the run", sortable: false }));
}

// --- where we are ------------------------------------------------------------------------------------------

// #turn-7, #turn-7:s1a (with the passage), #plan:s1a, #case-bccd_0001, or a section.
const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };

function route() {
  const [id, quote] = decoded(location.hash.slice(1)).split(":");
  if (id.startsWith("case-") && VIEWER?.names.includes(id.slice(5))) return VIEWER.open(id.slice(5));
  if (id.startsWith("turn-") || id === "plan") goTo(id, quote && QUOTES.get(quote)?.text);
}

function byKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, .viewer")) return;
  const act = { j: () => stepTurn(1), k: () => stepTurn(-1), "/": () => document.querySelector("#transcript input[type=search]")?.focus() }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function draw() {
  const parts = [head(), scores(), cases(), judgement(), errorCodes(), findings(), metrics()];
  fill("run", parts, transcript(DETAIL), provenance()); // quotes are known before the transcript is drawn
  const titles = { scores: "Scores", cases: "Cases", judge: "Judge", errors: "Errors", audit: "Audit", metrics: "Metrics", transcript: "Transcript", provenance: "Files" };
  fill("nav", Object.entries(titles).filter(([id]) => document.getElementById(id)).map(([id, title]) => link(id, title)));
  document.getElementById("top").append(themeButton());
}

draw();
window.addEventListener("hashchange", route);
// A link that is followed again leads there again.
document.addEventListener("click", (event) => { if (event.target.closest?.("a")?.hash === location.hash && location.hash) route(); });
document.addEventListener("keydown", byKey);
if (location.hash) route();
beFramed();
