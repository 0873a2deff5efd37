// A table of any number of rows; only those in sight are elements.
//
// All rows have the height that the style sheet gives `--row`. After a jump the rows in sight are made
// first, those around them in the next frame. Keys: up, down, page up, page down,
// home and end move from the link of a row to that of another; enter opens it.

import { h } from "./dom.js";

const BEYOND = 8; // rows that are made above and below those in sight

export class Rows {
  // `columns`: { name, title, cell(row) -> element or text, class }; `label`: what the table is.
  // `keyOf(row)` tells rows apart; `emptyText()` stands where there is no row.
  constructor({ label, columns, keyOf, emptyText, onSort }) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.emptyText = emptyText;
    this.rows = [];
    this.shown = new Map(); // index -> element
    this.heads = columns.map((column) => this.#head(column, onSort));
    this.head = h("div", { role: "row", class: "row head", "aria-rowindex": 1 }, this.heads);
    this.body = h("div", { role: "rowgroup", class: "rows" });
    this.table = h(
      "div",
      { role: "table", "aria-label": label, class: "table" },
      h("div", { role: "rowgroup", class: "headgroup" }, this.head),
      this.body,
    );
    this.empty = h("p", { class: "empty", hidden: true });
    this.element = h("div", { class: "scroller" }, this.table, this.empty);
    this.element.addEventListener("scroll", () => this.#schedule(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#onKey(event));
    this.observer = new ResizeObserver(() => {
      this.#measure();
      this.#schedule(true);
    });
    this.observer.observe(this.element);
    this.#measure();
  }

  // Sizes change with the window only; to ask for them in each frame would lay the page out twice.
  #measure() {
    this.height = parseFloat(getComputedStyle(this.table).getPropertyValue("--row")) || 40;
    this.headHeight = this.head.offsetHeight;
    this.viewHeight = this.element.clientHeight;
  }

  #head(column, onSort) {
    const properties = { role: "columnheader", class: `cell ${column.class ?? column.name}` };
    if (!column.sorts || !onSort) return h("div", properties, column.title);
    const button = h("button", { type: "button", class: "sort", onclick: () => onSort(column.name) }, column.title);
    return h("div", properties, button);
  }

  // Marks the column that the rows are sorted by.
  mark(name, descending) {
    this.columns.forEach((column, place) => {
      const order = descending ? "descending" : "ascending";
      if (column.name === name) this.heads[place].setAttribute("aria-sort", order);
      else this.heads[place].removeAttribute("aria-sort");
    });
  }

  show(rows) {
    this.rows = rows;
    this.table.setAttribute("aria-rowcount", String(rows.length + 1));
    this.#draw(true);
  }

  close() {
    this.observer.disconnect();
  }

  #schedule(all = false) {
    this.all = this.all || all;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.#draw(this.all);
      this.all = false;
    });
  }

  #draw(all) {
    const { rows, element, body, height } = this;
    const focused = all ? document.activeElement?.closest?.("[data-key]")?.dataset.key : undefined;
    if (all) {
      this.empty.hidden = rows.length > 0;
      this.empty.textContent = rows.length ? "" : this.emptyText();
      body.style.height = `${rows.length * height}px`;
    }
    const top = Math.max(0, element.scrollTop - this.headHeight);
    const seen = [Math.floor(top / height), Math.ceil((top + this.viewHeight) / height)];
    const isJump = all || ![...this.shown.keys()].some((index) => index >= seen[0] && index < seen[1]);
    const beyond = isJump && focused === undefined ? 0 : BEYOND;
    const first = Math.max(0, seen[0] - beyond);
    const last = Math.min(rows.length, seen[1] + beyond);
    if (isJump && last > first) this.#schedule();
    for (const [index, row] of this.shown) {
      if (all || index < first || index >= last) {
        row.remove();
        this.shown.delete(index);
      }
    }
    const following = [...this.shown.keys()].sort((a, b) => a - b);
    let next = 0;
    for (let index = first; index < last; index += 1) {
      if (this.shown.has(index)) continue;
      while (next < following.length && following[next] < index) next += 1;
      const row = this.#row(index, height);
      body.insertBefore(row, this.shown.get(following[next]) ?? null); // in the order of reading
      this.shown.set(index, row);
      if (focused !== undefined && row.dataset.key === focused) this.#link(row)?.focus({ preventScroll: true });
    }
  }

  #row(index, height) {
    const item = this.rows[index];
    const element = h(
      "div",
      { role: "row", class: "row", "aria-rowindex": index + 2, dataset: { key: this.keyOf(item), index } },
      this.columns.map((column) =>
        h("div", { role: "cell", class: `cell ${column.class ?? column.name}` }, column.cell(item)),
      ),
    );
    element.style.transform = `translateY(${index * height}px)`;
    return element;
  }

  #link(row) {
    return row.querySelector("a, button");
  }

  #onKey(event) {
    const at = event.target.closest?.(".row[data-index]");
    if (!at || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = Number(at.dataset.index);
    const page = Math.max(1, Math.floor(this.viewHeight / this.height) - 2);
    const target = {
      ArrowDown: index + 1, ArrowUp: index - 1, PageDown: index + page, PageUp: index - page,
      Home: 0, End: this.rows.length - 1,
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    this.focus(Math.min(this.rows.length - 1, Math.max(0, target)));
  }

  // Moves to a row, scrolling as far as that needs.
  focus(index) {
    const { element, height } = this;
    const room = this.viewHeight - this.headHeight;
    const top = index * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + room) element.scrollTop = top + height - room;
    this.#draw(false);
    const row = this.shown.get(index);
    if (row) this.#link(row)?.focus({ preventScroll: true });
  }
}
