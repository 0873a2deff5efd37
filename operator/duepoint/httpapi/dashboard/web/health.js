// How a Schedule, a set or a slot stands: one word with a mark of its own, not a colour alone.

import { h } from "./dom.js";

export const HEALTH = {
  problem: { mark: "✕", text: "problem", about: "refused, or waits for something that has to be mended" },
  failing: { mark: "!", text: "failing", about: "its runs fail, are late or are missed" },
  late: { mark: "◷", text: "late", about: "the next slot has passed a minute ago and has not been settled" },
  waiting: { mark: "…", text: "waiting", about: "the newest edit is not in force yet" },
  suspended: { mark: "‖", text: "suspended", about: "no slot runs until it resumes" },
  completed: { mark: "■", text: "completed", about: "no slot is left" },
  ok: { mark: "✓", text: "ok", about: "armed, and its runs do not fail" },
};

const OUTCOMES = {
  Succeeded: "ok", Running: "waiting", Retrying: "waiting", Waiting: "waiting", Failed: "failing",
  Missed: "failing", Replaced: "completed", Skipped: "completed",
};
const LATE_MILLISECONDS = 60_000;

// The health of a row; what is late shows only beside the clock. `nextAt`, where a row has it, is `next` as a number.
export function healthOf(row, now = Date.now()) {
  const isLate = row.health === "ok" && row.next && (row.nextAt ?? Date.parse(row.next)) < now - LATE_MILLISECONDS;
  return isLate ? "late" : row.health;
}

export function badge(health) {
  const { mark, text } = HEALTH[health] ?? { mark: "?", text: health };
  return h("span", { class: `badge ${health}` }, h("span", { "aria-hidden": "true" }, mark), text);
}

export function outcome(text) {
  if (!text) return "";
  const kind = OUTCOMES[text] ?? "completed";
  return h("span", { class: `badge ${kind}` }, h("span", { "aria-hidden": "true" }, HEALTH[kind].mark), text);
}
