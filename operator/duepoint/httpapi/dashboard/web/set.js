// A ScheduleSet: how it stands, and its members, found by the beginning of their ids.

import { get, pathOf } from "./api.js";
import { h, notice, replace, throttled } from "./dom.js";
import { distance, number, span, when } from "./format.js";
import { Polled } from "./poll.js";

export function setPage([namespace, name]) {
  return new SetPage(namespace, name);
}

class SetPage extends Polled {
  constructor(namespace, name) {
    super({ title: `${namespace}/${name}`, heading: name, milliseconds: 10_000 });
    this.base = pathOf("namespaces", namespace, "schedulesets", name);
    this.prefix = "";
    this.summary = h("div", {});
    this.list = h("div", {});
    this.find = throttled(250, () => this.members());
    const field = h("input", {
      type: "search", placeholder: "Beginning of an id", "aria-label": "Beginning of an id", autocomplete: "off", spellcheck: "false",
      oninput: () => { this.prefix = field.value.trim(); this.find(); },
    });
    const letters = new URLSearchParams({ ns: namespace, set: name });
    this.element.prepend(h("p", { class: "crumbs" }, h("a", { href: "#/sets" }, "Sets"), " / ",
      h("a", { href: `#/sets?ns=${encodeURIComponent(namespace)}` }, namespace)));
    this.body = [this.summary, h("p", {}, h("a", { href: `#/deadletters?${letters}` }, "Dead letters")),
      h("div", { class: "bar inner" }, h("h2", {}, "Members"), field), this.list];
  }

  read() {
    return get(this.base);
  }

  draw(found) {
    if (this.body) {
      replace(this.content, this.body);
      this.body = null;
      this.members();
    }
    const tiles = [
      ["state", found.state], ["members", number(found.members)], ["in flight", number(found.inFlight)],
      ["next", found.nextDueTime ? distance(found.nextDueTime) : "none"], ["lag", span(found.lagSeconds ?? 0)],
      ["limit of members", number(found.limits?.members)],
    ];
    replace(this.summary, h("dl", { class: "tiles" }, tiles.map(([name, value]) => h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value)))),
      h("p", { class: "muted" }, `A lost server can take ${found.durability?.lossWindow}.`));
  }

  async members() {
    const prefix = this.prefix;
    try {
      const items = [];
      let cursor = "";
      let pages = 0;
      do { // a page may be short, even empty, while there is more to come
        const page = await get(`${this.base}/schedules`, { limit: 200, prefix, cursor });
        if (this.isClosed || prefix !== this.prefix) return;
        items.push(...page.items);
        cursor = page.next;
        pages += 1;
      } while (cursor && items.length < 200 && pages < 20);
      this.show(items, cursor);
    } catch (error) {
      if (!this.isClosed) notice(error.message, "error");
    }
  }

  show(items, cursor) {
    if (!items.length) {
      replace(this.list, h("p", { class: "muted" }, cursor ? "None was found yet among very many; write more of the id." : "None."));
      return;
    }
    const titles = ["Id", "State", "When", "Next"];
    replace(
      this.list,
      h("div", { class: "wrap", tabindex: "0", role: "region", "aria-label": "Members" }, h("table", { class: "slots" },
        h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", {}, items.map((each) => h("tr", {},
          h("td", { "data-title": "Id" }, h("code", {}, each.id)),
          h("td", { "data-title": "State" }, each.claimed ? "claimed" : each.state),
          h("td", { "data-title": "When" }, each.schedule ? h("code", {}, each.schedule) : when(each.at)),
          h("td", { "data-title": "Next" }, each.nextDueTime ? h("time", { datetime: each.nextDueTime, title: when(each.nextDueTime) }, distance(each.nextDueTime)) : "")))))),
      cursor ? h("p", { class: "muted" }, `The first ${number(items.length)}; write the beginning of an id to find others.`) : null,
    );
  }
}
