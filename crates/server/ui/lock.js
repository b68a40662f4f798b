// One lock or election: its holders, its queue, and the release of a permit by an operator.

import { get, send } from "./api.js";
import { h, keyed, text } from "./dom.js";
import { asLock, chip, count, duration, time, valueOf } from "./format.js";
import { owner } from "./locks.js";
import { live } from "./live.js";
import { poller } from "./poller.js";

/** A button that asks again before it acts. */
function release(path, fence, done) {
  const button = h("button", { type: "button", class: "quiet" }, "Release");
  const sure = h("button", { type: "button", class: "danger", hidden: true }, `Release fence ${fence}`);
  const keep = h("button", { type: "button", class: "quiet", hidden: true }, "Keep");
  const problem = h("span", { class: "problem", hidden: true, role: "status" });
  const ask = (asking) => {
    button.hidden = asking;
    sure.hidden = !asking;
    keep.hidden = !asking;
    (asking ? keep : button).focus();
  };
  button.addEventListener("click", () => ask(true));
  keep.addEventListener("click", () => ask(false));
  sure.addEventListener("click", async () => {
    sure.disabled = true;
    try {
      await send("DELETE", `${path}?fence=${fence}`);
      problem.hidden = true;
    } catch (error) {
      text(problem, error.message);
      problem.hidden = false;
    }
    sure.disabled = false;
    ask(false);
    done();
  });
  return h("span", { class: "l-actions" }, button, sure, keep, problem);
}

function place(one, action) {
  return h(
    "li",
    {},
    owner(one),
    h("span", {}, one.fence ? `fence ${one.fence}` : ""),
    h("span", {}, "since ", time(one.since)),
    h("span", { class: "mono muted" }, valueOf(one)),
    action ?? h("span"),
  );
}

export function mount(root, { argument }) {
  const [kind, ...rest] = argument.split("/");
  const name = rest.join("/");
  const path = `/api/v1/${kind}/${encodeURIComponent(name)}`;
  const mark = h("span");
  const facts = h("p", { class: "hint", role: "status" });
  const problem = h("p", { class: "problem", hidden: true, role: "status" });
  const holders = h("ul", { class: "locks places" });
  const queue = h("ul", { class: "locks places" });
  const waiting = h("p", { class: "hint" });
  const poll = poller(async (signal) => {
    const answer = await get(path, signal);
    const lock = kind === "elections" ? asLock(answer) : answer;
    const held = lock.holders.length > 0;
    mark.replaceChildren(chip(held ? "up" : "idle", held ? "held" : "free"));
    const delay = lock.delayed_until ? `, granted to nobody for ${duration(lock.delayed_until - Date.now())}` : "";
    text(facts, `${count(lock.holders.length)} of ${count(lock.permits)} permits in use${delay}`);
    keyed(
      holders,
      lock.holders,
      (one) => `${one.fence} ${one.value}`,
      (one) => place(one, release(path, one.fence, poll.again)),
    );
    const shown = lock.queue ?? [];
    keyed(queue, shown, (one) => one.lease, (one) => place(one));
    const part = shown.length < lock.waiting ? `, the first ${count(shown.length)} shown` : "";
    text(waiting, lock.waiting === 0 ? "Nobody waits." : `${count(lock.waiting)} waiting${part}, in order:`);
  }, problem);
  root.append(
    h("p", { class: "hint" }, kind === "elections" ? "Election " : "Lock ", h("b", { class: "mono" }, name), " ", mark),
    facts,
    problem,
    h("section", { class: "card" }, h("h2", {}, kind === "elections" ? "Leader" : "Holders"), holders),
    h("section", { class: "card" }, h("h2", {}, kind === "elections" ? "Candidates" : "Queue"), waiting, queue),
  );
  return {
    update() {
      poll.first(live.known);
    },
    unmount: poll.stop,
  };
}
