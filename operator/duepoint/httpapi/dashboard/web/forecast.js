// The load of the coming days as a heat map: a row for each day, a cell for each hour.
//
// A cell is as dark as the worst minute of its hour, from least to most; shades follow the square
// root, so that ordinary hours differ beside a great peak. Red is what exceeds a limit, and nothing else.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { number, when } from "./format.js";
import { Polled, namespaceField } from "./poll.js";

const LEVELS = 5; // none, and four shades
const BEYOND = 5;
const USUAL_LIMIT = 1_000; // slots in a minute
const PATIENCE_SECONDS = 90; // tens of thousands of Schedules are counted, one forecast after the other
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

export function forecastPage(_parts, query, session) {
  return new ForecastPage(query, session);
}

class ForecastPage extends Polled {
  constructor(query, session) {
    const days = query.get("days") ?? "7";
    const choice = h("select", { "aria-label": "Days", onchange: () => this.#choose(this.namespace, choice.value, limit.value) },
      ["1", "3", "7", "14"].map((each) => h("option", { value: each, selected: each === days }, `${each} day${each === "1" ? "" : "s"}`)));
    const limit = h("input", {
      type: "number", min: 1, id: "limit", "aria-label": "Limit of slots in a minute", value: query.get("limit") ?? USUAL_LIMIT,
      onchange: () => this.#choose(this.namespace, choice.value, limit.value),
    });
    const controls = [namespaceField(session, query.get("ns") ?? "", (name) => this.#choose(name, choice.value, limit.value)), choice,
      h("label", { for: "limit" }, "Red above"), limit];
    super({ title: "Forecast", milliseconds: 300_000, controls });
    this.namespace = query.get("ns") ?? "";
    this.days = days;
    this.limit = Number(query.get("limit")) || USUAL_LIMIT;
    this.session = session;
  }

  #choose(namespace, days, limit) {
    const query = new URLSearchParams();
    if (namespace) query.set("ns", namespace);
    if (days !== "7") query.set("days", days);
    if (Number(limit) > 0 && Number(limit) !== USUAL_LIMIT) query.set("limit", limit);
    location.hash = query.size ? `#/forecast?${query}` : "#/forecast";
  }

  reload() {
    if (this.namespace || this.session.mayListAll) return super.reload();
    this.say("Choose a namespace: you may not list Schedules of all.");
    return undefined;
  }

  read() {
    return get("forecast", { namespace: this.namespace, days: this.days, timeZone: ZONE }, undefined, PATIENCE_SECONDS);
  }

  draw(found) {
    const suspended = found.suspended ? `, ${number(found.suspended)} of them suspended` : "";
    const unread = found.unread ? ` ${number(found.unread)} cannot be read and are left out.` : "";
    replace(
      this.content,
      h("p", {}, `${number(found.schedules)} Schedules${suspended}: ${number(found.runs)} runs. Retries, runs by hand and members of sets are not counted.${unread}`),
      found.runs ? [this.map(found), h("h2", {}, "Worst minutes"), this.worst(found)] : null,
    );
  }

  map(found) {
    const scale = scaleOf(found.hours.map((hour) => hour.peak), this.limit);
    const days = new Map();
    for (const hour of found.hours) {
      if (!days.has(hour.day)) days.set(hour.day, new Map());
      days.get(hour.day).set(hour.hour, hour);
    }
    const hours = Array.from({ length: 24 }, (_, hour) => hour);
    return [
      h("div", { class: "wrap", tabindex: "0", role: "region", "aria-label": "Heat map" },
        h("table", { class: "heat" },
          h("caption", {}, `Slots in the worst minute of each hour (${found.timeZone})`),
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Day"), hours.map((hour) => h("th", { scope: "col" }, String(hour).padStart(2, "0"))))),
          h("tbody", {}, [...days].map(([day, cells]) => h("tr", {}, h("th", { scope: "row" }, day), hours.map((hour) => cell(day, cells.get(hour), scale))))))),
      h("ul", { class: "legend", "aria-label": "Shades" }, scale.levels().map((level) =>
        h("li", {}, h("span", { class: `shade heat-${level}`, "aria-hidden": "true" }), scale.label(level)))),
    ];
  }

  worst(found) {
    return h("ol", { class: "plainlist" }, found.worst.map((minute) => h("li", {},
      h("strong", {}, `${amount(minute.slots)} slots`), ` at ${when(minute.time, found.timeZone)}${minute.alike ? `, and in ${number(minute.alike)} minutes like it` : ""}`,
      h("ul", {}, minute.inside.map((each) => h("li", {},
        h("code", {}, each.schedule), ` (${each.timeZone}): ${amount(each.slots)} of `,
        each.such.map((name, place) => [place ? ", " : "", h("a", { href: `#/schedule/${name.split("/").map(encodeURIComponent).join("/")}` }, name)]),
        each.schedules > each.such.length ? `, and ${number(each.schedules - each.such.length)} more` : ""))))));
  }
}

function cell(day, hour, scale) {
  if (!hour) return h("td", {});
  const text = `${day} ${String(hour.hour).padStart(2, "0")}:00: ${amount(hour.peak)} in the worst minute, ${number(hour.runs)} in the hour`;
  return h("td", { class: `heat-${scale.level(hour.peak)}`, title: text }, h("span", { class: "value" }, hour.peak ? amount(hour.peak) : "·"));
}

function amount(value) {
  if (value >= 10_000) return `${Math.round(value / 1000)}k`;
  return value < 10 && !Number.isInteger(value) ? value.toFixed(1) : number(Math.round(value));
}

function scaleOf(peaks, limit) {
  const some = peaks.filter((peak) => peak > 0 && peak <= limit);
  const least = some.length ? Math.min(...some) : limit;
  const most = some.length ? Math.max(...some) : limit;
  // Hours that differ by less than half look alike: 82 beside 81 is not a peak.
  const top = Math.max(most, 2 * least);
  const isBeyond = peaks.some((peak) => peak > limit);
  const level = (value) => {
    if (value <= 0) return 0;
    if (value > limit) return BEYOND;
    const share = Math.sqrt(Math.max(0, value - least) / (top - least));
    return 1 + Math.min(LEVELS - 2, Math.floor(share * (LEVELS - 1)));
  };
  return {
    level,
    label(shade) {
      if (shade === 0) return "none";
      if (shade === BEYOND) return `more than ${amount(limit)}`;
      return `from ${amount(least + (top - least) * ((shade - 1) / (LEVELS - 1)) ** 2)}`;
    },
    levels() {
      return [...Array(some.length ? level(most) + 1 : 1).keys(), ...(isBeyond ? [BEYOND] : [])];
    },
  };
}
