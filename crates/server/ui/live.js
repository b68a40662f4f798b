// What all pages share: the node's account of itself and of the others, asked for again and again while somebody looks, and how old it is.

import { get, getText, serves } from "./api.js";
import { History, totals } from "./metrics.js";

const INTERVAL = 2000;
/** Links as the other nodes see them change rarely. */
const LINKS_EVERY = 2;
/** Nodes asked for their links at most; beyond, the graph shows the links of this node only. */
const LINKS_MAX = 16;

class Live extends EventTarget {
  status = null;
  nodes = [];
  services = [];
  /** Node id to its view of the others; `null` if it could not be asked. */
  views = new Map();
  /** Of the log plane; `null` while it is off. */
  log = null;
  history = new History();
  /** When the last complete answer came. */
  at = 0;
  /** Since when there is none; 0 while there is. */
  lostSince = 0;
  error = "";
  /** It answers, only not with what was asked for. */
  refuses = false;
  #round = 0;
  #timer = 0;
  #asking = false;

  start() {
    document.addEventListener("visibilitychange", () => this.refresh());
    this.refresh();
  }

  /** Asks now, and again after the interval. */
  async refresh() {
    clearTimeout(this.#timer);
    if (document.hidden || this.#asking) return;
    this.#asking = true;
    try {
      await this.#ask();
      this.at = Date.now();
      this.lostSince = 0;
      this.error = "";
    } catch (error) {
      this.lostSince ||= this.at || Date.now();
      this.error = error.message;
      this.refuses = error.status > 0;
    }
    this.#asking = false;
    this.dispatchEvent(new Event("change"));
    this.#timer = setTimeout(() => this.refresh(), INTERVAL);
  }

  async #ask() {
    const [status, { nodes }, { services }, metrics] = await Promise.all([
      get("/api/v1/status"),
      get("/api/v1/nodes"),
      get("/api/v1/services"),
      getText("/metrics"),
    ]);
    Object.assign(this, { status, nodes, services });
    this.history.add(Date.now(), totals(metrics));
    this.log = (await serves("/api/v1/log/status")) ? await get("/api/v1/log/status").catch((error) => ({ error: error.message })) : null;
    if (this.#round++ % LINKS_EVERY === 0) await this.#askOthers();
  }

  async #askOthers() {
    const others = this.nodes.filter((node) => !node.self && askable(node));
    const views = new Map([[this.status.id, this.nodes]]);
    if (others.length < LINKS_MAX && (await serves("/api/v1/nodes/{id}/{what}"))) {
      const answers = others.map((node) => askNode(node.id, "nodes").then((answer) => answer.nodes, () => null));
      (await Promise.all(answers)).forEach((answer, index) => views.set(others[index].id, answer));
    }
    this.views = views;
  }
}

/** Whether this node can pass a question on to that one. */
export const askable = (node) => (node.state === "up" || node.state === "distant") && node.address !== "";

/** Another node's own account, asked through this one. */
export const askNode = (id, what, signal) => get(`/api/v1/nodes/${encodeURIComponent(id)}/${what}`, signal);

export const live = new Live();
