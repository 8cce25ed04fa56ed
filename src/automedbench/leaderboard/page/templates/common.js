// Shared by the board and the pages of runs; joined with theirs in one function. All text enters the document as text nodes; nothing here parses markup.
// --- text and elements -------------------------------------------------------------------------------------

// Characters that would vanish or reorder text (controls, bidi marks, zero-width, tags) are shown instead.
const HIDDEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const shown = (char) =>
  char === "\u001b" ? "⟨ESC⟩" : `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
const visible = (text) => String(text).replace(/\r\n?/g, "\n").replace(HIDDEN, shown);

// el("div.card", { onclick, "--w": "40%", hidden: true, title }, child, [child, "text"], null)
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
const section = (title, ...children) => el("section", {}, el("h3", {}, title), children);
const facts = (pairs) =>
  el("dl.facts", {}, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd.foreign", {}, value))));

// --- data --------------------------------------------------------------------------------------------------

const data = (id) => JSON.parse(document.getElementById(id).textContent);
// JSON that was deflated, in base64.
function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (char) => char.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}
// Tables of the board come by columns, repeated values as numbers of levels.
function ledger({ n, columns }) {
  const values = Object.entries(columns).map(([name, column]) =>
    [name, column.levels ? (i) => column.levels[column.codes[i]] : (i) => column.values[i]]);
  return Array.from({ length: n }, (_, i) => Object.fromEntries(values.map(([name, value]) => [name, value(i)])));
}
const runPath = (run) => `${run.agent}/${run.task}/${run.tier}/r${run.repeat}`;
const encodePath = (path) => path.split("/").map(encodeURIComponent).join("/");
const runPage = (run) => `runs/${encodePath(runPath(run))}.html`;

// --- numbers -----------------------------------------------------------------------------------------------

const DASH = "–";
const known = (value) => value !== null && value !== undefined;
const percent = (value) => (known(value) ? (100 * value).toFixed(1) : DASH);
const share = (value) => (known(value) ? `${(100 * value).toFixed(0)} %` : DASH);
const number = (value) => (known(value) ? value.toFixed(1) : DASH);
const pValue = (value) => (known(value) ? (value < 0.001 ? "< 0.001" : value.toFixed(3)) : DASH);
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

// A column: title, cell(row) → text or element, value(row) → what sorting compares; help, header, pin, numeric, heat,
// strong, kind, name and csv(row) (what a file says, else the value, else the text) are optional. `page` rows are shown at a time, `more` stands below them; `row(row)` → attributes of its <tr>;
// `sorted` = { title, down } is the order at first, and onsort(title, down) is told of a new one.
function table(columns, rows, { label, tall = false, sortable = true, page = Infinity, more, row: attributes, sorted, onsort } = {}) {
  const body = el("tbody");
  const pager = rows.length > page && el("div.pager");
  let [ordered, first] = [rows, 0];
  function draw() {
    body.replaceChildren(...ordered.slice(first, first + page).map((row) => tableRow(columns, row, attributes)));
    if (pager) drawPager();
  }
  function drawPager() {
    const turn = (to) => () => { first = to; draw(); };
    const [back, next] = [first - page, first + page];
    const button = (title, to, enabled) =>
      el("button.plain", { type: "button", disabled: !enabled, onclick: turn(to) }, title);
    pager.replaceChildren(
      button("Previous", back, back >= 0),
      button("Next", next, next < ordered.length),
      el("span", { role: "status" }, `${first + 1}–${Math.min(next, ordered.length)} of ${ordered.length}`));
  }
  const heads = columns.map((column) => {
    const head = sortable && column.value ? sortHead(column, () => sortByUser(column)) : column.title;
    const kind = [column.numeric && "num", column.pin && "pin", column.name && "name"];
    return el(["th", ...kind.filter(Boolean)].join("."), { scope: "col", title: column.help }, head);
  });
  function sortBy(column, way) {
    const head = heads[columns.indexOf(column)];
    const down = way ?? head.getAttribute("aria-sort") !== "descending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    [ordered, first] = [sortedRows(rows, column.value, down), 0];
    draw();
  }
  function sortByUser(column) {
    sortBy(column);
    onsort?.(column.title, heads[columns.indexOf(column)].getAttribute("aria-sort") === "descending");
  }
  const start = sorted && columns.find((column) => column.title === sorted.title);
  if (start) sortBy(start, sorted.down);
  else draw();
  const inner = el("table", {}, el("thead", {}, el("tr", {}, heads)), body);
  const scroll = el(tall ? "div.scroll.tall" : "div.scroll", { role: "region", "aria-label": label, tabindex: 0 }, inner);
  WIDTHS.observe(scroll);
  const save = el("button.csv", { type: "button", title: `${label}: all ${ordered.length} rows as CSV`, onclick: () => download(label, columns, ordered) }, "CSV");
  return el("div.table", {}, scroll, el("div.below", {}, pager, more, el("span.scrolls", { hidden: true }, "↔ Scroll sideways for more columns."), save));
}

// Says below a table that it is wider than its place.
const WIDTHS = new ResizeObserver((entries) => {
  for (const { target } of entries)
    target.parentElement.querySelector(".scrolls").hidden = target.scrollWidth <= target.clientWidth + 1;
});

// As the files beside the page: text that a spreadsheet would take for a formula gets an apostrophe.
function csvText(column, row) {
  const own = column.csv ? column.csv(row) : column.value?.(row);
  if (typeof own === "number") return String(own);
  const parts = [...el("td", {}, column.cell(row)).childNodes].map((part) => part.textContent);
  const text = column.csv || column.value ? visible(own ?? "") : parts.join("; ");
  return `"${text.replace(/^(?=[=+\-@\t\r])/, "'").replaceAll('"', '""')}"`;
}

function download(name, columns, rows) {
  const lines = [columns.map((column) => `"${column.title}"`), ...rows.map((row) => columns.map((column) => csvText(column, row)))];
  const url = URL.createObjectURL(new Blob([lines.map((line) => `${line.join(",")}\n`).join("")], { type: "text/csv" }));
  el("a", { href: url, download: `${name.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const sortHead = (column, sort) =>
  el("button.head", { type: "button", onclick: sort, title: column.help ?? `Sort by ${column.title}` }, column.title);

// Unknown values come last, whichever way.
function sortedRows(rows, value, down) {
  const order = down ? -1 : 1;
  const words = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => (typeof a === "number" ? a - b : words.compare(String(a), String(b)));
  const keyed = rows.map((row) => [value(row), row]);
  keyed.sort(([a], [b]) => (known(a) && known(b) ? order * compare(a, b) : known(b) - known(a)));
  return keyed.map(([, row]) => row);
}

function tableRow(columns, row, attributes) {
  const cells = columns.map((column) => {
    const content = column.cell(row);
    if (column.header) return el("th", { scope: "row" }, content);
    const heat = column.heat && known(column.heat(row)) ? column.heat(row) : undefined;
    const kind = [column.kind, column.numeric && "num", column.strong && "strong", known(heat) && "heat"];
    return el(["td", ...kind.filter(Boolean)].join("."), { "--v": heat }, content);
  });
  return el("tr", attributes?.(row) ?? {}, cells);
}

const scoreColumn = (title, name, more = {}) => ({
  title, numeric: true, value: (row) => row[name], cell: (row) => percent(row[name]), ...more,
});

// --- controls ----------------------------------------------------------------------------------------------

// Options are { key: title }; choose(key) is called on a change.
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

// Redrawn controls get the focus back, so that a keyboard user stays where they were.
function keepFocus(draw) {
  const place = document.activeElement?.closest(".control");
  const group = place && [...document.querySelectorAll(".control")].indexOf(place);
  const item = place && [...place.querySelectorAll("button, select")].indexOf(document.activeElement);
  draw();
  if (place) document.querySelectorAll(".control")[group]?.querySelectorAll("button, select")[item]?.focus();
}

// --- light and dark ----------------------------------------------------------------------------------------

const THEMES = { system: "◐ system", light: "○ light", dark: "● dark" };
const kept = (action) => { try { return action(localStorage); } catch { return null; } }; // storage may be switched off

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  kept((storage) => storage.setItem("automedbench-theme", theme));
  document.dispatchEvent(new Event("themechange"));
}

function themeButton() {
  const names = Object.keys(THEMES);
  const now = () => document.documentElement.dataset.theme ?? "system";
  const button = el("button.plain.theme", { type: "button", title: "Colours: as the system has them, light or dark" });
  const label = () => button.replaceChildren(THEMES[now()]);
  button.addEventListener("click", () => { setTheme(names[(names.indexOf(now()) + 1) % names.length]); label(); });
  label();
  return button;
}

const stored = kept((storage) => storage.getItem("automedbench-theme"));
if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
