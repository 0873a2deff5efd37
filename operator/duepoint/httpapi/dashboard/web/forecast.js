// The load of the coming days as a heat map: a row for each day, a cell for each hour.
//
// A cell is as dark as the worst minute of its hour; shades follow the square root, so that ordinary
// hours differ beside a great peak. The same as `duepoint forecast` shows.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { number, when } from "./format.js";
import { Polled, namespaceField } from "./poll.js";

const LEVELS = 6;
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

export function forecastPage(_parts, query, session) {
  return new ForecastPage(query, session);
}

class ForecastPage extends Polled {
  constructor(query, session) {
    const days = query.get("days") ?? "7";
    const choice = h("select", { "aria-label": "Days", onchange: () => this.#choose(this.namespace, choice.value) },
      ["1", "3", "7", "14"].map((each) => h("option", { value: each, selected: each === days }, `${each} day${each === "1" ? "" : "s"}`)));
    const controls = [namespaceField(session, query.get("ns") ?? "", (name) => this.#choose(name, choice.value)), choice];
    super({ title: "Forecast", milliseconds: 300_000, controls });
    this.namespace = query.get("ns") ?? "";
    this.days = days;
    this.session = session;
  }

  #choose(namespace, days) {
    const query = new URLSearchParams();
    if (namespace) query.set("ns", namespace);
    if (days !== "7") query.set("days", days);
    location.hash = query.size ? `#/forecast?${query}` : "#/forecast";
  }

  reload() {
    if (this.namespace || this.session.mayListAll) return super.reload();
    this.say("Choose a namespace: you may not list Schedules of all.");
    return undefined;
  }

  read() {
    return get("forecast", { namespace: this.namespace, days: this.days, timeZone: ZONE });
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
    const scale = scaleOf(found.hours.map((hour) => hour.peak));
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
        h("li", {}, h("span", { class: `shade heat-${level}`, "aria-hidden": "true" }), level ? `from ${amount(scale.begins(level))}` : "none"))),
    ];
  }

  worst(found) {
    return h("ol", { class: "plainlist" }, found.worst.map((minute) => h("li", {},
      h("strong", {}, `${amount(minute.slots)} slots`), ` at ${when(minute.time, found.timeZone)}`,
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

function scaleOf(peaks) {
  const some = peaks.filter((peak) => peak > 0);
  const most = Math.max(...some);
  const lowest = Math.min(...some);
  // Hours that differ by less than half look alike: 82 beside 81 is no peak.
  const least = lowest === most ? lowest : Math.min(lowest, most / 2);
  return {
    level(value) {
      if (value <= 0) return 0;
      const share = most > least ? Math.sqrt(Math.max(0, value - least) / (most - least)) : 1;
      return 1 + Math.min(LEVELS - 2, Math.floor(share * (LEVELS - 1)));
    },
    begins(level) {
      return most > least ? least + (most - least) * ((level - 1) / (LEVELS - 1)) ** 2 : most;
    },
    // Where all hours with slots are alike, they have the darkest shade.
    levels() {
      return most > least ? Array.from({ length: LEVELS }, (_, level) => level) : [0, LEVELS - 1];
    },
  };
}
