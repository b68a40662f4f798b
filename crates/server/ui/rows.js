// Members in order. Changes are collected and merged when the rows are read: ten thousand of them cost one sort, not
// ten thousand insertions.

import { standing } from "./format.js";

const KEYS = {
  service: (member) => member.service,
  id: (member) => member.id,
  status: (member) => standing(member),
  owner: (member) => member.owner.node,
  locality: (member) => member.locality,
};

export class Rows {
  #members = new Map();
  #ordered = [];
  /** Ids whose position in the order is outdated. */
  #dirty = new Set();
  #column = "service";
  #descending = false;

  get size() {
    return this.#members.size;
  }

  get(id) {
    return this.#members.get(id);
  }

  put(member) {
    this.#members.set(member.id, member);
    this.#dirty.add(member.id);
  }

  remove(id) {
    if (this.#members.delete(id)) this.#dirty.add(id);
  }

  clear() {
    this.#members.clear();
    this.#ordered = [];
    this.#dirty.clear();
  }

  sortBy(column, descending) {
    this.#column = column;
    this.#descending = descending;
    this.#ordered = [...this.#members.values()].sort(this.#compare());
    this.#dirty.clear();
  }

  /** All members in order. */
  ordered() {
    if (this.#dirty.size === 0) return this.#ordered;
    const compare = this.#compare();
    const changed = [...this.#dirty]
      .map((id) => this.#members.get(id))
      .filter(Boolean)
      .sort(compare);
    const kept = this.#ordered.filter((member) => !this.#dirty.has(member.id));
    this.#dirty.clear();
    const merged = [];
    let next = 0;
    for (const member of kept) {
      while (next < changed.length && compare(changed[next], member) < 0) merged.push(changed[next++]);
      merged.push(member);
    }
    while (next < changed.length) merged.push(changed[next++]);
    this.#ordered = merged;
    return merged;
  }

  #compare() {
    const key = KEYS[this.#column];
    const sign = this.#descending ? -1 : 1;
    return (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x !== y) return x < y ? -sign : sign;
      if (a.service !== b.service) return a.service < b.service ? -1 : 1;
      return a.id < b.id ? -1 : a.id > b.id ? 1 : 0;
    };
  }
}
