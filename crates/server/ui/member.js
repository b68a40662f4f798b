// One member: what it says of itself, why it has its status, what happened to it.

import { get } from "./api.js";
import { eachFrame, h, keyed, text } from "./dom.js";
import { chip, clock, count, duration, exactly, membersLink, quoted, standing } from "./format.js";
import { entry, timeline } from "./events.js";
import { live } from "./live.js";
import { Stream } from "./stream.js";

const AGAIN = 3000;

const moment = (ms) => (ms > 0 ? h("time", { datetime: exactly(ms), title: exactly(ms) }, clock(ms)) : "–");

function facts(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** The explanation, sentence by sentence. */
function reasons(explained, drained) {
  const { owner, evidence, inferred, session } = explained;
  const said = [`Its owner, node ${owner}, says that it is ${explained.stated}.`];
  if (drained) said.push("It is drained: it stays listed, and nobody should send it anything new.");
  if (session) {
    const link = session.connected ? "is connected at this node" : "is not connected";
    said.push(`Its client ${link}, was last heard ${duration(session.silence_ms)} ago, and is down after ${duration(session.timeout_ms)} of silence.`);
    if (session.superseded) said.push("Another process took over from its client.");
  }
  const alive = explained.owner_admitted ? "counts as alive" : "does not count as alive";
  if (owner === live.status?.id) said.push(`Node ${owner} is the one that was asked.`);
  else if (evidence) said.push(`Node ${owner} ${alive}: its last sign of life came ${duration(evidence.age_ms)} ago, ${evidence.via ? `passed on by ${evidence.via}` : "heard directly"}.`);
  if (inferred) said.push(`Node ${inferred.by} wrote it off after life number ${inferred.life}; that ${inferred.applies ? "applies" : "no longer applies"}.`);
  if (explained.responsible) said.push(`Node ${explained.responsible} is responsible while ${owner} is silent.`);
  said.push(`Version ${explained.version}, written as ${explained.written}, claim ${explained.claim}.`);
  return said;
}

export function mount(root, { argument: id }) {
  let member = null;
  let gone = false;
  let caughtUp = false;
  let timer = 0;
  const status = h("span", { class: "member-status" });
  const note = h("p", { class: "empty card", hidden: true, role: "status" });
  const attributes = h("dl", { class: "facts" });
  const metadata = h("dl", { class: "facts mono" });
  const endpoints = h("dl", { class: "facts mono" });
  const endpointsCard = h("section", { class: "card", "aria-labelledby": "m-endpoints" }, h("h2", { id: "m-endpoints" }, "Endpoints"), endpoints);
  const why = h("ul", { class: "reasons" });
  const items = h("ol", { class: "timeline" });
  const none = h("p", { class: "hint" });
  const body = h("div", { class: "columns even" },
    h("div", { class: "stack" },
      h("section", { class: "card", "aria-labelledby": "m-facts" }, h("h2", { id: "m-facts" }, "Member"), attributes),
      h("section", { class: "card", "aria-labelledby": "m-metadata" }, h("h2", { id: "m-metadata" }, "Metadata"), metadata),
      endpointsCard),
    h("div", { class: "stack" },
      h("section", { class: "card", "aria-labelledby": "m-why" }, h("h2", { id: "m-why" }, "Why it has this status"), why),
      h("section", { class: "card", "aria-labelledby": "m-timeline" }, h("h2", { id: "m-timeline" }, "Timeline"), none, items)));

  const draw = eachFrame(() => {
    note.hidden = member !== null && !gone;
    if (gone) text(note, "It has unregistered. What follows is what was known last.");
    else if (!member && caughtUp) text(note, `No member ${quoted(id)} is registered. It may have left, or never been here.`);
    else text(note, "Reading…");
    body.hidden = member === null;
    if (!member) return;
    status.replaceChildren(chip(gone ? "left" : standing(member)));
    facts(attributes, [
      ["Service", h("a", { href: membersLink(`service == ${quoted(member.service)}`) }, member.service)],
      ["Address", h("span", { class: "mono" }, member.address || "–")],
      ["Locality", member.locality || "–"],
      ["Owner", [h("a", { class: "mono", href: membersLink(`owner == ${quoted(member.owner.node)}`) }, member.owner.node), " since ", moment(member.owner.since)]],
      ["Client", h("a", { class: "mono", href: membersLink(`client == ${quoted(member.client)}`) }, member.client || "–")],
      ["Version", h("span", { class: "mono" }, member.version)],
      ["Revision", member.revision || "–"],
      ["Weight", count(member.weight)],
      ["Registered", moment(member.created)],
    ]);
    const pairs = (map) => (Object.keys(map).length > 0 ? Object.entries(map) : [["none", ""]]);
    facts(metadata, pairs(member.metadata));
    facts(endpoints, pairs(member.endpoints));
    endpointsCard.hidden = Object.keys(member.endpoints).length === 0;
  });

  async function explain() {
    clearTimeout(timer);
    if (member && !document.hidden) {
      try {
        const explained = await get(`/api/v1/members/${encodeURIComponent(id)}/explain`);
        keyed(why, reasons(explained, member.drained).map((said, index) => ({ said, index })), ({ index }) => index, () => h("li"), (item, { said }) => text(item, said));
      } catch {
        // The banner says if the node is gone; else there is nothing more to explain.
      }
    }
    if (!gone) timer = setTimeout(explain, AGAIN);
  }

  const stream = new Stream(`/api/v1/watch?filter=${encodeURIComponent(`id == ${quoted(id)}`)}`, {
    events(batch) {
      const before = member;
      for (const { event, data } of batch) {
        if (event === "caught-up") caughtUp = true;
        else if (event === "unregister") gone = true;
        else if (event === "reset") caughtUp = false;
        else {
          member = data.member;
          gone = false;
        }
      }
      if (member !== before) explain();
      draw();
    },
  });
  const feed = timeline(`id == ${quoted(id)}`, (list) => {
    const own = list.filter((event) => event.id === id || (event.kind === "node" && event.subject === id)).slice(0, 100);
    keyed(items, own, (event) => event.key, (event) => entry(event, true));
    text(none, own.length > 0 ? "What this node still remembers, newest first." : "Nothing that this node remembers.");
  });

  root.append(h("p", { class: "crumbs" }, h("a", { href: "#/members" }, "Members"), " / ", status), note, body);
  draw();
  return {
    unmount() {
      clearTimeout(timer);
      stream.close();
      feed.close();
      draw.cancel();
      gone = true;
    },
  };
}
