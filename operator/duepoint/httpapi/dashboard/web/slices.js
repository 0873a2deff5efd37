// Work on all rows of a long list in slices, between which the browser draws frames and takes clicks and keys.
//
// A slice is some milliseconds long; how many rows that is depends on the machine. Short lists are
// done within the first slice, before the caller goes on.

const SLICE_MILLISECONDS = 6;
const LOOK_EVERY = 128; // rows between two looks at the clock
const RUN = 512; // rows that are sorted in one go

const channel = new MessageChannel();
const waiting = [];
channel.port1.onmessage = () => waiting.shift()();

// One pass over the rows. `rest()` lets the browser go on where the slice is over.
export class Slices {
  constructor() {
    this.began = performance.now();
  }

  get isOver() {
    return performance.now() - this.began > SLICE_MILLISECONDS;
  }

  async rest() {
    await new Promise((go) => {
      waiting.push(go);
      channel.port2.postMessage(null); // a task of its own, and not delayed as a timer is
    });
    this.began = performance.now();
  }

  // `action(row, index)` for each of the rows that are there now; more may come meanwhile.
  async each(rows, action) {
    const count = rows.length;
    for (let index = 0; index < count; index += 1) {
      if (index % LOOK_EVERY === 0 && this.isOver) await this.rest();
      action(rows[index], index);
    }
  }

  // The rows in the order of their keys. Equal keys stay as they are, a key that is missing comes last.
  async sorted(rows, keyOf, isDescending) {
    const keys = new Array(rows.length);
    await this.each(rows, (row, index) => { keys[index] = keyOf(row); });
    const sign = isDescending ? -1 : 1;
    const compare = (i, j) => {
      const a = keys[i];
      const b = keys[j];
      if (a === b) return i - j;
      if (a === undefined) return 1;
      if (b === undefined) return -1;
      return a < b ? -sign : sign;
    };
    let order = new Uint32Array(rows.length).map((_, index) => index);
    for (let first = 0; first < order.length; first += RUN) {
      order.subarray(first, first + RUN).sort(compare);
      if (this.isOver) await this.rest();
    }
    let merged = new Uint32Array(order.length);
    for (let width = RUN; width < order.length; width *= 2) {
      await this.#merge(order, merged, width, compare);
      [order, merged] = [merged, order];
    }
    const found = [];
    await this.each(order, (index) => { found.push(rows[index]); });
    return found;
  }

  // Neighbouring runs of this width become one each.
  async #merge(from, to, width, compare) {
    for (let first = 0; first < from.length; first += 2 * width) {
      const middle = Math.min(first + width, from.length);
      const end = Math.min(first + 2 * width, from.length);
      let left = first;
      let right = middle;
      for (let at = first; at < end; at += 1) {
        if (at % LOOK_EVERY === 0 && this.isOver) await this.rest();
        const takesLeft = left < middle && (right >= end || compare(from[left], from[right]) <= 0);
        to[at] = from[takesLeft ? left++ : right++];
      }
    }
  }
}
