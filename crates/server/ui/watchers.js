// The watchers at every reachable node and their filters.

import { get } from "./api.js";
import { h, keyed, text } from "./dom.js";
import { count, membersLink, time } from "./format.js";
import { askable, askNode, live } from "./live.js";

const AGAIN = 4000;
const SHOWN = 500;

/** Name of the client program; for a browser its product only. */
function program(agent) {
  const browser = agent.startsWith("Mozilla/") && /(?:Firefox|Edg|HeadlessChrome|Chrome|Safari)\/[\d.]+/.exec(agent);
  return browser ? browser[0] : agent || "unknown program";
}

function row(watcher) {
  const { node, surface, address, agent, filter, since } = watcher;
  return h(
    "li",
    {},
    h("span", { class: "s-filter" }, h("a", { class: "mono", href: membersLink(filter) }, filter || "all members")),
    h(
      "span",
      { class: "s-who" },
      h("span", { class: "mono" }, address || "unknown address"),
      h("span", { class: "muted" }, ` ${program(agent)}`),
    ),
    h("span", { class: "s-where" }, `${surface === "grpc" ? "gRPC" : "HTTP"} at `, h("span", { class: "mono" }, node)),
    h("span", { class: "s-since" }, "since ", time(since)),
  );
}

export function mount(root) {
  const list = h("ul", { class: "watchers" });
  const summary = h("p", { class: "hint", role: "status" });
  const problems = h("p", { class: "problem", hidden: true });
  const stop = new AbortController();
  let timer = 0;

  async function poll() {
    clearTimeout(timer);
    if (document.hidden) {
      timer = setTimeout(poll, AGAIN);
      return;
    }
    const nodes = live.nodes.filter((node) => node.self || askable(node));
    const answers = await Promise.all(
      nodes.map(async (node) => {
        try {
          return {
            node: node.id,
            ...(node.self
              ? await get("/api/v1/watchers", stop.signal)
              : await askNode(node.id, "watchers", stop.signal)),
          };
        } catch (error) {
          return { node: node.id, error: error.message };
        }
      }),
    );
    if (stop.signal.aborted) return;
    const failed = answers.filter((answer) => answer.error);
    const answered = answers.filter((answer) => !answer.error);
    const all = answered.flatMap(({ node, watchers }) => watchers.map((watcher) => ({ ...watcher, node })));
    all.sort((a, b) => (a.filter < b.filter ? -1 : a.filter > b.filter ? 1 : a.since - b.since));
    const total = answered.reduce((sum, answer) => sum + answer.count, 0);
    if (nodes.length > 0) {
      keyed(
        list,
        all.slice(0, SHOWN),
        (one) => `${one.node} ${one.surface} ${one.address} ${one.since} ${one.filter}`,
        row,
      );
      const shown = Math.min(all.length, SHOWN);
      const part = total > shown ? `, ${count(shown)} shown` : "";
      text(summary, `${count(total)} watchers at ${answered.length} of ${live.nodes.length} nodes${part}.`);
    }
    problems.hidden = failed.length === 0;
    text(problems, failed.map(({ node, error }) => `${node}: ${error}`).join("; "));
    timer = setTimeout(poll, nodes.length > 0 ? AGAIN : 300);
  }

  root.append(summary, problems, h("div", { class: "card" }, list));
  poll();
  return {
    unmount() {
      stop.abort();
      clearTimeout(timer);
    },
  };
}
