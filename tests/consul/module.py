#!/usr/bin/env python3
"""Runs the Python module `consul` against a node: services, keys, sessions and transactions.

usage: module.py HOST:PORT

Both py-consul and python-consul2 are the module `consul`: run the script with the Python of each. Exits with 77 if there is none.
"""

import base64
import concurrent.futures
import sys

from support import check, eventually, skip

try:
    import consul
except ImportError:
    skip("the Python package py-consul or python-consul2")

# py-consul has moved its errors.
NotFound = getattr(consul, "NotFound", None) or __import__("consul.exceptions", fromlist=["NotFound"]).NotFound


class Clients:
    """Clients of one node. Each thread needs its own."""

    def __init__(self, address):
        self.host, _, self.port = address.rpartition(":")
        self.pool = concurrent.futures.ThreadPoolExecutor()

    def client(self):
        return consul.Consul(host=self.host, port=int(self.port))

    def waits(self, ask):
        """Sends a blocking query, which must still wait when this returns."""
        answer = self.pool.submit(ask, self.client())
        done, _ = concurrent.futures.wait([answer], timeout=0.3)
        check(done, set(), "a blocking query without a change has returned")
        return answer


def ids(answer):
    return sorted(row["Service"]["ID"] for row in answer[1])


def services(clients):
    """Registration, health, maintenance and waiting readers."""
    client = clients.client()
    node = client.agent.self()["Config"]["NodeName"]
    assert node in [row["Node"] for row in client.catalog.nodes()[1]]
    client.agent.service.register(
        "py-web", service_id="py-1", address="10.0.0.1", port=80, tags=["a", "b"], check=consul.Check.ttl("10m")
    )
    check(ids(client.health.service("py-web")), ["py-1"], "instances")
    check(ids(client.health.service("py-web", passing=True)), [], "passing before the first report")
    index, _ = client.health.service("py-web", passing=True)
    woken = clients.waits(lambda own: own.health.service("py-web", passing=True, index=index, wait="60s"))
    client.agent.check.ttl_pass("service:py-1", notes="fine")
    found = woken.result(timeout=60)
    if not found[1]:  # A waiting query may also return for a change that is not in its result.
        found = client.health.service("py-web", passing=True, index=found[0], wait="60s")
    check(ids(found), ["py-1"], "passing after the report")
    row = found[1][0]
    check((row["Service"]["Address"], row["Service"]["Port"], row["Service"]["Tags"]), ("10.0.0.1", 80, ["a", "b"]), "instance")
    check([c["Output"] for c in row["Checks"] if c["CheckID"] == "service:py-1"], ["fine"], "output")
    check(client.agent.services()["py-1"]["Service"], "py-web", "agent services")
    check(sorted(client.catalog.services()[1]["py-web"]), ["a", "b"], "catalog services")
    check(ids(client.health.service("py-web", tag="b")), ["py-1"], "by tag")
    check(ids(client.health.service("py-web", tag="c")), [], "by another tag")
    client.agent.check.ttl_fail("service:py-1", notes="broken")
    eventually("the instance is critical", lambda: ids(client.health.service("py-web", passing=True)) == [])
    eventually("its check is listed", lambda: "py-1" in [c["ServiceID"] for c in client.health.state("critical")[1]])
    client.agent.check.ttl_pass("service:py-1")
    eventually("it passes again", lambda: ids(client.health.service("py-web", passing=True)) == ["py-1"])
    client.agent.service.maintenance("py-1", True, "test")
    eventually("maintenance", lambda: ids(client.health.service("py-web", passing=True)) == [])
    client.agent.service.maintenance("py-1", False)
    eventually("no maintenance", lambda: ids(client.health.service("py-web", passing=True)) == ["py-1"])
    client.agent.service.deregister("py-1")
    eventually("deregistered", lambda: ids(client.health.service("py-web")) == [])
    assert client.catalog.register("py-ext", "10.1.1.1", service={"Service": "py-db", "Port": 5432})
    check([row["Address"] for row in client.catalog.service("py-db")[1]], ["10.1.1.1"], "an external node")
    assert client.catalog.deregister("py-ext")
    check(client.catalog.node("py-ext")[1], None, "the external node after its end")


def keys(clients):
    client = clients.client()
    kv = client.kv
    kv.delete("py/", recurse=True)
    check(kv.put("py/a", "1", flags=7), True, "put")
    found = kv.get("py/a")[1]
    check((found["Value"], found["Flags"]), (b"1", 7), "get")
    check(kv.put("py/a", "2", cas=found["ModifyIndex"]), True, "cas")
    check(kv.put("py/a", "3", cas=found["ModifyIndex"]), False, "stale cas")
    check(kv.get("py/none")[1], None, "missing key")
    check(kv.get("py/", keys=True)[1], ["py/a"], "keys")
    index, _ = kv.get("py/a")
    woken = clients.waits(lambda own: own.kv.get("py/a", index=index, wait="60s"))
    kv.put("py/a", "4")
    later, found = woken.result(timeout=60)
    check((found["Value"], int(later) > int(index)), (b"4", True), "blocking get")
    value = base64.b64encode(b"5").decode()
    answer = client.txn.put([{"KV": {"Verb": "set", "Key": "py/t", "Value": value}}, {"KV": {"Verb": "get", "Key": "py/t"}}])
    check(len(answer["Results"]), 2, "txn")
    kv.delete("py/", recurse=True)
    check(kv.get("py/", recurse=True)[1], None, "keys after a recursive delete")


def sessions(clients):
    """A session holds a key; the key is free after its end, and after the lock delay."""
    client = clients.client()
    kv = client.kv
    kv.delete("py/", recurse=True)
    session = client.session.create(name="one", ttl=10, behavior="delete", lock_delay=1)
    other = client.session.create(name="two", ttl=10, lock_delay=1)
    check(kv.put("py/leader", "me", acquire=session), True, "acquire")
    check(kv.put("py/leader", "you", acquire=other), False, "acquire by another session")
    check(kv.get("py/leader")[1]["Session"], session, "holder")
    check(client.session.renew(session)["ID"], session, "renew")
    check(client.session.info(session)[1]["Name"], "one", "info")
    assert {session, other} <= {found["ID"] for found in client.session.list()[1]}
    index, _ = kv.get("py/leader")
    woken = clients.waits(lambda own: own.kv.get("py/leader", index=index, wait="60s"))
    check(client.session.destroy(session), True, "destroy")
    check(woken.result(timeout=60)[1], None, "the key of a session with the behavior delete, for a reader that waits")
    check(kv.put("py/leader", "you", acquire=other), False, "within the lock delay")
    eventually("the lock delay ends", lambda: kv.put("py/leader", "you", acquire=other))
    check(kv.put("py/leader", "", release=other), True, "release")
    client.session.destroy(other)
    try:
        client.session.renew(other)
        raise AssertionError("an ended session was renewed")
    except NotFound:
        pass
    # Nobody renews this one.
    dead = client.session.create(name="dead", ttl=10, lock_delay=0)
    check(kv.put("py/dead", "held", acquire=dead), True, "acquire")
    eventually("the lock of a dead client is free", lambda: "Session" not in kv.get("py/dead")[1], 90)
    check(kv.get("py/dead")[1]["Value"], b"held", "the key of a dead client")


def main():
    clients = Clients(sys.argv[1])
    services(clients)
    keys(clients)
    sessions(clients)
    print("complete")


if __name__ == "__main__":
    main()
