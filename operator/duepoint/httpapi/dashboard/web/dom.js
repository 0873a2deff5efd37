// Elements without text that is read as HTML: everything goes in as text or as an element.

const SVG = "http://www.w3.org/2000/svg";

// An element. `properties`: `class`, `on<event>` functions, `dataset`, everything else an attribute;
// null and false leave it out. Children: elements and texts; null and false are left out.
export function h(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

const FOCUSABLE = "a, button, input, select, summary, [tabindex]";
const nameOf = (each) => each.dataset.focus ?? each.getAttribute("aria-label") ?? each.textContent;

// `draw()` makes the content of an element anew; the focus stays on what has the same name there.
export function keepingFocus(element, draw) {
  const active = document.activeElement;
  const isInside = active !== element && element.contains(active);
  const name = isInside ? nameOf(active) : "";
  const alike = () => [...element.querySelectorAll(FOCUSABLE)].filter((each) => nameOf(each) === name);
  const place = isInside ? alike().indexOf(active) : -1;
  draw();
  if (place < 0 || active.isConnected) return;
  const found = alike();
  (found[place] ?? found[0])?.focus({ preventScroll: true });
}

// Calls `action` at most once in so many milliseconds, and once more after the last call.
export function throttled(milliseconds, action) {
  let timer = 0;
  let last = -Infinity;
  return () => {
    if (timer) return;
    const wait = Math.max(0, last + milliseconds - performance.now());
    timer = setTimeout(() => {
      timer = 0;
      last = performance.now();
      action();
    }, wait);
  };
}

// Says something at the edge of the page for some seconds, and to screen readers.
export function notice(text, kind = "info") {
  const notices = document.getElementById("notices");
  if ([...notices.children].some((each) => each.textContent === text)) return; // said already
  const shown = h("p", { class: `notice ${kind}` }, text);
  notices.append(shown);
  setTimeout(() => shown.remove(), kind === "error" ? 12_000 : 6_000);
}
