// The transcript: a strip of all turns, and each turn as what was said, run and printed; quotes lead to their passage.

const LONG = { code: 60, output: 24 }; // lines; longer code and output start collapsed
const SPEAKERS = { assistant: "Agent", tool: "Harness to agent", user: "Harness to agent", system: "Brief" };
const PROGRAM = { system: "Program's own system prompt", assistant: "Program, in the model's name" }; // else: "Program to model"
const QUOTES = new Map(); // id → { turn, text }: what a link "#turn-7:id" points at

// A link to a turn that also marks the passage; without a turn, to the plan.
function quoteLink(id, turn, text, ...content) {
  QUOTES.set(id, { turn, text });
  return el("a.to-turn", { href: known(turn) ? `#turn-${turn}:${id}` : `#plan:${id}` }, content.length ? content : known(turn) ? `turn ${turn}` : "plan");
}

function transcript(detail) {
  if (!detail.turns.length) return part("transcript", "Transcript", el("p.aside", {}, "No transcript on this page."));
  const quoted = quotedTurns();
  const blocks = detail.turns.map((turn) => turnBlock(turn, quoted.get(turn.turn) ?? []));
  const plan = known(detail.plan) && el("details.turn", { id: "plan", open: true }, el("summary", {}, "plan/plan.md at the end of the run"), el("div.said.foreign", {}, detail.plan));
  const count = el("span.aside", { role: "status" });
  const search = el("input", { type: "search", placeholder: "Search the transcript ( / )", "aria-label": "Search the transcript", oninput: () => apply() });
  const texts = detail.turns.map((turn) => [...turn.messages.map((m) => m.content), ...turn.calls.flatMap((c) => [c.code, c.stdout, c.stderr, ...c.new_files])].join("\n").toLowerCase());
  let filter = "all";
  const tests = {
    all: () => true,
    failed: (turn) => failedCalls(turn).length > 0,
    quoted: (turn) => quoted.has(turn.turn),
    ...Object.fromEntries(stagesOf(detail.turns).map((stage) => [stage, (turn) => turn.calls.some((call) => call.stage === stage)])),
  };
  const place = el("span");
  function apply() {
    const options = { all: "All", ...Object.fromEntries(Object.keys(tests).slice(3).map((stage) => [stage, stage])), failed: "Failed", quoted: "Quoted" };
    keepFocus(() => place.replaceChildren(choice("Show", options, filter, (key) => { filter = key; apply(); })));
    const wanted = search.value.trim().toLowerCase();
    const found = detail.turns.map((turn, i) => tests[filter](turn) && texts[i].includes(wanted));
    blocks.forEach((block, i) => { block.hidden = !found[i]; if (found[i] && wanted) block.open = true; });
    count.replaceChildren(`${found.filter(Boolean).length} of ${blocks.length} turns`);
    highlight(blocks.filter((_, i) => found[i]), wanted);
  }
  const openAll = (open) => blocks.forEach((block) => { block.open = open; });
  apply();
  return part("transcript", "Transcript",
    strip(detail.turns),
    el("div.controls.tools", {}, place, search, count,
      el("span.control", {}, el("button.plain", { type: "button", onclick: () => openAll(true) }, "Open all"),
        el("button.plain", { type: "button", onclick: () => openAll(false) }, "Close all"))),
    el("p.aside.keys", {}, "Keys: j next turn · k previous turn · / search. Complete in ", fileLink("conversation.json"), "."),
    blocks, plan);
}

const stagesOf = (turns) => [...new Set(turns.flatMap((turn) => turn.calls.map((call) => call.stage)))].sort();
const failedCalls = (turn) => turn.calls.filter((call) => call.status !== "ok");
const isBrief = (turn) => turn.messages.length > 0 && !turn.calls.length && turn.messages.every((message) => ["system", "user"].includes(message.role));

function quotedTurns() {
  const turns = new Map();
  for (const [id, { turn }] of QUOTES) if (known(turn)) turns.set(turn, [...(turns.get(turn) ?? []), id]);
  return turns;
}

// --- the strip ---------------------------------------------------------------------------------------------

function strip(turns) {
  const shown = turns.filter((turn) => !(turn.turn === 0 && isBrief(turn)));
  const seconds = (turn) => turn.calls.reduce((sum, call) => sum + call.elapsed_s, 0);
  const total = shown.reduce((sum, turn) => sum + seconds(turn), 0);
  const part = (turn, grow) => {
    const stage = turn.calls[0]?.stage ?? "none";
    const failed = failedCalls(turn).length > 0;
    const label = `turn ${turn.turn}${stage === "none" ? "" : ` · ${stage} ${SHARED.stages[stage].title}`} · ${duration(seconds(turn))}${failed ? " · failed" : ""}`;
    return el(`a.part.${stage}${failed ? ".failed" : ""}`, { href: `#turn-${turn.turn}`, title: label, "aria-label": label, "--grow": grow });
  };
  const row = (title, parts) => el("div.strip-row", {}, el("span", {}, title), el("div.parts", {}, parts));
  const stages = stagesOf(shown);
  return el("div.strip", { role: "group", "aria-label": "Turns by stage" },
    row("By turn", shown.map((turn) => part(turn, 1))),
    total > 0 && row("By time of code", shown.filter((turn) => seconds(turn) > 0).map((turn) => part(turn, seconds(turn) / total))),
    el("ul.legend", {}, stages.map((stage) => el("li", {}, el(`i.swatch.${stage}`), `${stage} ${SHARED.stages[stage].title}`)),
      shown.some((turn) => failedCalls(turn).length) && el("li", {}, el("i.swatch.failed"), "a call failed"),
      el("li", {}, `${duration(total)} of code in all`)));
}

// --- turns -------------------------------------------------------------------------------------------------

function turnBlock(turn, quotes) {
  const stages = [...new Set(turn.calls.map((call) => call.stage))];
  const seconds = turn.calls.reduce((sum, call) => sum + call.elapsed_s, 0);
  const bad = (status) => ["refused", "killed"].includes(status);
  const summary = el("summary", {}, turn.turn === 0 && isBrief(turn) ? "Brief " : `Turn ${turn.turn} `,
    stages.map((stage) => el(`span.tag.stage.${stage}`, {}, `${stage} ${SHARED.stages[stage].title}`)),
    failedCalls(turn).map((call) => tag(call.status, bad(call.status) ? "bad" : "warn")),
    quotes.length > 0 && tag(`quoted ${quotes.length > 1 ? `${quotes.length}×` : ""}`.trim(), "", quotes.join(", ")),
    turn.calls.length > 0 && el("span.when", {}, duration(seconds)));
  return el("details.turn", { id: `turn-${turn.turn}`, open: !isBrief(turn) }, summary, inOrder(turn));
}

// Messages of the agent, its code with output, then results of tools.
function inOrder(turn) {
  const isToolResult = (message) => message.role === "tool";
  return [turn.messages.filter((message) => !isToolResult(message)).map(messageText), turn.calls.map(codeCall), turn.messages.filter(isToolResult).map(messageText)];
}

function messageText(message) {
  const speaker = message.by_program ? PROGRAM[message.role] ?? "Program to model" : SPEAKERS[message.role];
  if (!message.content.trim()) return thoughts(message);
  if (message.role !== "assistant" || message.by_program) return block(speaker, message.content, "output");
  return [thoughts(message), el("div.said", {}, el("b", {}, speaker), foreign(message.content))];
}

// What the provider shows of the model's reasoning; no judge sees it, so no quote is looked for in it.
function thoughts(message) {
  if (!message.reasoning) return null;
  const label = `reasoning · ${message.reasoning.length} characters`;
  const body = el("pre.foreign", { tabindex: 0, "aria-label": label }, message.reasoning);
  return el("details.block.output.thoughts", {}, el("summary", {}, label), body);
}

function codeCall(call) {
  const exit = known(call.exit_code) ? `, exit code ${call.exit_code}` : "";
  const label = `${call.language} · ${call.status}${exit} · ${duration(call.elapsed_s)}`;
  return [
    block(label, call.code, call.status === "ok" ? "code" : "error", true),
    call.stdout.trim() && block("output", call.stdout, "output"),
    call.stderr.trim() && block("error output", call.stderr, call.status === "ok" ? "output" : "error"),
    call.new_files.length > 0 && filesWritten(call.new_files),
  ];
}

function filesWritten(files) {
  const list = foreign(files.join("\n"));
  if (files.length < 4) return el("p.said.aside", {}, el("b", {}, "Files written"), list);
  return el("details.aside", {}, el("summary", {}, `${files.length} files written`), el("div.said", {}, list));
}

function block(label, text, kind, numbered = false) {
  const lines = text.replace(/\n$/, "").split("\n").length;
  const body = el("pre.foreign", { tabindex: 0, "aria-label": label }, text);
  const numbers = numbered && el("pre.lines", { "aria-hidden": "true" }, Array.from({ length: lines }, (_, i) => i + 1).join("\n"));
  const content = numbered ? el("div.numbered", {}, numbers, body) : body;
  if (lines <= (numbered ? LONG.code : LONG.output) && text.length < 6000) return el(`div.block.${kind}`, {}, el("div.label", {}, label), content);
  return el(`details.block.${kind}`, {}, el("summary", {}, `${label} · ${lines} lines`), content);
}

// --- passages ----------------------------------------------------------------------------------------------

const pattern = (words) => new RegExp(words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("\\s+"));

function textNodes(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT, (node) =>
    node.parentElement.closest("summary, .lines, .label, .thoughts") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  return nodes;
}

// The passage of a quote below an element, white space aside; of a shortened one its first words.
function passage(root, quote) {
  const words = visible(quote).replace(/^line \d+: |…$|\[…\]/g, "").trim().split(/\s+/).filter(Boolean);
  for (const wanted of [words, words.slice(0, 8), words.slice(0, 4)]) {
    if (!wanted.length) return null;
    for (const node of textNodes(root)) {
      const match = pattern(wanted).exec(node.data);
      if (!match) continue;
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      return range;
    }
  }
  return null;
}

function unmark() {
  document.querySelectorAll("mark.quoted").forEach((mark) => {
    const parent = mark.parentNode;
    mark.replaceWith(...mark.childNodes);
    parent.normalize();
  });
  document.querySelectorAll(".turn.here").forEach((turn) => turn.classList.remove("here"));
}

// A turn of this name, opened and marked, with the passage that a quote took from it.
function goTo(id, quote) {
  const target = document.getElementById(id);
  if (!target) return;
  unmark();
  target.hidden = false;
  if ("open" in target) target.open = true;
  if (target.classList.contains("turn")) target.classList.add("here");
  const range = quote && passage(target, quote);
  if (!range) return target.scrollIntoView();
  const mark = el("mark.quoted", { tabindex: -1 });
  range.surroundContents(mark);
  for (let up = mark.parentElement; up && up !== target; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
  mark.scrollIntoView({ block: "center" });
  mark.focus({ preventScroll: true });
}

function highlight(blocks, wanted) {
  if (!CSS.highlights) return;
  const ranges = [];
  for (const node of wanted.length > 1 ? blocks.flatMap(textNodes) : []) {
    const text = node.data.toLowerCase();
    for (let at = text.indexOf(wanted); at >= 0 && ranges.length < 2000; at = text.indexOf(wanted, at + wanted.length)) {
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, Math.min(node.length, at + wanted.length));
      ranges.push(range);
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

function stepTurn(by) {
  const turns = [...document.querySelectorAll("#transcript .turn:not([hidden])")];
  const here = turns.findIndex((turn) => turn.classList.contains("here"));
  const next = here >= 0 ? here + by : Math.max(0, turns.findIndex((turn) => turn.getBoundingClientRect().bottom > 80));
  const turn = turns[Math.min(turns.length - 1, Math.max(0, next))];
  if (turn) { goTo(turn.id); turn.querySelector("summary").focus({ preventScroll: true }); }
}
