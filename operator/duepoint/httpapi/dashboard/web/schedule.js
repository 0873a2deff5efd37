// A Schedule: how it stands, what may be done with it, its next times, its slots and why each ended so.

import { actions } from "./actions.js";
import { get, pathOf } from "./api.js";
import { h, keepingFocus, replace } from "./dom.js";
import { distance, number, seconds, span, when } from "./format.js";
import { badge, healthOf, outcome } from "./health.js";
import { AsOf } from "./poll.js";

const REFRESH_MILLISECONDS = 10_000;
const STALE_MILLISECONDS = 30_000; // distances to now

export function schedulePage([namespace, name]) {
  return new SchedulePage(namespace, name);
}

class SchedulePage {
  constructor(namespace, name) {
    this.path = pathOf("namespaces", namespace, "schedules", name);
    this.namespace = namespace;
    this.name = name;
    this.title = `${namespace}/${name}`;
    this.asOf = new AsOf();
    this.content = h("div", {}, h("p", { class: "empty" }, "Loading…"));
    this.element = h(
      "section", { class: "page schedule" },
      h("p", { class: "crumbs" }, h("a", { href: "#/schedules" }, "Schedules"), " / ",
        h("a", { href: `#/schedules?ns=${encodeURIComponent(namespace)}` }, namespace)),
      h("h1", {}, name),
      this.asOf.element,
      this.content,
    );
  }

  start() {
    this.reload();
    this.timer = setInterval(() => document.visibilityState === "visible" && this.reload(), REFRESH_MILLISECONDS);
  }

  close() {
    clearInterval(this.timer);
    this.isClosed = true;
  }

  async reload() {
    try {
      const found = await get(this.path);
      if (this.isClosed) return;
      this.asOf.read();
      this.draw(found);
    } catch (error) {
      if (this.isClosed) return;
      if (this.found) this.asOf.failed(error.message);
      else replace(this.content, h("p", { class: "empty" }, error.message));
    }
  }

  draw(found) {
    // What was opened, and where the focus is, outlasts a refresh that brings nothing new.
    const text = JSON.stringify(found);
    const now = Date.now();
    if (text === this.drawn && now < this.drawnAt + STALE_MILLISECONDS) return;
    this.drawnAt = now;
    keepingFocus(this.content, () => this.drawAnew(found, text));
  }

  drawAnew(found, text) {
    const open = new Set([...this.content.querySelectorAll("details[open]")].map((each) => each.dataset.key));
    this.found = found;
    this.drawn = text;
    const zone = found.timeZone;
    replace(
      this.content,
      h("p", { class: "lead" }, badge(healthOf(found)), " ", h("code", {}, found.schedule ?? ""), ` in ${zone}`,
        found.target ? h("span", { class: "muted" }, ` → ${found.target}`) : null),
      actions(found, this.path, () => this.reload()),
      this.standing(found),
      h("div", { class: "columns" },
        h("div", { class: "wide" }, h("h2", {}, "Last slots"), this.slots(found, zone),
          h("p", {}, h("a", { href: `#/deadletters?${new URLSearchParams({ ns: this.namespace, schedule: this.name })}` }, "Dead letters"))),
        h("div", {}, h("h2", {}, "Next times"), this.upcoming(found, zone))),
      h("details", { dataset: { key: "spec" } }, h("summary", {}, "Spec"),
        h("pre", { tabindex: "0" }, JSON.stringify(found.spec, null, 2))),
    );
    for (const each of this.content.querySelectorAll("details")) each.open = open.has(each.dataset.key);
  }

  standing(found) {
    const lines = found.conditions
      .filter((each) => each.message)
      .map((each) => h("li", {},
        h("strong", {}, each.reason === each.type ? each.type : `${each.type} (${each.reason})`), `: ${each.message}`,
        each.lastTransitionTime ? h("span", { class: "muted", title: when(each.lastTransitionTime) }, ` since ${distance(each.lastTransitionTime)}`) : null,
        each.type === "Ready" && found.health === "ok" ? null : advice(found.advice[each.reason], each.type)));
    const { suspend, suspendUntil, suspendReason } = found.spec;
    if (suspend) {
      const until = suspendUntil ? ` until ${when(suspendUntil, found.timeZone)}` : "";
      lines.unshift(h("li", {}, h("strong", {}, `Suspended${until}`), suspendReason ? `: ${suspendReason}` : ""));
    }
    return lines.length ? h("ul", { class: "standing" }, lines) : null;
  }

  upcoming(found, zone) {
    if (!found.upcoming.length) return h("p", { class: "muted" }, "None.");
    return h("ol", { class: "upcoming" }, found.upcoming.map((text) =>
      h("li", {}, h("time", { datetime: text, title: when(text) }, when(text, zone)), " ",
        h("span", { class: "muted" }, distance(text)))));
  }

  slots(found, zone) {
    if (!found.slots.length) return h("p", { class: "muted" }, "No slot has come yet.");
    const rows = found.slots.map((slot) => this.slot(slot, found, zone));
    const titles = ["Slot", "Outcome", "Late", "Took", "Attempts", "Why"];
    return h("div", { class: "wrap", tabindex: "0", role: "region", "aria-label": "Last slots" },
      h("table", { class: "slots" },
        h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, rows)));
  }

  slot(slot, found, zone) {
    const late = seconds(slot.scheduledTime, slot.startTime);
    const took = seconds(slot.startTime, slot.finishTime);
    const why = [slot.reason, slot.message].filter(Boolean).join(": ");
    const more = slot.count > 1 ? ` and ${number(slot.count - 1)} before` : "";
    const trigger = slot.trigger && slot.trigger !== "Schedule" ? h("span", { class: "muted" }, ` ${slot.trigger}`) : null;
    return h("tr", {},
      h("td", { "data-title": "Slot" }, h("time", { datetime: slot.scheduledTime, title: when(slot.scheduledTime) }, when(slot.scheduledTime, zone)), more, trigger),
      h("td", { "data-title": "Outcome" }, outcome(slot.outcome)),
      h("td", { "data-title": "Late", class: "number" }, late === null ? "" : span(late)),
      h("td", { "data-title": "Took", class: "number" }, took === null ? "" : span(took)),
      h("td", { "data-title": "Attempts", class: "number" }, number(slot.attempts || (slot.startTime ? 1 : null))),
      h("td", { "data-title": "Why", class: "why" }, why,
        slot.httpStatus ? h("span", { class: "muted" }, ` HTTP ${slot.httpStatus}`) : null,
        slot.jobName ? h("span", { class: "muted" }, ` Job ${slot.jobName}`) : null,
        advice(found.advice[slot.reason], `${slot.scheduledTime} ${slot.trigger} ${slot.jobName ?? ""}`)));
  }
}

// What to do next, folded away; `key` tells what it is about.
function advice(steps, key) {
  if (!steps) return null;
  return h("details", { class: "advice", dataset: { key } }, h("summary", {}, "what to do"),
    h("ul", {}, steps.map((step) => h("li", {}, step))));
}
