// The list of Schedules, or of sets: search over namespaces, filters by health, order by a column.
//
// Pages come one after the other and are shown as they come. A refresh reads all of them anew beside
// what is shown, and is asked for less often the longer it takes. What touches every row (search,
// filters, order) goes in slices, so that fifty thousand rows hold up neither a frame nor a key.

import { pages, pathOf } from "./api.js";
import { h, replace, throttled } from "./dom.js";
import { distance, number, span, when } from "./format.js";
import { HEALTH, badge, healthOf, outcome } from "./health.js";
import { AsOf } from "./poll.js";
import { Rows } from "./rows.js";
import { Slices } from "./slices.js";

const REFRESH_MILLISECONDS = 20_000;
const REFRESH_SHARE = 30; // at most this part of the time is spent on reading

function link(kind, row) {
  return h("a", { href: `#/${kind}/${pathOf(row.namespace, row.name)}` }, row.name);
}

function time(text, zone) {
  return text ? h("time", { datetime: text, title: when(text, zone) }, distance(text)) : "";
}

// What is due may have run already: the list is some seconds old.
function coming(text, zone) {
  return text && Date.parse(text) <= Date.now() ? h("time", { datetime: text, title: when(text, zone) }, "due") : time(text, zone);
}

const instant = (text) => (text ? Date.parse(text) : undefined);

const about = (row) => [row.reason, row.message].filter(Boolean).join(": ");

const KINDS = {
  schedules: {
    title: "Schedules", path: "schedules", none: "There is no Schedule.",
    text: (row) => `${row.namespace}/${row.name} ${row.schedule ?? ""} ${row.target ?? ""} ${about(row)}`,
    columns: [
      { name: "name", title: "Name", sorts: true, cell: (row) => [link("schedule", row), h("span", { class: "sub" }, row.namespace)] },
      { name: "health", title: "Health", sorts: true, cell: (row) => badge(healthOf(row)) },
      { name: "when", title: "When", cell: (row) => h("code", { title: row.timeZone ?? "UTC" }, row.schedule ?? "") },
      { name: "next", title: "Next", sorts: true, cell: (row) => coming(row.next, row.timeZone) },
      { name: "last", title: "Last", sorts: true, cell: (row) => time(row.last, row.timeZone) },
      { name: "result", title: "Result", sorts: true, cell: (row) => outcome(row.result) },
      { name: "about", title: "About", cell: (row) => h("span", { title: about(row) }, about(row)) },
    ],
  },
  sets: {
    title: "Sets", path: "schedulesets", none: "There is no ScheduleSet.",
    text: (row) => `${row.namespace}/${row.name} ${row.target ?? ""} ${about(row)}`,
    columns: [
      { name: "name", title: "Name", sorts: true, cell: (row) => [link("set", row), h("span", { class: "sub" }, row.namespace)] },
      { name: "health", title: "Health", sorts: true, cell: (row) => badge(row.health) },
      { name: "members", title: "Members", sorts: true, class: "when number", cell: (row) => number(row.members) },
      { name: "next", title: "Next", sorts: true, cell: (row) => coming(row.next) },
      { name: "last", title: "Last", sorts: true, cell: (row) => time(row.last) },
      { name: "lagSeconds", title: "Lag", sorts: true, class: "result", cell: (row) => (row.lagSeconds ? span(row.lagSeconds) : "") },
      { name: "about", title: "About", cell: (row) => h("span", { title: about(row) }, about(row)) },
    ],
  },
};

// What is in trouble comes first, and what rests comes last.
const RANK = Object.fromEntries(["problem", "failing", "late", "waiting", "ok", "suspended", "completed"].map((name, place) => [name, place]));
const USUAL_ORDER = "health";
const keyOf = (row) => `${row.namespace}/${row.name}`;

export function overview(kindName, query, session) {
  return new Overview(KINDS[kindName], kindName, query, session);
}

class Overview {
  constructor(kind, kindName, query, session) {
    this.kind = kind;
    this.kindName = kindName;
    this.session = session;
    this.all = [];
    this.namespace = query.get("ns") ?? "";
    this.text = query.get("q") ?? "";
    this.health = new Set((query.get("health") ?? "").split(",").filter(Boolean));
    this.sort = query.get("sort") ?? USUAL_ORDER;
    this.descending = query.get("order") === "desc";
    this.title = kind.title;
    this.abort = new AbortController();
    this.redraw = throttled(150, () => this.draw());
    this.#build();
  }

  #build() {
    const { session, kind } = this;
    this.search = h("input", {
      type: "search", id: "search", placeholder: "Search names, expressions, reasons", value: this.text,
      "aria-label": "Search", autocomplete: "off", spellcheck: "false",
      oninput: () => { this.text = this.search.value; this.redraw(); this.#remember(); },
    });
    this.place = h("input", {
      type: "text", id: "namespace", list: "namespaces", value: this.namespace, autocomplete: "off", spellcheck: "false",
      placeholder: session.mayListAll ? "All namespaces" : "Namespace", "aria-label": "Namespace",
      onchange: () => { this.namespace = this.place.value.trim(); this.#remember(); this.reload(); },
    });
    const known = h("datalist", { id: "namespaces" }, (session.namespaces ?? []).map((name) => h("option", { value: name })));
    this.asOf = new AsOf();
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Filter by health" });
    this.status = h("p", { class: "status", role: "status" });
    this.table = new Rows({
      label: kind.title, columns: kind.columns, keyOf,
      emptyText: () => this.#emptyText(),
      onSort: (name) => this.#sortBy(name),
    });
    this.element = h(
      "section", { class: `overview ${this.kindName}` },
      h("div", { class: "bar" }, h("h1", {}, kind.title), this.search, this.place, known, this.chips, this.status),
      this.asOf.element,
      this.table.element,
    );
    this.table.mark(this.sort, this.descending);
    // Back leads to the row that was opened from here.
    this.table.element.addEventListener("click", (event) => {
      const key = event.target.closest("a")?.closest("[data-key]")?.dataset.key;
      if (key) history.replaceState({ key }, "");
    });
  }

  start() {
    this.opened = history.state?.key;
    this.reload();
    this.ticker = setInterval(() => this.redraw(), 5_000); // distances to now
  }

  close() {
    this.isClosed = true;
    this.abort.abort();
    clearInterval(this.ticker);
    clearTimeout(this.timer);
    this.table.close();
  }

  #emptyText() {
    if (this.trouble) return this.trouble;
    if (this.isLoading) return "Loading…";
    if (!this.namespace && !this.session.mayListAll) return "Choose a namespace: you may not list those of all.";
    return this.all.length ? "Nothing fits the search and the filters." : this.kind.none;
  }

  async reload() {
    clearTimeout(this.timer);
    this.abort.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    const isFirst = this.loaded !== this.namespace;
    if (isFirst) this.all = [];
    if (!this.namespace && !this.session.mayListAll) {
      this.draw();
      return;
    }
    const fresh = [];
    const began = performance.now();
    this.isLoading = true;
    this.trouble = "";
    this.draw();
    try {
      await pages(this.kind.path, { namespace: this.namespace }, (items, isLast) => {
        for (const row of items) {
          row.words = this.kind.text(row).toLowerCase();
          row.nextAt = instant(row.next);
          row.lastAt = instant(row.last);
          fresh.push(row);
        }
        if (!isFirst && !isLast) return; // a refresh shows itself when it is whole
        this.all = fresh;
        this.redraw();
      }, signal);
      this.loaded = this.namespace;
      this.asOf.read();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (this.loaded === this.namespace) this.asOf.failed(error.message);
      else this.trouble = error.message;
    }
    this.isLoading = false;
    this.draw();
    const wait = Math.max(REFRESH_MILLISECONDS, REFRESH_SHARE * (performance.now() - began));
    this.timer = setTimeout(() => this.#refresh(), wait);
  }

  #refresh() {
    if (document.visibilityState === "visible") this.reload();
    else document.addEventListener("visibilitychange", () => this.#refresh(), { once: true, signal: this.abort.signal });
  }

  #sortBy(name) {
    this.descending = this.sort === name ? !this.descending : false;
    this.sort = name;
    this.table.mark(name, this.descending);
    this.#remember();
    this.draw();
  }

  // What was chosen stands in the address, so that it can be passed on.
  #remember() {
    const query = new URLSearchParams();
    if (this.namespace) query.set("ns", this.namespace);
    if (this.text) query.set("q", this.text);
    if (this.health.size) query.set("health", [...this.health].join(","));
    if (this.sort !== USUAL_ORDER || this.descending) query.set("sort", this.sort);
    if (this.descending) query.set("order", "desc");
    const text = query.toString();
    history.replaceState(null, "", `#/${this.kindName}${text ? `?${text}` : ""}`);
  }

  // Shows the rows as they are wanted now. What is wanted while a pass goes on is shown by the next one.
  draw() {
    this.isStale = true;
    if (!this.isDrawing) this.#drawUntilFresh();
  }

  async #drawUntilFresh() {
    this.isDrawing = true;
    try {
      while (this.isStale && !this.isClosed) {
        this.isStale = false;
        await this.#pass();
      }
    } finally {
      this.isDrawing = false;
    }
  }

  async #pass() {
    const { all, sort, descending } = this;
    const slices = new Slices();
    const now = Date.now();
    const words = this.text.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = new Set(this.health);
    const counts = {};
    let seen = 0;
    let found = [];
    await slices.each(all, (row) => {
      seen += 1;
      if (words.length && !words.every((word) => row.words.includes(word))) return;
      const health = healthOf(row, now);
      counts[health] = (counts[health] ?? 0) + 1;
      if (!chosen.size || chosen.has(health)) found.push(row);
    });
    const isInOrder = sort === "name" && !descending; // they come so
    if (!isInOrder) found = await slices.sorted(found, this.#values(sort, now), descending);
    if (this.isClosed) return;
    this.table.show(found);
    this.#focusOpened(found);
    this.#drawChips(counts);
    const total = seen === found.length ? number(seen) : `${number(found.length)} of ${number(seen)}`;
    const text = `${total}${this.isLoading ? ", loading…" : ""}`;
    if (this.status.textContent !== text) this.status.textContent = text;
  }

  #focusOpened(rows) {
    if (!this.opened || this.isLoading) return;
    const index = rows.findIndex((row) => keyOf(row) === this.opened);
    this.opened = undefined;
    if (index >= 0 && !this.element.contains(document.activeElement)) this.table.focus(index);
  }

  #values(sort, now) {
    if (sort === "health") return (row) => RANK[healthOf(row, now)];
    if (sort === "name") return keyOf;
    if (sort === "next" || sort === "last") return (row) => row[`${sort}At`];
    return (row) => row[sort];
  }

  #drawChips(counts) {
    const names = Object.keys(HEALTH).filter((name) => counts[name] || this.health.has(name));
    const key = names.map((name) => `${name}${counts[name] ?? 0}${this.health.has(name)}`).join();
    if (key === this.chipKey) return;
    this.chipKey = key;
    const focused = document.activeElement?.dataset?.chip;
    replace(this.chips, names.map((name) => h(
      "button", {
        type: "button", class: `chip ${name}`, "aria-pressed": String(this.health.has(name)), title: HEALTH[name].about,
        dataset: { chip: name },
        onclick: () => {
          if (!this.health.delete(name)) this.health.add(name);
          this.#remember();
          this.draw();
        },
      },
      h("span", { "aria-hidden": "true" }, HEALTH[name].mark), ` ${HEALTH[name].text} ${number(counts[name] ?? 0)}`,
    )));
    if (focused) this.chips.querySelector(`[data-chip="${focused}"]`)?.focus();
  }

  // "/" leads to the search from anywhere on the page.
  onKey(event) {
    if (event.key === "/") {
      event.preventDefault();
      this.search.select();
    }
  }
}
