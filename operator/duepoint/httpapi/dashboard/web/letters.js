// Dead letters: slots that were given up, why, and running them again.
//
// Those of the Schedules of a namespace or of all, of one Schedule, or of the members of one set.

import { ask } from "./actions.js";
import { get, pathOf, post } from "./api.js";
import { h, notice, replace } from "./dom.js";
import { distance, number, when } from "./format.js";
import { Polled, namespaceField } from "./poll.js";

const MOST_REPLAYED = 100;
const MOST_OF_ALL = 200; // the API gives no older ones of all namespaces
const MOST_PAGES = 20;

export function lettersPage(_parts, query, session) {
  return new LettersPage(query, session);
}

class LettersPage extends Polled {
  constructor(query, session) {
    const set = query.get("set") ?? "";
    const field = h("input", {
      type: "text", value: set, placeholder: "Of Schedules, or name a set", "aria-label": "Set", autocomplete: "off", spellcheck: "false",
      onchange: () => this.#choose(this.namespace, field.value.trim()),
    });
    const controls = [namespaceField(session, query.get("ns") ?? "", (name) => this.#choose(name, field.value.trim())), field];
    super({ title: "Dead letters", milliseconds: 30_000, controls });
    this.namespace = query.get("ns") ?? "";
    this.set = set;
    this.schedule = query.get("schedule") ?? "";
    this.isOfAll = !this.namespace && !set && session.mayListAll;
    this.chosen = new Set();
    this.cursor = "";
    this.path = set ? `${pathOf("namespaces", this.namespace, "schedulesets", set)}/deadletters` : "deadletters";
    if (this.schedule) {
      this.element.prepend(h("p", { class: "crumbs" }, "Of ", h("a", { href: `#/schedule/${pathOf(this.namespace, this.schedule)}` }, this.schedule), " only; ",
        h("a", { href: `#/deadletters?${new URLSearchParams({ ns: this.namespace })}` }, "all of the namespace")));
    }
  }

  #choose(namespace, set) {
    const query = new URLSearchParams();
    if (namespace) query.set("ns", namespace);
    if (set) query.set("set", set);
    location.hash = query.size ? `#/deadletters?${query}` : "#/deadletters";
  }

  reload() {
    if (this.namespace || this.isOfAll) return this.more ? undefined : super.reload();
    this.say(this.set ? "Choose the namespace of the set." : "Choose a namespace: you may not list Schedules of all.");
    return undefined;
  }

  // Pages may be short, even empty, while there is more to come.
  async read(cursor = "") {
    if (this.isOfAll) return get(this.path, { limit: MOST_OF_ALL });
    const items = [];
    let next = cursor;
    let pages = 0;
    do {
      const page = await get(this.path, { limit: 100, cursor: next, namespace: this.set ? "" : this.namespace });
      items.push(...page.items.filter((each) => !this.schedule || each.schedule === this.schedule));
      next = page.next;
      pages += 1;
    } while (next && items.length < 100 && pages < MOST_PAGES);
    return { items, next };
  }

  draw(found) {
    const { items } = found;
    const known = new Set(items.map((each) => each.id));
    for (const id of this.chosen) if (!known.has(id)) this.chosen.delete(id);
    if (!items.length && !found.next) {
      this.say("There is no dead letter.");
      return;
    }
    this.button = h("button", { type: "button", class: "primary", onclick: () => this.confirm() }, "");
    this.all = h("input", { type: "checkbox", "aria-label": "Choose all", onchange: () => this.chooseAll(this.all.checked) });
    this.boxes = [];
    replace(
      this.content,
      h("div", { class: "wrap", tabindex: "0", role: "region", "aria-label": "Dead letters" }, h("table", { class: "slots letters" },
        h("thead", {}, h("tr", {}, h("td", {}, this.all), ["Given up", this.set ? "Member" : "Schedule", "Slot", "Attempts", "Why"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, items.map((letter) => this.row(letter))))),
      h("p", { class: "actions" }, this.button,
        found.next ? h("button", { type: "button", class: "action", onclick: () => this.readMore() }, "Older ones") : null),
      this.isOfAll ? h("p", { class: "muted" }, items.length === MOST_OF_ALL ? `The newest ${MOST_OF_ALL}; choose a namespace for older ones. ` : "", "Those of members are with their sets.") : null,
    );
    this.mark();
  }

  row(letter) {
    const box = h("input", {
      type: "checkbox", "aria-label": `Choose ${letter.schedule} ${letter.slotTime ?? ""}`, checked: this.chosen.has(letter.id),
      onchange: () => { this.choose(letter.id, box.checked); this.mark(); },
    });
    this.boxes.push([letter.id, box]);
    const place = letter.namespace || this.namespace;
    const name = this.set ? letter.schedule : h("a", { href: `#/schedule/${pathOf(place, letter.schedule)}` }, this.isOfAll ? `${place}/${letter.schedule}` : letter.schedule);
    return h("tr", {},
      h("td", { class: "pick" }, box),
      h("td", { "data-title": "Given up" }, h("time", { datetime: letter.deadTime, title: when(letter.deadTime) }, distance(letter.deadTime))),
      h("td", { "data-title": this.set ? "Member" : "Schedule" }, name),
      h("td", { "data-title": "Slot" }, when(letter.slotTime)),
      h("td", { "data-title": "Attempts", class: "number" }, number(letter.attempts)),
      h("td", { "data-title": "Why", class: "why" }, [letter.reason, letter.message].filter(Boolean).join(": ")));
  }

  choose(id, isChosen) {
    if (isChosen) this.chosen.add(id);
    else this.chosen.delete(id);
  }

  chooseAll(isChosen) {
    for (const [id, box] of this.boxes) {
      box.checked = isChosen;
      this.choose(id, isChosen);
    }
    this.mark();
  }

  mark() {
    const count = this.chosen.size;
    this.button.disabled = count === 0;
    this.button.textContent = count ? `Replay ${number(count)}` : "Replay";
    this.all.checked = count > 0 && count === this.boxes.length;
    this.all.indeterminate = count > 0 && count < this.boxes.length;
  }

  async readMore() {
    try {
      const older = await this.read(this.found.next);
      this.more = true; // what was read on stays; the page asks anew after a replay
      this.found = { items: [...this.found.items, ...older.items], next: older.next };
      this.draw(this.found);
    } catch (error) {
      notice(error.message, "error");
    }
  }

  confirm() {
    const ids = [...this.chosen];
    const count = ids.length === 1 ? "1 dead letter" : `${number(ids.length)} dead letters`;
    const each = ids.length === 1 ? "Its slot runs" : "Each of their slots runs";
    ask({
      title: `Replay ${count}?`, text: `${each} again now, under the id that it had.`, verb: "Replay", fields: [],
      act: () => this.replay(ids),
    }, () => {});
  }

  // A request replays letters of one namespace, and so many at most.
  requests(ids) {
    const idsOf = new Map();
    for (const letter of this.found.items) {
      if (!ids.includes(letter.id)) continue;
      const path = this.set ? this.path : `${pathOf("namespaces", letter.namespace)}/deadletters`;
      idsOf.set(path, [...(idsOf.get(path) ?? []), letter.id]);
    }
    const requests = [];
    for (const [path, all] of idsOf) {
      for (let first = 0; first < all.length; first += MOST_REPLAYED) requests.push([`${path}:replay`, all.slice(first, first + MOST_REPLAYED)]);
    }
    return requests;
  }

  async replay(ids) {
    let replayed = 0;
    const others = {};
    try {
      for (const [path, some] of this.requests(ids)) {
        const answer = await post(path, { ids: some });
        replayed += answer.replayed;
        for (const id of answer.missing) {
          const why = answer.results?.[id] ?? "gone";
          others[why] = (others[why] ?? 0) + 1;
        }
      }
      const rest = Object.entries(others).map(([why, count]) => `, ${count} ${WHY[why] ?? why}`).join("");
      notice(`${number(replayed)} run again${rest}.`, rest ? "error" : "info");
      this.chosen.clear();
    } catch (error) {
      notice(error.message, "error");
    }
    this.more = false;
    await this.reload();
  }
}

const WHY = {
  gone: "not there any more", absent: "of no Schedule that is there", forbidden: "that you may not run",
  moving: "being moved; repeat it", unreadable: "that name no slot",
};
