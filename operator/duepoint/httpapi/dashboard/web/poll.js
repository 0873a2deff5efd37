// A page that asks again and again while it is in sight, and says so where it cannot.

import { h, keepingFocus, replace } from "./dom.js";
import { when } from "./format.js";

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

// Says of what moment data is once it could not be read again, and why.
export class AsOf {
  constructor() {
    this.element = h("p", { class: "stale", role: "status", hidden: true });
  }

  read() {
    this.at = new Date();
    this.element.hidden = true;
  }

  failed(message) {
    const text = `As of ${when(this.at, ZONE)}: ${message}`;
    if (this.element.textContent !== text) this.element.textContent = text;
    this.element.hidden = false;
  }
}

export class Polled {
  // `read()` -> what is shown by `draw(found)` into `content`.
  constructor({ title, milliseconds, heading, controls }) {
    this.title = title;
    this.milliseconds = milliseconds;
    this.asOf = new AsOf();
    this.content = h("div", {}, h("p", { class: "empty" }, "Loading…"));
    this.element = h("section", { class: "page" }, h("div", { class: "bar inner" }, h("h1", {}, heading ?? title), controls ?? null), this.asOf.element, this.content);
  }

  start() {
    this.reload();
    this.timer = setInterval(() => document.visibilityState === "visible" && !this.isAsking && this.reload(), this.milliseconds);
  }

  close() {
    clearInterval(this.timer);
    this.isClosed = true;
  }

  async reload() {
    const asked = (this.asked = (this.asked ?? 0) + 1);
    this.isAsking = true;
    let found;
    try {
      found = await this.read();
    } catch (error) {
      if (this.isClosed || asked !== this.asked) return;
      if (this.found) this.asOf.failed(error.message);
      else this.say(error.message);
      return;
    } finally {
      if (asked === this.asked) this.isAsking = false;
    }
    if (this.isClosed || asked !== this.asked) return; // a newer question is on its way
    this.found = found;
    this.asOf.read();
    keepingFocus(this.content, () => this.draw(found));
  }

  say(text) {
    replace(this.content, h("p", { class: "empty" }, text));
  }
}

// A field for a namespace; `onChange(name)`, empty for all.
export function namespaceField(session, value, onChange) {
  const field = h("input", {
    type: "text", list: "known-namespaces", value, "aria-label": "Namespace", autocomplete: "off", spellcheck: "false",
    placeholder: session.mayListAll ? "All namespaces" : "Namespace", onchange: () => onChange(field.value.trim()),
  });
  return [field, h("datalist", { id: "known-namespaces" }, (session.namespaces ?? []).map((name) => h("option", { value: name })))];
}
