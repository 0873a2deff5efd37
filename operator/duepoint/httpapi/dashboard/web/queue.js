// The queue: how late it is, how full, and who works on it.

import { get } from "./api.js";
import { h, replace, svg } from "./dom.js";
import { distance, number, span } from "./format.js";
import { Polled, namespaceField } from "./poll.js";

const SAMPLES = 120;
const LATE_SECONDS = 5;

export function queuePage(_parts, query, session) {
  return new QueuePage(query.get("ns") ?? "", session);
}

class QueuePage extends Polled {
  constructor(namespace, session) {
    const controls = namespaceField(session, namespace, (name) => this.#choose(name));
    super({ title: "Queue", milliseconds: 5_000, controls });
    this.namespace = namespace;
    this.session = session;
    this.lags = [];
  }

  #choose(name) {
    location.hash = name ? `#/queue?ns=${encodeURIComponent(name)}` : "#/queue";
  }

  reload() {
    if (this.namespace || this.session.mayListAll) return super.reload();
    this.say("Choose a namespace: the whole queue is for those who may list Schedules of all namespaces.");
    return undefined;
  }

  read() {
    return get("queue", { namespace: this.namespace });
  }

  draw(found) {
    this.lags.push(found.lagSeconds);
    if (this.lags.length > SAMPLES) this.lags.shift();
    replace(
      this.content,
      this.verdict(found),
      h("dl", { class: "tiles" },
        tile("lag", span(found.lagSeconds), "how long the oldest point has been due"),
        tile("due", number(found.due), "due, and no worker has claimed them"),
        tile("points", number(found.points), "slots that wait, retries among them"),
        "claimed" in found ? tile("claimed", number(found.claimed), "that workers hold now") : null,
        "deadLetters" in found ? tile("dead letters", h("a", { href: "#/deadletters" }, number(found.deadLetters)), "slots that were given up") : null,
        "outcomes" in found ? tile("outcomes", number(found.outcomes), "that no status shows yet") : null,
        found.workers ? tile("workers", number(found.workers.length), "that live") : null),
      h("h2", {}, "Lag since this page was opened"),
      this.chart(),
      "deadLetters" in found ? null : h("p", {}, h("a", { href: `#/deadletters?ns=${encodeURIComponent(this.namespace)}` }, "Dead letters")),
      found.workers ? this.whole(found) : null,
    );
  }

  verdict(found) {
    if (found.workers && !found.workers.length) return h("p", { class: "verdict problem" }, "No worker lives: nothing is fired.");
    if (found.troubles?.length) {
      const workersOf = new Map(); // what several have met is said once
      for (const each of found.troubles) workersOf.set(each.message, [...(workersOf.get(each.message) ?? []), each.worker]);
      return h("ul", { class: "verdict problem" }, [...workersOf].map(([message, workers]) => h("li", {}, `${workers.join(", ")}: ${message}`)));
    }
    if (found.lagSeconds > LATE_SECONDS) return h("p", { class: "verdict late" }, `The queue is ${span(found.lagSeconds)} behind.`);
    return h("p", { class: "verdict ok" }, "The queue is on time.");
  }

  chart() {
    const most = Math.max(1, ...this.lags);
    const step = 600 / (SAMPLES - 1);
    const points = this.lags.map((lag, place) => `${(place * step).toFixed(1)},${(78 - (70 * lag) / most).toFixed(1)}`);
    return h("figure", { class: "chart" },
      svg("svg", { viewBox: "0 0 600 80", preserveAspectRatio: "none", role: "img", "aria-label": `lag of the last ${this.lags.length} readings, at most ${span(Math.max(...this.lags))}` },
        svg("line", { x1: 0, y1: 78, x2: 600, y2: 78, class: "axis" }),
        svg("polyline", { points: points.length > 1 ? points.join(" ") : `${points[0]} 600,${points[0].split(",")[1]}`, class: "line" })),
      h("figcaption", { class: "muted" }, `at most ${span(Math.max(...this.lags))}, every 5 s`));
  }

  whole(found) {
    const memory = found.memoryLimitBytes
      ? `${bytes(found.memoryUsedBytes)} of ${bytes(found.memoryLimitBytes)}` : bytes(found.memoryUsedBytes);
    const facts = [
      ["Server", found.server], ["Memory", memory], ["Shards", `${found.shards}, ${found.state}`],
      ["Term of the operator", number(found.term)],
      ["Durability", `${found.persistence}, ${found.replicas} replicas. What can be lost: ${found.lossWindow}`],
    ];
    return [
      h("h2", {}, "Redis"),
      h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      h("h2", {}, "Workers"),
      found.workers.length
        ? h("ul", { class: "plainlist" }, found.workers.map((each) => h("li", {}, h("code", {}, each.name), h("span", { class: "muted" }, ` counts as alive until ${distance(each.untilTime)}`))))
        : h("p", { class: "muted" }, "None."),
    ];
  }
}

function tile(name, value, about) {
  return h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value, h("span", { class: "muted" }, about)));
}

function bytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  let value = size;
  while (value >= 1024 && place < units.length - 1) {
    value /= 1024;
    place += 1;
  }
  return `${value.toFixed(value < 10 && place ? 1 : 0)} ${units[place]}`;
}
