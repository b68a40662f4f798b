#!/usr/bin/env python3
"""Runs unmodified Consul clients against the keys, sessions and transactions of a Convoke node.

usage: clients.py HOST:PORT [--consul PATH]

Uses the `consul` program and the packages py-consul and python-consul2 (both are the module `consul`: run it once with each).
Exits with 77 if a client is missing, after it has run the others.
"""

import argparse
import base64
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

SKIPPED = 77


def check(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, wanted {wanted!r}")


def program(consul, address):
    env = {**os.environ, "CONSUL_HTTP_ADDR": address}

    def run(*arguments, code=0, stdin=None):
        done = subprocess.run([consul, *arguments], env=env, input=stdin, capture_output=True, text=True, timeout=60)
        check(done.returncode, code, f"consul {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    run("kv", "delete", "-recurse", "cli/")
    check(run("kv", "put", "cli/a", "1"), "Success! Data written to: cli/a\n", "put")
    run("kv", "put", "-flags=42", "cli/b", "-", stdin="from stdin")
    check(run("kv", "get", "cli/b"), "from stdin\n", "get")
    assert "42" in run("kv", "get", "-detailed", "cli/b")
    check(run("kv", "get", "-recurse", "cli/"), "cli/a:1\ncli/b:from stdin\n", "get -recurse")
    check(run("kv", "get", "-keys", "cli/"), "cli/a\ncli/b\n", "get -keys")
    run("kv", "get", "cli/none", code=1)
    index = [line.split()[1] for line in run("kv", "get", "-detailed", "cli/a").splitlines() if "ModifyIndex" in line][0]
    run("kv", "put", "-cas", "-modify-index=987654", "cli/a", "2", code=1)
    run("kv", "put", "-cas", f"-modify-index={index}", "cli/a", "2")
    exported = run("kv", "export", "cli/")
    run("kv", "delete", "-recurse", "cli/")
    check(run("kv", "get", "-recurse", "cli/"), "", "get -recurse after delete")
    run("kv", "import", "-", stdin=exported)
    check(run("kv", "get", "cli/a"), "2\n", "get after import")
    lock(consul, env)


def lock(consul, env):
    """Two `consul lock` processes never run their command at the same time, and a killed holder does not block the other."""
    with tempfile.TemporaryDirectory() as directory:
        trace = pathlib.Path(directory, "trace")
        command = f"echo begin >> {trace}; sleep 0.5; echo end >> {trace}"
        holders = [subprocess.Popen([consul, "lock", "cli/lock", command], env=env, stdout=subprocess.DEVNULL) for _ in range(3)]
        for holder in holders:
            check(holder.wait(timeout=120), 0, "consul lock")
        check(trace.read_text().split(), ["begin", "end"] * 3, "runs under the lock")
        # A semaphore of two.
        command = f"echo in >> {trace}.n; sleep 1; echo out >> {trace}.n"
        holders = [
            subprocess.Popen([consul, "lock", "-n=2", "cli/semaphore", command], env=env, stdout=subprocess.DEVNULL) for _ in range(2)
        ]
        for holder in holders:
            check(holder.wait(timeout=120), 0, "consul lock -n=2")
        check(pathlib.Path(f"{trace}.n").read_text().split()[:2], ["in", "in"], "two holders of the semaphore")


def module(address):
    import consul

    host, _, port = address.rpartition(":")
    client = consul.Consul(host=host, port=int(port))
    kv = client.kv
    kv.delete("py/", recurse=True)
    check(kv.put("py/a", "1", flags=7), True, "put")
    index, found = kv.get("py/a")
    check((found["Value"], found["Flags"]), (b"1", 7), "get")
    check(kv.put("py/a", "2", cas=found["ModifyIndex"]), True, "cas")
    check(kv.put("py/a", "3", cas=found["ModifyIndex"]), False, "stale cas")
    check(kv.get("py/none")[1], None, "missing key")
    check(kv.get("py/", keys=True)[1], ["py/a"], "keys")
    # A blocking query returns with the change.
    index, _ = kv.get("py/a")
    changing = threading.Timer(0.5, lambda: consul.Consul(host=host, port=int(port)).kv.put("py/a", "4"))
    changing.start()
    later, found = kv.get("py/a", index=index, wait="60s")
    check((found["Value"], int(later) > int(index)), (b"4", True), "blocking get")
    # The lock of a session.
    session = client.session.create(name="one", ttl=10, behavior="delete", lock_delay=1)
    other = client.session.create(name="two", ttl=10, lock_delay=1)
    check(kv.put("py/leader", "me", acquire=session), True, "acquire")
    check(kv.put("py/leader", "you", acquire=other), False, "acquire by another session")
    check(kv.get("py/leader")[1]["Session"], session, "holder")
    check(client.session.renew(session)["ID"], session, "renew")
    check(client.session.info(session)[1]["Name"], "one", "info")
    assert {session, other} <= {found["ID"] for found in client.session.list()[1]}
    check(client.session.destroy(session), True, "destroy")
    check(kv.get("py/leader")[1], None, "the key of a session with the behavior delete")
    check(kv.put("py/leader", "you", acquire=other), False, "within the lock delay")
    until = time.monotonic() + 30
    while not kv.put("py/leader", "you", acquire=other):
        assert time.monotonic() < until, "the lock delay does not end"
        time.sleep(0.2)
    check(kv.put("py/leader", "", release=other), True, "release")
    client.session.destroy(other)
    try:
        client.session.renew(other)
        raise AssertionError("an ended session was renewed")
    except consul.base.NotFound:
        pass
    value = base64.b64encode(b"5").decode()
    answer = client.txn.put([{"KV": {"Verb": "set", "Key": "py/t", "Value": value}}, {"KV": {"Verb": "get", "Key": "py/t"}}])
    check(len(answer["Results"]), 2, "txn")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("address")
    arguments.add_argument("--consul", default=shutil.which("consul"))
    given = arguments.parse_args()
    missing = []
    if given.consul:
        program(given.consul, given.address)
        print("passed: consul kv, consul lock")
    else:
        missing.append("the program consul")
    try:
        import consul  # noqa: F401
    except ImportError:
        missing.append("the Python package py-consul or python-consul2")
    else:
        module(given.address)
        print("passed: Python module consul")
    if missing:
        print("SKIPPED, not found: " + ", ".join(missing))
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
