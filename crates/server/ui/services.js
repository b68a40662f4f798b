// Services with the status of their members.

import { attribute, h, keyed, text } from "./dom.js";
import { count, membersLink, quoted } from "./format.js";
import { live } from "./live.js";

const PARTS = ["up", "critical", "drained", "down"];
const FILTERS = {
  up: "status == up and not drained and health != critical",
  critical: "status == up and not drained and health == critical",
  drained: "drained and status == up",
  down: "status == down",
};

/** The members of a service in one of the parts. Critical members are counted as up as well. */
const size = (service, part) => (part === "up" ? service.up - service.critical : service[part]);

export function mount(root, { query }) {
  const box = h("input", {
    type: "search",
    "data-filter": true,
    "aria-label": "Service name contains",
    placeholder: "Name contains…  ( / )",
    value: query.get("name") ?? "",
    spellcheck: "false",
    autocomplete: "off",
  });
  const order = h(
    "select",
    { "aria-label": "Order" },
    h("option", { value: "name" }, "By name"),
    h("option", { value: "down" }, "Most down first"),
    h("option", { value: "size" }, "Largest first"),
  );
  const list = h("ul", { class: "services" });
  const summary = h("p", { class: "hint", role: "status" });
  const empty = h("p", { class: "empty card", hidden: true });

  function update() {
    const wanted = box.value.trim().toLowerCase();
    const all = (service) => service.up + service.down + service.drained;
    const by = { name: () => 0, down: (a, b) => b.down - a.down, size: (a, b) => all(b) - all(a) };
    const found = live.services
      .filter((service) => service.service.toLowerCase().includes(wanted))
      .sort(by[order.value]);
    const shown = found.slice(0, 500);
    keyed(list, shown, (service) => service.service, make, refresh);
    const part = found.length > shown.length ? `, the first ${count(shown.length)} shown` : "";
    text(summary, live.known ? `${count(found.length)} of ${count(live.services.length)} services${part}` : "");
    empty.hidden = found.length > 0 || !live.known;
    text(empty, live.services.length === 0 ? "No member is registered yet." : "No service matches.");
  }

  box.addEventListener("input", update);
  order.addEventListener("change", update);
  root.append(
    h(
      "div",
      { class: "toolbar" },
      box,
      order,
      h(
        "span",
        { class: "legend" },
        PARTS.map((part) => h("span", { class: "chip", data: { state: part } }, part)),
      ),
    ),
    summary,
    empty,
    list,
  );
  return { update };
}

/** A service with the status of its members. */
export function make({ service }) {
  const segments = PARTS.map((part) => h("span", { class: "health-part", data: { state: part } }));
  const words = PARTS.map((part) =>
    h("a", {
      class: "health-count",
      data: { state: part },
      href: membersLink(`service == ${quoted(service)} and ${FILTERS[part]}`),
    }),
  );
  return h(
    "li",
    { class: "service card" },
    h("a", { class: "service-name", href: membersLink(`service == ${quoted(service)}`) }, service),
    h("div", { class: "health", role: "img" }, segments),
    h("div", { class: "health-counts" }, words),
  );
}

export function refresh(item, service) {
  const [, bar, words] = item.children;
  PARTS.forEach((part, index) => {
    const number = size(service, part);
    bar.children[index].style.flexGrow = number;
    bar.children[index].hidden = number === 0;
    const note = part === "critical" && service.panic ? " (too many: all get traffic)" : "";
    text(words.children[index], `${count(number)} ${part}${note}`);
    words.children[index].classList.toggle("none", number === 0);
  });
  attribute(bar, "aria-label", PARTS.map((part) => `${size(service, part)} ${part}`).join(", "));
}
