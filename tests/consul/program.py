#!/usr/bin/env python3
"""Runs the `consul` program against the keys and locks of a cluster.

usage: program.py HOST:PORT[,HOST:PORT…] CONSUL

`consul lock` runs at all nodes in turn; everything else runs at the first one.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from support import check


class Program:
    def __init__(self, consul, addresses):
        self.consul, self.addresses = consul, addresses

    def environment(self, number=0):
        return {**os.environ, "CONSUL_HTTP_ADDR": self.addresses[number % len(self.addresses)]}

    def run(self, *arguments, code=0, stdin=None):
        done = subprocess.run(
            [self.consul, *arguments], env=self.environment(), input=stdin, capture_output=True, text=True, timeout=60
        )
        check(done.returncode, code, f"consul {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def lock(self, count, *arguments):
        """Starts this many `consul lock`, each at the next node, and waits for all."""
        holders = [
            subprocess.Popen([self.consul, "lock", *arguments], env=self.environment(number), stdout=subprocess.DEVNULL)
            for number in range(count)
        ]
        try:
            for holder in holders:
                check(holder.wait(timeout=120), 0, "consul lock " + " ".join(arguments))
        finally:
            for holder in holders:
                holder.kill()
                holder.wait()


def keys(run):
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
    run("kv", "delete", "-recurse", "cli/")


def locks(program):
    """`consul lock` processes never run their command at the same time; a semaphore of two runs two at the same time."""
    with tempfile.TemporaryDirectory() as directory:
        trace = pathlib.Path(directory, "trace")
        program.lock(3, "cli/lock", f"echo begin >> {trace}; sleep 0.5; echo end >> {trace}")
        check(trace.read_text().split(), ["begin", "end"] * 3, "runs under the lock")
        # Each holder waits for the other one, so it ends only if both hold the semaphore.
        arrived = f"echo in >> {trace}.n; until [ $(wc -l < {trace}.n) -ge 2 ]; do sleep 0.1; done"
        program.lock(2, "-n=2", "cli/semaphore", arrived)


def main():
    addresses, consul = sys.argv[1:]
    program = Program(consul, addresses.split(","))
    keys(program.run)
    locks(program)
    print("complete")


if __name__ == "__main__":
    main()
