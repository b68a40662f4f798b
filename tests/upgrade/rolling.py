#!/usr/bin/env python3
"""Rolling upgrade: three nodes of an old binary are replaced by a new one, one after the other, under load.

While the nodes are replaced, a client writes keys, and clients of the old binary have registered members. Checks:

- no acknowledged write is lost, and writes never stop for longer than --gap seconds;
- every member stays up at every node;
- the status names the feature level and the replicas that hold it back;
- below the new level a transaction is rejected; `convoke log upgrade` raises the level, and the transaction works.

    tests/upgrade/rolling.py OLD NEW [--gap 5]

README.md in this directory states how to build OLD. Exits with 1 and the reason if a check fails.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
from ports import free_ports  # noqa: E402

NODES = ["n1", "n2", "n3"]
MEMBERS = 6
TXN = "if value before/0 = 0\nthen put upgraded yes\nthen get before/1\n"


def request(port, path, method="GET", body=None, timeout=5):
    data = body.encode() if body is not None else None
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, method=method)
    with urllib.request.urlopen(asked, timeout=timeout) as answer:
        return answer.read()


class Cluster:
    def __init__(self, directory):
        self.directory = directory
        ports = free_ports(6)
        self.clients = dict(zip(NODES, ports[:3]))
        self.peers = dict(zip(NODES, ports[3:]))
        self.running = {}

    def start(self, binary, node):
        join = [f"127.0.0.1:{port}" for port in self.peers.values()]
        log = open(os.path.join(self.directory, f"{node}.log"), "a")
        self.running[node] = subprocess.Popen(
            [binary, "start", "--id", node, "--client-port", str(self.clients[node]), "--peer-port",
             str(self.peers[node]), "--dns-port", "0", "--data-dir", os.path.join(self.directory, node),
             "--join", ",".join(join)],
            stdout=log, stderr=log)

    def stop(self, node):
        """Stops a node as a service manager does. Returns its exit code."""
        process = self.running.pop(node)
        process.send_signal(signal.SIGTERM)
        return process.wait(timeout=60)

    def addresses(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.clients.values())

    def is_ready(self, node):
        try:
            request(self.clients[node], "/readyz")
            request(self.clients[node], "/readyz?log")
            return True
        except OSError:
            return False


class Writer(threading.Thread):
    """Writes one key after the other until it is stopped, each at the next node that answers."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.stopped = cluster, threading.Event()
        self.acknowledged, self.longest_gap, self.last = {}, 0.0, time.time()

    def run(self):
        number = 0
        while not self.stopped.is_set():
            port = list(self.cluster.clients.values())[number % len(NODES)]
            try:
                request(port, f"/api/v1/kv/load/{number}", "PUT", str(number))
            except OSError:
                # The outcome is unknown or the node is stopped. Only acknowledged writes are checked.
                number += 1
                continue
            self.acknowledged[f"load/{number}"] = str(number)
            self.longest_gap = max(self.longest_gap, time.time() - self.last)
            self.last = time.time()
            number += 1
            time.sleep(0.02)

    def finish(self):
        self.stopped.set()
        self.join()
        self.longest_gap = max(self.longest_gap, time.time() - self.last)


class MemberWatch(threading.Thread):
    """Records every member that a node does not show as up."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.stopped, self.findings, self.looks = cluster, threading.Event(), set(), 0

    def run(self):
        while not self.stopped.is_set():
            for node, port in self.cluster.clients.items():
                if node not in self.cluster.running:
                    continue
                try:
                    request(port, "/readyz")
                    members = json.loads(request(port, "/api/v1/members"))["members"]
                except (OSError, ValueError):
                    continue
                states = {member["id"]: member["status"] for member in members if member["id"].startswith("up-")}
                self.looks += 1
                for number in range(MEMBERS):
                    state = states.get(f"up-{number}", "absent")
                    if state != "up":
                        self.findings.add(f"{node} showed up-{number} as {state}")
            time.sleep(0.1)

    def finish(self):
        self.stopped.set()
        self.join()


def wait(what, holds, seconds=60):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if holds():
            return
        time.sleep(0.2)
    sys.exit(f"not within {seconds} s: {what}")


def check(holds, what):
    if not holds:
        sys.exit(f"failed: {what}")
    print(f"ok: {what}", flush=True)


def command(binary, cluster, *arguments, stdin=None):
    """Runs a command of the new binary. Returns its exit code, output and errors."""
    ran = subprocess.run([binary, *arguments, "--addr", cluster.addresses(), "--timeout", "10s"], input=stdin,
                         capture_output=True, text=True)
    return ran.returncode, ran.stdout, ran.stderr


def leader_status(cluster):
    """Returns the status of the log as its leader shows it; `None` without a leader."""
    for node in NODES:
        try:
            status = json.loads(request(cluster.clients[node], "/api/v1/log/status"))
        except (OSError, ValueError):
            continue
        if status.get("role") == "leader":
            return status
    return None


def is_caught_up(cluster, node):
    leader = leader_status(cluster)
    try:
        own = json.loads(request(cluster.clients[node], "/api/v1/log/status"))
    except (OSError, ValueError):
        return False
    return leader is not None and own["applied"] >= leader["commit"] - 50 and own["applied"] > 0


def all_members_up(cluster):
    def up(port):
        members = json.loads(request(port, "/api/v1/members"))["members"]
        return sum(member["status"] == "up" and member["id"].startswith("up-") for member in members)

    try:
        return all(up(port) == MEMBERS for port in cluster.clients.values())
    except (OSError, ValueError):
        return False


def upgrade(old, new, directory, gap_max):
    cluster = Cluster(directory)
    members, writer, watch = [], Writer(cluster), MemberWatch(cluster)
    try:
        for node in NODES:
            cluster.start(old, node)
        wait("three old nodes are ready", lambda: all(cluster.is_ready(node) for node in NODES))
        port = cluster.clients["n1"]
        for number in range(20):
            request(port, f"/api/v1/kv/before/{number}", "PUT", str(number))
        for number in range(MEMBERS):
            members.append(subprocess.Popen(
                [old, "register", "--id", f"up-{number}", "--service", "upgrade", "--addr", cluster.addresses(),
                 "--address", f"127.0.0.1:{9000 + number}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait("all nodes show all members", lambda: all_members_up(cluster))
        writer.last = time.time()
        writer.start()
        watch.start()

        for at, node in enumerate(NODES):
            check(cluster.stop(node) == 0, f"old {node} stops with exit code 0")
            cluster.start(new, node)
            wait(f"new {node} is ready", lambda node=node: cluster.is_ready(node))
            wait(f"new {node} has caught up", lambda node=node: is_caught_up(cluster, node))
            if at + 1 < len(NODES):
                check_held_back(new, cluster, NODES[at + 1:])
        wait("the status shows that all support a higher level", lambda: not held_back(cluster), 30)
        check(level(cluster) == 1, "the log still has level 1")
        code, out, err = command(new, cluster, "log", "upgrade")
        check(code == 0, f"convoke log upgrade: {(out or err).strip()}")
        wait("the log has level 2", lambda: level(cluster) == 2, 10)
        code, out, err = command(new, cluster, "kv", "txn", stdin=TXN)
        check(code == 0, f"a transaction works at level 2: {(out or err).strip()!r}")

        writer.finish()
        watch.finish()
        check(writer.longest_gap <= gap_max,
              f"writes never stopped for longer than {gap_max} s; the longest pause was {writer.longest_gap:.2f} s")
        lost = [key for key, value in writer.acknowledged.items() if read(cluster, key) != value]
        lost += [f"before/{number}" for number in range(20) if read(cluster, f"before/{number}") != str(number)]
        check(not lost, f"none of {len(writer.acknowledged) + 20} acknowledged writes is lost{'' if not lost else ': ' + str(lost[:5])}")
        check(not watch.findings, f"all members were up in {watch.looks} lists {sorted(watch.findings)[:5] or ''}")
    finally:
        writer.stopped.set()
        watch.stopped.set()
        for process in [*members, *cluster.running.values()]:
            process.kill()
        for process in [*members, *cluster.running.values()]:
            process.wait()


def read(cluster, key):
    return request(cluster.clients["n2"], f"/api/v1/kv/{key}?raw").decode()


def level(cluster):
    return (leader_status(cluster) or {}).get("level")


def held_back(cluster):
    """Returns the nodes that hold the level back, as the leader names them; all of them if an old node leads."""
    obstacle = (leader_status(cluster) or {}).get("level_obstacle")
    return list(NODES) if obstacle is None else [node for node in NODES if node in obstacle]


def check_held_back(new, cluster, expected):
    """While old replicas exist, a new leader names them and rejects transactions."""
    replaced = [node for node in NODES if node not in expected]
    code, _, err = command(new, cluster, "log", "transfer", replaced[0])
    check(code == 0, f"leadership is transferred to new {replaced[0]} {err.strip()}")
    wait(f"the status names {expected}", lambda: sorted(held_back(cluster)) == expected, 30)
    code, out, err = command(new, cluster, "kv", "txn", stdin=TXN)
    check(code != 0 and "level" in err, f"a transaction is rejected at level 1: {err.strip()!r}")
    code, out, err = command(new, cluster, "log", "upgrade")
    check(code != 0 and all(node in err for node in expected), f"log upgrade is rejected: {err.strip()!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the old binary")
    parser.add_argument("new", help="the new binary")
    parser.add_argument("--gap", type=float, default=5.0, help="longest pause of writes, in seconds")
    parser.add_argument("--keep", action="store_true", help="keep the directory with the output of the nodes")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="upgrade-")
    try:
        upgrade(os.path.abspath(options.old), os.path.abspath(options.new), directory, options.gap)
    finally:
        if options.keep:
            print(f"output of the nodes: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
