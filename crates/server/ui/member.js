// One member: its attributes, the explanation of its status, and its events.

import { get } from "./api.js";
import { eachFrame, h, keyed, text } from "./dom.js";
import { chip, clock, count, exactly, membersLink, quoted, standing } from "./format.js";
import { entry, timeline } from "./events.js";
import { Stream } from "./stream.js";

const AGAIN = 3000;

const moment = (ms) => (ms > 0 ? h("time", { datetime: exactly(ms), title: exactly(ms) }, clock(ms)) : "–");

/** Reason and end of a drain. The explanation says how long it still lasts. */
function maintenance({ reason, until }) {
  const end = until ? ["until ", moment(until)] : ["until an operator undoes it"];
  return h("span", {}, ...end, reason ? ` · ${reason}` : "");
}

function facts(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function mount(root, { argument: id }) {
  let member = null;
  let gone = false;
  let caughtUp = false;
  let explained = false;
  let closed = false;
  let timer = 0;
  const status = h("span", { class: "member-status" });
  const note = h("p", { class: "empty card", hidden: true, role: "status" });
  const attributes = h("dl", { class: "facts" });
  const metadata = h("dl", { class: "facts mono" });
  const endpoints = h("dl", { class: "facts mono" });
  const endpointsCard = h(
    "section",
    { class: "card", "aria-labelledby": "m-endpoints" },
    h("h2", { id: "m-endpoints" }, "Endpoints"),
    endpoints,
  );
  const checks = h("dl", { class: "facts" });
  const checksCard = h(
    "section",
    { class: "card", "aria-labelledby": "m-checks" },
    h("h2", { id: "m-checks" }, "Checks"),
    checks,
  );
  const why = h("ul", { class: "reasons" });
  const items = h("ol", { class: "timeline" });
  const none = h("p", { class: "hint" });
  const left = h(
    "div",
    { class: "stack" },
    h("section", { class: "card", "aria-labelledby": "m-facts" }, h("h2", { id: "m-facts" }, "Member"), attributes),
    h(
      "section",
      { class: "card", "aria-labelledby": "m-metadata" },
      h("h2", { id: "m-metadata" }, "Metadata"),
      metadata,
    ),
    endpointsCard,
    checksCard,
  );
  const body = h(
    "div",
    { class: "columns even" },
    left,
    h(
      "div",
      { class: "stack" },
      h(
        "section",
        { class: "card", "aria-labelledby": "m-why" },
        h("h2", { id: "m-why" }, "Explanation of its status"),
        why,
      ),
      h(
        "section",
        { class: "card", "aria-labelledby": "m-timeline" },
        h("h2", { id: "m-timeline" }, "Timeline"),
        none,
        items,
      ),
    ),
  );

  const draw = eachFrame(() => {
    note.hidden = member !== null && !gone;
    if (gone) text(note, "This member has left. The page shows its last known state.");
    else if (!member && caughtUp) text(note, `No member ${quoted(id)} is registered.`);
    else text(note, "Loading…");
    // A member that left before the page was opened has an explanation and events, and no attributes.
    body.hidden = member === null && !explained;
    left.hidden = member === null;
    if (!member) {
      status.replaceChildren(...(explained ? [chip("left")] : []));
      return;
    }
    status.replaceChildren(chip(gone ? "left" : standing(member)));
    facts(attributes, [
      ["Service", h("a", { href: membersLink(`service == ${quoted(member.service)}`) }, member.service)],
      ["Address", h("span", { class: "mono" }, member.address || "–")],
      ["Locality", member.locality || "–"],
      [
        "Owner",
        [
          h("a", { class: "mono", href: membersLink(`owner == ${quoted(member.owner.node)}`) }, member.owner.node),
          " since ",
          moment(member.owner.since),
        ],
      ],
      [
        "Client",
        h("a", { class: "mono", href: membersLink(`client == ${quoted(member.client)}`) }, member.client || "–"),
      ],
      ...(member.maintenance ? [["Drained", maintenance(member.maintenance)]] : []),
      ["Version", h("span", { class: "mono" }, member.version)],
      ["Revision", member.revision || "–"],
      ["Weight", count(member.weight)],
      ["Registered", moment(member.created)],
    ]);
    const pairs = (map) => (Object.keys(map).length > 0 ? Object.entries(map) : [["none", ""]]);
    facts(metadata, pairs(member.metadata));
    facts(endpoints, pairs(member.endpoints));
    endpointsCard.hidden = Object.keys(member.endpoints).length === 0;
    const shown = member.checks ?? [];
    facts(
      checks,
      shown.map((check) => [
        check.name || check.id,
        [chip(check.status), ` ${check.type} ${check.target} ${check.output} since `, moment(check.since)],
      ]),
    );
    checksCard.hidden = shown.length === 0;
  });

  async function explain() {
    clearTimeout(timer);
    if ((member || caughtUp) && !document.hidden) {
      try {
        const { sentences } = await get(`/api/v1/members/${encodeURIComponent(id)}/explain`);
        explained = true;
        keyed(
          why,
          sentences.map((sentence, index) => ({ sentence, index })),
          ({ index }) => index,
          () => h("li"),
          (item, { sentence }) => text(item, sentence),
        );
        draw();
      } catch {
        // The banner shows a lost connection.
        // An id that was never registered has no explanation until it is registered.
        if (!member) return;
      }
    }
    if (!closed) timer = setTimeout(explain, AGAIN);
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
      if (member !== before || !explained) explain();
      draw();
    },
  });
  const feed = timeline(`id == ${quoted(id)}`, (list) => {
    const own = list
      .filter((event) => event.id === id || (event.kind === "node" && event.subject === id))
      .slice(0, 100);
    keyed(
      items,
      own,
      (event) => event.key,
      (event) => entry(event, true),
    );
    text(
      none,
      own.length > 0 ? "Events kept by this node, newest first." : "This node keeps no events of this member.",
    );
  });

  root.append(h("p", { class: "crumbs" }, h("a", { href: "#/members" }, "Members"), " / ", status), note, body);
  draw();
  return {
    unmount() {
      clearTimeout(timer);
      stream.close();
      feed.close();
      draw.cancel();
      closed = true;
    },
  };
}
