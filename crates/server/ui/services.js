// Services with the status of their members.

import { attribute, h, keyed, text } from "./dom.js";
import { count, membersLink, quoted } from "./format.js";
import { live } from "./live.js";

const PARTS = ["up", "drained", "down"];
const FILTERS = { up: "routable", drained: "drained and status == up", down: "status == down" };

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
    const size = (service) => service.up + service.down + service.drained;
    const by = { name: () => 0, down: (a, b) => b.down - a.down, size: (a, b) => size(b) - size(a) };
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
    bar.children[index].style.flexGrow = service[part];
    bar.children[index].hidden = service[part] === 0;
    text(words.children[index], `${count(service[part])} ${part}`);
    words.children[index].classList.toggle("none", service[part] === 0);
  });
  attribute(bar, "aria-label", PARTS.map((part) => `${service[part]} ${part}`).join(", "));
}
