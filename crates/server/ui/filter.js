// The box for a filter. What the node says is wrong with it is shown at the place.

import { h } from "./dom.js";

const WRITING = 300;

/** The filter with a mark at the place the node complains about. */
function complaint(filter, refusal) {
  const found = /^invalid filter at (?:line (\d+), )?column (\d+)/.exec(refusal.message);
  if (!found) return [h("span", {}, refusal.message)];
  const letters = [...(filter.split("\n")[Number(found[1] ?? 1) - 1] ?? "")];
  const column = Number(found[2]) - 1;
  return [
    h("code", {}, letters.slice(0, column).join(""), h("mark", {}, letters[column] ?? " "), letters.slice(column + 1).join("")),
    h("span", {}, refusal.message),
  ];
}

/** `changed(filter)` is called when the user has stopped writing; the address of `page` follows. */
export function filterBox({ label, placeholder, value, page, changed }) {
  let writing = 0;
  const box = h("input", {
    type: "search", id: "filter", class: "mono", "data-filter": true, placeholder, value, spellcheck: "false", autocomplete: "off", autocapitalize: "off",
    "aria-describedby": "filter-problem", oninput: () => later(WRITING),
  });
  const problem = h("div", { id: "filter-problem", class: "problem", role: "alert", hidden: true });
  const element = h("div", { class: "filter" }, h("label", { for: "filter" }, label), h("kbd", { title: "Press / to write a filter" }, "/"), box);

  function later(wait) {
    clearTimeout(writing);
    writing = setTimeout(() => {
      const filter = box.value.trim();
      history.replaceState(null, "", filter ? `#/${page}?filter=${encodeURIComponent(filter)}` : `#/${page}`);
      changed(filter);
    }, wait);
  }

  return {
    element,
    problem,
    get filter() {
      return box.value.trim();
    },
    set(filter) {
      box.value = filter;
      later(0);
    },
    complain(filter, refusal) {
      problem.replaceChildren(...complaint(filter, refusal));
      problem.hidden = false;
      box.setAttribute("aria-invalid", "true");
    },
    accept() {
      problem.hidden = true;
      box.removeAttribute("aria-invalid");
    },
    unmount: () => clearTimeout(writing),
  };
}
