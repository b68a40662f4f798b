// Runs the npm package `consul` against a node: services, health, keys, sessions and its watches.
//
// usage: NODE_PATH=DIRECTORY/node_modules node client.js HOST:PORT

"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const Consul = require("consul");

const [host, port] = process.argv[2].split(":");
const consul = new Consul({ host, port: Number(port) });
const SECONDS = 60;

// Waits until the condition returns something true.
async function eventually(what, condition) {
  const until = Date.now() + SECONDS * 1000;
  while (Date.now() < until) {
    const found = await condition();
    if (found) return found;
    await new Promise((next) => setTimeout(next, 100));
  }
  throw new Error(`not within ${SECONDS} s: ${what}`);
}

// Reads the changes of a watch, in order.
class Changes {
  constructor(method, options) {
    this.seen = [];
    this.watch = consul.watch({ method, options, backofffactor: 100, maxattempts: 5 });
    this.watch.on("change", (data) => this.seen.push(data));
    this.watch.on("error", (error) => (this.error = error));
  }

  async until(what, wanted) {
    await eventually(what, () => {
      if (this.error) throw this.error;
      return this.seen.length > 0 && wanted(this.seen[this.seen.length - 1]);
    });
  }

  async end() {
    const ended = once(this.watch, "end");
    this.watch.end();
    await ended;
  }
}

async function services() {
  const self = await consul.agent.self();
  const nodes = await consul.catalog.node.list();
  assert.ok(nodes.some((row) => row.Node === self.Config.NodeName));
  const passing = new Changes(consul.health.service, { service: "npm-web", passing: true });
  await passing.until("the watch has begun", (rows) => rows.length === 0);
  await consul.agent.service.register({
    id: "npm-1", name: "npm-web", address: "10.0.0.1", port: 80, tags: ["a"], meta: { version: "2" }, check: { ttl: "10m" },
  });
  assert.equal((await consul.agent.service.list())["npm-1"].Service, "npm-web");
  await consul.agent.check.pass({ id: "service:npm-1", note: "fine" });
  await passing.until("the instance passes", (rows) => rows.length === 1);
  const [row] = passing.seen[passing.seen.length - 1];
  assert.deepEqual([row.Service.Address, row.Service.Port, row.Service.Tags], ["10.0.0.1", 80, ["a"]]);
  assert.equal(row.Service.Meta.version, "2");
  assert.equal(row.Checks.find((check) => check.CheckID === "service:npm-1").Output, "fine");
  await consul.agent.check.fail({ id: "service:npm-1", note: "broken" });
  await passing.until("the instance is critical", (rows) => rows.length === 0);
  const critical = await eventually("its check is critical", async () =>
    (await consul.health.state({ state: "critical" })).find((check) => check.ServiceID === "npm-1"));
  assert.equal(critical.Output, "broken");
  await consul.agent.check.warn({ id: "service:npm-1" });
  const warning = await eventually("the instance warns", async () =>
    (await consul.health.checks({ service: "npm-web" })).find((check) => check.Status === "warning"));
  assert.equal(warning.CheckID, "service:npm-1");
  await consul.agent.check.pass({ id: "service:npm-1" });
  await passing.until("the instance passes again", (rows) => rows.length === 1);
  await consul.agent.service.maintenance({ id: "npm-1", enable: true, reason: "test" });
  await passing.until("maintenance", (rows) => rows.length === 0);
  await consul.agent.service.maintenance({ id: "npm-1", enable: false });
  await passing.until("no maintenance", (rows) => rows.length === 1);
  await consul.agent.service.deregister("npm-1");
  await passing.until("the instance is deregistered", (rows) => rows.length === 0);
  await passing.end();
  await eventually("the service is gone", async () => !("npm-web" in (await consul.catalog.service.list())));
}

async function keys() {
  await consul.kv.del({ key: "npm/", recurse: true });
  const watched = new Changes(consul.kv.get, { key: "npm/a" });
  await watched.until("the watch has begun", (key) => key === undefined);
  await consul.kv.set({ key: "npm/a", value: "1", flags: 7 });
  await watched.until("the first value", (key) => key?.Value === "1");
  const first = await consul.kv.get("npm/a");
  assert.equal(first.Flags, 7);
  assert.equal(await consul.kv.set({ key: "npm/a", value: "2", cas: first.ModifyIndex }), true);
  // The package returns undefined for false.
  assert.ok(!(await consul.kv.set({ key: "npm/a", value: "3", cas: first.ModifyIndex })));
  await watched.until("the second value", (key) => key.Value === "2");
  await watched.end();
  assert.deepEqual(await consul.kv.keys("npm/"), ["npm/a"]);
  await consul.transaction.create([{ KV: { Verb: "set", Key: "npm/t", Value: Buffer.from("5").toString("base64") } }]);
  assert.equal((await consul.kv.get("npm/t")).Value, "5");
}

async function sessions() {
  const { ID: session } = await consul.session.create({ name: "npm", ttl: "10s", lockdelay: "1s", behavior: "release" });
  const { ID: other } = await consul.session.create({ ttl: "10s", lockdelay: "1s" });
  assert.equal(await consul.kv.set({ key: "npm/lock", value: "me", acquire: session }), true);
  assert.ok(!(await consul.kv.set({ key: "npm/lock", value: "you", acquire: other })));
  assert.equal((await consul.kv.get("npm/lock")).Session, session);
  assert.equal((await consul.session.get(session)).Name, "npm");
  assert.equal([await consul.session.renew(session)].flat()[0].ID, session);
  const held = new Changes(consul.kv.get, { key: "npm/lock" });
  await held.until("the holder", (key) => key.Session === session);
  await consul.session.destroy(session);
  await held.until("the lock is free", (key) => key.Session === undefined && key.Value === "me");
  await held.end();
  await eventually("the lock delay ends", () => consul.kv.set({ key: "npm/lock", value: "you", acquire: other }));
  assert.equal(await consul.kv.set({ key: "npm/lock", value: "", release: other }), true);
  await consul.session.destroy(other);
  await consul.kv.del({ key: "npm/", recurse: true });
  assert.equal(await consul.kv.get("npm/a"), undefined);
}

services().then(keys).then(sessions).then(
  () => console.log("complete"),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
