// The filter input. An error of the node is shown at its position.

import { h } from "./dom.js";

const TYPING_PAUSE = 300;

/** The filter with a mark at the position of the error, and the message. */
function explained(filter, error) {
  if (!error.position) return [h("span", {}, error.message)];
  const letters = [...(filter.split("\n")[error.position.line - 1] ?? "")];
  const column = error.position.column - 1;
  return [
    h(
      "code",
      {},
      letters.slice(0, column).join(""),
      h("mark", {}, letters[column] ?? " "),
      letters.slice(column + 1).join(""),
    ),
    h("span", {}, error.message),
  ];
}

const FIELDS = [
  "drained", "routable", "id", "service", "locality", "revision", "client", "owner", "status", "meta", "not",
];

/** The filter of an input. A single word that is no field is a search in ids and services. */
export function searched(input) {
  if (!/^[\w.:/-]+$/.test(input) || FIELDS.includes(input) || input.startsWith("meta.")) return input;
  return `id matches "*${input}*" or service matches "*${input}*"`;
}

/** Calls `changed(filter)` when the user has stopped typing, and puts the filter into the address of `page`. */
export function filterBox({ label, placeholder, value, page, changed }) {
  let typing = 0;
  const box = h("input", {
    type: "search",
    id: "filter",
    class: "mono",
    "data-filter": true,
    placeholder,
    value,
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    "aria-describedby": "filter-problem",
    oninput: () => later(TYPING_PAUSE),
  });
  const problem = h("div", { id: "filter-problem", class: "problem", role: "alert", hidden: true });
  const element = h(
    "div",
    { class: "filter" },
    h("label", { for: "filter" }, label),
    h("kbd", { title: "Press / to type a filter" }, "/"),
    box,
  );

  function later(wait) {
    clearTimeout(typing);
    typing = setTimeout(() => {
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
    reject(filter, error) {
      problem.replaceChildren(...explained(filter, error));
      problem.hidden = false;
      box.setAttribute("aria-invalid", "true");
    },
    accept() {
      problem.hidden = true;
      box.removeAttribute("aria-invalid");
    },
    unmount: () => clearTimeout(typing),
  };
}
