// In a frame of beside.html: this page tells the page around it what the reader does, and follows what it is told.
// It listens to that page alone, which listens to its frames alone; what passes between them is never markup.

const AROUND = window.parent === window ? null : window.parent;

function beFramed() {
  if (!AROUND) return;
  document.documentElement.classList.add("framed");
  const tell = (message) => AROUND.postMessage(message, "*"); // files have no origin that could be named
  chose = (view) => tell({ view });
  let expected; // where the page was scrolled to by us
  const place = () => {
    const parts = [...document.querySelectorAll("main > section, #transcript > .turn:not([hidden])")];
    const at = parts.findLast((part) => part.getBoundingClientRect().top < 40);
    if (!at) return null;
    const { top, height } = at.getBoundingClientRect();
    return { id: at.id, section: at.closest("section").id, share: (40 - top) / Math.max(1, height) };
  };
  document.addEventListener("scroll", () => {
    if (known(expected) && Math.abs(scrollY - expected) < 2) { expected = null; return; }
    tell({ scroll: place() });
  });
  const scroll = (there) => {
    const target = document.getElementById(there?.id ?? "") ?? document.getElementById(there?.section ?? "");
    const { top, height } = target?.getBoundingClientRect() ?? {};
    if (!target || target.hidden || !Number.isFinite(there.share)) return;
    expected = Math.max(0, Math.min(Math.round(scrollY + top + there.share * height - 40), document.documentElement.scrollHeight - innerHeight));
    window.scrollTo({ top: expected, behavior: "instant" });
  };
  window.addEventListener("message", ({ source, data: message }) => {
    if (source !== AROUND || typeof message !== "object" || message === null) return;
    if (message.only === "cases") document.documentElement.classList.add("only-cases");
    if (message.view) VIEWER?.follow(message.view);
    if (message.answer) VIEWER?.report();
    if ("scroll" in message) scroll(message.scroll);
  });
  const grown = () => tell({ height: document.querySelector("main").scrollHeight });
  new ResizeObserver(grown).observe(document.querySelector("main"));
  tell({ ready: true, cases: VIEWER?.names ?? [] });
}
