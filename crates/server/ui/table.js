// A table of any length: only visible rows exist in the document. The table itself has the focus; the arrow
// keys move the current row.

import { attribute, eachFrame, h } from "./dom.js";

const SPARE = 6;

export class VirtualTable {
  #columns;
  #open;
  #rows = [];
  #pool = [];
  #current = -1;
  #currentKey = null;
  #key;
  #draw = eachFrame(() => this.#paint());
  #resize = new ResizeObserver(() => this.#draw());
  #narrow = matchMedia("(max-width: 720px)");

  /**
   * `columns` are `{name, title, make(), update(cell, row), sort}`; `key(row)` identifies a row; `open(row)` is called
   * on Enter or a click; `sorted(column, descending)` is called when a heading is clicked.
   */
  constructor({ label, columns, key, open, sorted }) {
    this.#columns = columns;
    this.#key = key;
    this.#open = open;
    this.#narrow.addEventListener("change", this.#draw);
    this.headings = h(
      "div",
      { class: "vt-head", role: "row", "aria-rowindex": "1" },
      columns.map((column) => this.#heading(column, sorted)),
    );
    this.spacer = h("div", { class: "vt-spacer" });
    this.body = h("div", { class: "vt-body", role: "rowgroup" }, this.spacer);
    this.element = h(
      "div",
      { class: "vt", role: "grid", tabindex: "0", "aria-label": label, onkeydown: (event) => this.#keydown(event) },
      this.headings,
      this.body,
    );
    this.body.addEventListener("scroll", this.#draw, { passive: true });
    this.#resize.observe(this.body);
  }

  unmount() {
    this.#resize.disconnect();
    this.#draw.cancel();
    this.#narrow.removeEventListener("change", this.#draw);
  }

  /** Replaces the rows; the current row stays current at its new position. */
  show(rows) {
    this.#rows = rows;
    if (this.#currentKey !== null) this.#current = rows.findIndex((row) => this.#key(row) === this.#currentKey);
    attribute(this.element, "aria-rowcount", rows.length + 1);
    this.#draw();
  }

  #heading(column, sorted) {
    if (!column.sort) return h("div", { role: "columnheader", class: `c-${column.name}` }, column.title);
    const button = h("button", { type: "button", class: "quiet" }, column.title);
    const cell = h(
      "div",
      { role: "columnheader", class: `c-${column.name}`, "aria-sort": column.sort === true ? "none" : column.sort },
      button,
    );
    button.addEventListener("click", () => {
      const descending = cell.getAttribute("aria-sort") === "ascending";
      for (const other of this.headings.querySelectorAll("[aria-sort]")) other.setAttribute("aria-sort", "none");
      cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sorted(column.name, descending);
    });
    return cell;
  }

  #height() {
    return this.#narrow.matches ? 62 : 38;
  }

  #paint() {
    const height = this.#height();
    // Browsers limit the height of an element.
    this.spacer.style.height = `${Math.min(this.#rows.length * height, 8_000_000)}px`;
    const first = Math.max(0, Math.floor(this.body.scrollTop / height) - SPARE);
    const last = Math.min(
      this.#rows.length,
      Math.ceil((this.body.scrollTop + this.body.clientHeight) / height) + SPARE,
    );
    while (this.#pool.length < last - first) this.#pool.push(this.#row());
    this.#pool.forEach((row, index) => {
      const position = first + index;
      row.element.hidden = position >= last;
      if (position < last) this.#place(row, position, height);
    });
    const current = this.#current >= first && this.#current < last ? `vt-row-${this.#current}` : null;
    attribute(this.element, "aria-activedescendant", current);
  }

  #row() {
    const cells = this.#columns.map((column) =>
      h("div", { role: "gridcell", class: `c-${column.name}` }, column.make?.()),
    );
    const element = h("div", { class: "vt-row", role: "row" }, cells);
    const row = { element, cells, position: 0 };
    element.addEventListener("click", (event) => {
      if (!event.target.closest("a") && !getSelection().toString()) this.#open(this.#rows[row.position]);
    });
    this.body.append(element);
    return row;
  }

  #place(row, position, height) {
    row.position = position;
    const data = this.#rows[position];
    row.element.style.transform = `translateY(${position * height}px)`;
    attribute(row.element, "id", `vt-row-${position}`);
    attribute(row.element, "aria-rowindex", position + 2);
    attribute(row.element, "aria-selected", position === this.#current);
    this.#columns.forEach((column, index) => column.update(row.cells[index], data));
  }

  #keydown(event) {
    if (event.target !== this.element) return;
    const page = Math.max(1, Math.floor(this.body.clientHeight / this.#height()) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.#rows[this.#current]) this.#open(this.#rows[this.#current]);
    else if (event.key in steps && this.#rows.length > 0) this.#move(this.#current + steps[event.key]);
    else return;
    event.preventDefault();
  }

  #move(wanted) {
    const height = this.#height();
    this.#current = Math.max(0, Math.min(this.#rows.length - 1, wanted));
    this.#currentKey = this.#key(this.#rows[this.#current]);
    const top = this.#current * height;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    else if (top + height > this.body.scrollTop + this.body.clientHeight)
      this.body.scrollTop = top + height - this.body.clientHeight;
    this.#draw();
  }
}
