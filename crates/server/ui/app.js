// The frame: routes, banner, theme, keyboard shortcuts.

import { h, text } from "./dom.js";
import { clock, duration } from "./format.js";
import { live } from "./live.js";
import { isSignedIn, signOut } from "./sign_in.js";
import * as events from "./events.js";
import * as key from "./key.js";
import * as keys from "./keys.js";
import * as lock from "./lock.js";
import * as locks from "./locks.js";
import * as member from "./member.js";
import * as members from "./members.js";
import * as overview from "./overview.js";
import * as rates from "./rates.js";
import * as services from "./services.js";
import * as watchers from "./watchers.js";

const PAGES = [
  { path: "", title: "Overview", page: overview },
  { path: "services", title: "Services", page: services },
  { path: "members", title: "Members", page: members },
  { path: "events", title: "Events", page: events },
  { path: "watchers", title: "Watchers", page: watchers },
  { path: "keys", title: "Keys", page: keys },
  { path: "locks", title: "Locks", page: locks },
  { path: "rates", title: "Rates", page: rates },
  { path: "member", title: "Member", page: member, under: "members" },
  { path: "key", title: "Key", page: key, under: "keys" },
  { path: "lock", title: "Lock", page: lock, under: "locks" },
];

const element = (id) => document.getElementById(id);
let shown = null;

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const found = PAGES.find((page) => page.path === name) ?? PAGES[0];
  let argument = rest.join("/");
  try {
    argument = decodeURIComponent(argument);
  } catch {
    // Shown as typed.
  }
  return { found, argument, query: new URLSearchParams(query) };
}

function navigate() {
  // The skip link is not a page.
  if (location.hash === "#page") return;
  const { found, argument, query } = route();
  shown?.unmount?.();
  const root = element("page");
  root.replaceChildren();
  root.dataset.page = found.path || "overview";
  const title = argument || found.title;
  text(element("title"), title);
  document.title = `${title} · Convoke`;
  for (const link of element("nav").children) {
    const current = link.dataset.path === (found.under ?? found.path);
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    // On a phone not all links fit.
    if (current) element("nav").scrollLeft = link.offsetLeft - element("nav").offsetLeft - 40;
  }
  const first = shown === null;
  shown = found.page.mount(root, { argument, query });
  shown?.update?.();
  scrollTo(0, 0);
  // The focused element may have been removed with the last page.
  if (!first && document.activeElement === document.body) element("title").focus({ preventScroll: true });
}

function buildNav() {
  const visible = PAGES.filter((page) => !page.under);
  element("nav").append(...visible.map(({ path, title }) => h("a", { href: `#/${path}`, data: { path } }, title)));
}

function showIdentity() {
  const { status } = live;
  element("sign-out").hidden = !isSignedIn();
  if (!status) return;
  const facts = [
    ["Node", status.id],
    ["Cluster", status.cluster],
    ["Region", status.region || "none"],
    ["Up for", duration(status.uptime_ms)],
    ["Version", status.version],
  ];
  element("identity").replaceChildren(
    ...facts.map(([name, value]) => h("div", {}, h("span", {}, name), h("b", {}, value))),
  );
}

/** Shows since when the page is outdated, and why. */
function showBanner() {
  const { status, lostSince, error, nodes } = live;
  const banner = element("banner");
  const pulse = element("pulse");
  if (lostSince) {
    const others = nodes.filter((node) => !node.self && node.state === "up" && node.address);
    const name = status ? `node ${status.id}` : "the node";
    banner.dataset.state = "lost";
    const lost = live.rejects ? `No data from ${name}` : `Disconnected from ${name}`;
    const state = "The page shows the last known state and reconnects automatically.";
    const message = `${lost} since ${clock(lostSince)}: ${error}. ${state}`;
    if (banner.dataset.message !== message) {
      banner.dataset.message = message;
      banner.replaceChildren(
        h("strong", {}, message),
        others.length > 0 &&
          h(
            "span",
            {},
            " Other nodes: ",
            others.map((node) => [
              h("a", { href: `${location.protocol}//${node.address}/ui/${location.hash}` }, node.id),
              " ",
            ]),
          ),
      );
    }
    pulse.dataset.state = "lost";
    text(pulse, `Stale since ${clock(lostSince)}`);
    return;
  }
  const reasons = [...(status?.degraded ?? [])];
  if (status?.alone) reasons.unshift(status.alone);
  else if (status && !status.ready)
    reasons.unshift("this node is starting or stopping and does not accept clients; its data may be incomplete");
  const title = reasons.length > 0 ? "Degraded" : "Warning";
  if (live.denied) reasons.push(`this page shows only what you may see: ${live.denied}`);
  const warning = status?.tls?.warning;
  if (warning && !reasons.includes(warning)) reasons.push(warning);
  const message = reasons.join("; ");
  if (banner.dataset.message !== message) {
    banner.dataset.message = message;
    banner.dataset.state = message ? "degraded" : "";
    banner.replaceChildren(...(message ? [h("strong", {}, `${title}: ${message}.`)] : []));
  }
  pulse.dataset.state = live.known ? "live" : "connecting";
  text(pulse, live.known ? "Live" : "Connecting");
}

function themeButton() {
  const button = element("theme");
  const dark = () =>
    (document.documentElement.dataset.theme ??
      (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const name = () => text(button, dark() ? "Light theme" : "Dark theme");
  button.addEventListener("click", () => {
    const chosen = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("convoke-theme", chosen);
    } catch {
      // The choice lasts until the page is closed.
    }
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
}

/** `/` focuses the filter, except while the user types elsewhere. */
function shortcuts(event) {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const filter = document.querySelector("[data-filter]");
  if (filter) {
    event.preventDefault();
    filter.focus();
    filter.select();
  }
}

buildNav();
themeButton();
element("sign-out").addEventListener("click", signOut);
document.addEventListener("keydown", shortcuts);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  element("page").focus();
});
addEventListener("hashchange", navigate);
live.addEventListener("change", () => {
  showIdentity();
  showBanner();
  shown?.update?.();
});
navigate();
live.start();
