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
  const shown = h("p", { class: `notice ${kind}` }, text);
  document.getElementById("notices").append(shown);
  setTimeout(() => shown.remove(), kind === "error" ? 12_000 : 6_000);
}
