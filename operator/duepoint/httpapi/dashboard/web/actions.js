// What may be done with a Schedule: run it once, hold it, let it go on.

import { post } from "./api.js";
import { h, notice } from "./dom.js";

// The buttons for a Schedule as its page has it; `onDone` when something was changed.
export function actions(found, path, onDone) {
  const may = found.may;
  if (!may.trigger && !may.suspend) return null;
  return h("p", { class: "actions" },
    may.trigger ? button("Trigger", "trigger", () => ask({
      title: `Run ${found.name} now?`,
      text: "It runs once, beside its schedule, suspended or not.",
      verb: "Trigger",
      fields: [],
      act: async () => {
        const made = await post(`${path}/trigger`);
        notice(`ScheduleRun ${made.run} was created.`);
      },
    }, onDone)) : null,
    may.suspend && !found.spec.suspend ? button("Suspend", "suspend", () => ask({
      title: `Suspend ${found.name}?`,
      text: "No slot of it runs until it resumes.",
      verb: "Suspend",
      fields: [
        { name: "reason", label: "Reason", type: "text", maxlength: 256 },
        { name: "until", label: "Until (empty: until somebody resumes it)", type: "datetime-local" },
      ],
      act: async ({ reason, until }) => {
        await post(`${path}/suspend`, { reason, until: until ? new Date(until).toISOString() : null });
        notice(`${found.name} is suspended.`);
      },
    }, onDone)) : null,
    may.suspend && found.spec.suspend ? button("Resume", "resume", () => ask({
      title: `Resume ${found.name}?`,
      text: "Slots of the suspension do not run.",
      verb: "Resume",
      fields: [],
      act: async () => {
        await post(`${path}/resume`);
        notice(`${found.name} has resumed.`);
      },
    }, onDone)) : null);
}

function button(text, name, onclick) {
  return h("button", { type: "button", class: "action", dataset: { focus: name }, onclick }, text);
}

// Asks before it acts, with a field for each thing to know; the browser's own dialog keeps the focus inside and Escape closes it.
export function ask({ title, text, verb, fields, act }, onDone) {
  const inputs = fields.map((field) => [field.name, h("input", { id: `field-${field.name}`, type: field.type, maxlength: field.maxlength })]);
  const trouble = h("p", { class: "trouble", role: "alert" });
  const yes = h("button", { type: "submit", class: "primary" }, verb);
  const form = h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    yes.disabled = true;
    trouble.textContent = "";
    try {
      await act(Object.fromEntries(inputs.map(([name, input]) => [name, input.value.trim() || null])));
      dialog.close();
      onDone();
    } catch (error) {
      trouble.textContent = error.message;
      yes.disabled = false;
    }
  } },
  h("h2", { id: "dialog-title" }, title), h("p", {}, text),
  fields.map((field, place) => h("p", { class: "field" }, h("label", { for: `field-${field.name}` }, field.label), inputs[place][1])),
  trouble,
  h("p", { class: "actions" }, yes, h("button", { type: "button", class: "action", onclick: () => dialog.close() }, "Cancel")));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() }, form);
  document.body.append(dialog);
  dialog.showModal();
}
