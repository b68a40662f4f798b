// Data that all pages share: the status of the node and its view of the others, polled while the tab is visible.

import { get, getText } from "./api.js";
import { History, totals } from "./metrics.js";

const INTERVAL = 2000;
/** The views of the other nodes are requested in every second round. */
const LINKS_EVERY = 2;
/** In larger clusters the graph shows the links of this node only. */
const LINKS_MAX = 16;

class Live extends EventTarget {
  status = null;
  nodes = [];
  services = [];
  /** Node id to its view of the others; `null` if it did not respond. */
  views = new Map();
  /** Status of the log: `null` if the log is off, `{error}` if the node did not return it. */
  log = null;
  history = new History();
  /** Time of the last complete round. */
  at = 0;
  /** Time of the first failed round since then; 0 if the last round succeeded. */
  lostSince = 0;
  error = "";
  /** Why the node withholds a part of this from the caller; empty if it withholds nothing. */
  denied = "";
  /** The node responds, but with an error. */
  rejects = false;
  #round = 0;
  #timer = 0;
  #busy = false;

  /** Whether a round has been complete. What the caller may not see is empty, or `null`. */
  get known() {
    return this.at > 0;
  }

  start() {
    document.addEventListener("visibilitychange", () => this.refresh());
    this.refresh();
  }

  /** Requests everything now, and again after the interval. */
  async refresh() {
    clearTimeout(this.#timer);
    if (document.hidden || this.#busy) return;
    this.#busy = true;
    try {
      await this.#poll();
      this.at = Date.now();
      this.lostSince = 0;
      this.error = "";
    } catch (error) {
      this.lostSince ||= this.at || Date.now();
      this.error = error.message;
      this.rejects = error.status > 0;
    }
    this.#busy = false;
    this.dispatchEvent(new Event("change"));
    this.#timer = setTimeout(() => this.refresh(), INTERVAL);
  }

  async #poll() {
    let denied = "";
    const unless = (instead) => (error) => {
      if (error.status !== 403) throw error;
      denied ||= error.message;
      return instead;
    };
    const [status, { nodes }, { services }, metrics] = await Promise.all([
      get("/api/v1/status").catch(unless(null)),
      get("/api/v1/nodes").catch(unless({ nodes: [] })),
      get("/api/v1/services?partial").catch(unless({ services: [] })),
      getText("/metrics").catch(unless("")),
    ]);
    Object.assign(this, { status, nodes, services, denied });
    this.history.add(Date.now(), totals(metrics));
    this.log = logIsOff(status) ? null : await get("/api/v1/log/status").catch((error) => ({ error: error.message }));
    if (this.#round++ % LINKS_EVERY === 0) await this.#pollOthers();
  }

  async #pollOthers() {
    if (!this.status) return;
    const others = this.nodes.filter((node) => !node.self && askable(node));
    const views = new Map([[this.status.id, this.nodes]]);
    if (others.length < LINKS_MAX) {
      const answers = others.map((node) =>
        askNode(node.id, "nodes").then(
          (answer) => answer.nodes,
          () => null,
        ),
      );
      (await Promise.all(answers)).forEach((answer, index) => views.set(others[index].id, answer));
    }
    this.views = views;
  }
}

/** Whether a node is configured without the log. */
export const logIsOff = (status) => status?.log_role === "none";

/** Whether this node can forward a request to that one. */
export const askable = (node) => (node.state === "up" || node.state === "distant") && node.address !== "";

/** The response of another node, requested through this one. */
export const askNode = (id, what, signal) => get(`/api/v1/nodes/${encodeURIComponent(id)}/${what}`, signal);

export const live = new Live();
