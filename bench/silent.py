#!/usr/bin/env python3
"""Silent connections: thousands of strangers connect to both ports of a node and send nothing, or the begin of a request.

The strangers are processes of their own with addresses 127.0.0.2, 127.0.0.3 and so on, so the memory is that of the node
alone. While the connections are open, a client reads, and another node joins. Exits with 1 if one of them fails, or if the
memory of the node grows by more than 64 MiB.

    bench/silent.py target/release/convoke [--count 50000] [--hold 20]

Each stranger process opens at most 12,000 connections, which fit into the usual limit of open files.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from ports import free_ports

PER_PROCESS = 12_000
GROWTH_MAX = 64 * 1024 * 1024


def resident(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def strangers(port, address, count, begun):
    """A process that opens connections and keeps them until it is killed. Prints a line when all were opened."""
    pid = os.fork()
    if pid:
        return pid
    held = []
    for number in range(count):
        s = socket.socket()
        s.bind((address, 0))
        # The node may refuse, or close at once: both are answers to strangers.
        try:
            s.connect(("127.0.0.1", port))
            if number % 4 == 0:
                s.send(begun)
        except OSError:
            pass
        held.append(s)
    open(f"/tmp/silent-{os.getpid()}", "w").close()
    while True:
        time.sleep(60)


def start(convoke, directory, node, ports, join):
    log = open(os.path.join(directory, f"{node}.log"), "w")
    return subprocess.Popen([convoke, "start", "--id", node, "--client-port", str(ports[0]), "--peer-port", str(ports[1]),
                             "--dns-port", "0", "--data-dir", os.path.join(directory, node), *join], stdout=log, stderr=log)


def ask(convoke, port, *arguments):
    began = time.time()
    asked = subprocess.run([convoke, *arguments, "--json", "--timeout", "10s", "--addr", f"127.0.0.1:{port}"],
                           capture_output=True, text=True)
    return (json.loads(asked.stdout) if asked.returncode == 0 else None), time.time() - began


def nodes_up(convoke, port):
    answer, _ = ask(convoke, port, "nodes")
    return sum(node["state"] == "up" for node in (answer or {}).get("nodes", []))


def wait(what, holds, seconds=60):
    deadline = time.time() + seconds
    while time.time() < deadline:
        if holds():
            return
        time.sleep(0.2)
    sys.exit(f"not within {seconds} s: {what}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("convoke")
    parser.add_argument("--count", type=int, default=50_000, help="connections on each port")
    parser.add_argument("--hold", type=int, default=20, help="seconds for which the node is watched")
    options = parser.parse_args()
    convoke = os.path.abspath(options.convoke)
    directory = tempfile.mkdtemp(prefix="silent-")
    ports = free_ports(6)
    processes, children = [], []
    try:
        processes.append(start(convoke, directory, "n1", ports[:2], []))
        processes.append(start(convoke, directory, "n2", ports[2:4], ["--join", f"127.0.0.1:{ports[1]}"]))
        wait("two nodes", lambda: nodes_up(convoke, ports[0]) == 2)
        for _ in range(50):
            ask(convoke, ports[0], "members")
        before = resident(processes[0].pid)
        host = 2
        for port, begun in ((ports[0], b"GET /api"), (ports[1], b"CONVO")):
            left = options.count
            while left > 0:
                count = min(left, PER_PROCESS)
                children.append(strangers(port, f"127.0.0.{host}", count, begun))
                left, host = left - count, host + 1
        highest, slowest = before, 0.0
        done = lambda: all(os.path.exists(f"/tmp/silent-{child}") for child in children)
        deadline, opened = time.time() + 600, None
        while opened is None or time.time() < opened + options.hold:
            if opened is None and done():
                opened = time.time()
            if time.time() > deadline:
                sys.exit("the strangers did not connect in time")
            answer, took = ask(convoke, ports[0], "members")
            if answer is None:
                sys.exit(f"a client was not served: {subprocess.run([convoke, 'members', '--addr', f'127.0.0.1:{ports[0]}'], capture_output=True, text=True).stderr}")
            slowest, highest = max(slowest, took), max(highest, resident(processes[0].pid))
            time.sleep(0.2)
        processes.append(start(convoke, directory, "n3", ports[4:], ["--join", f"127.0.0.1:{ports[1]}"]))
        wait("a third node joins", lambda: nodes_up(convoke, ports[0]) == 3)
        grown = highest - before
        print(json.dumps({"connections_per_port": options.count, "rss_before": before, "rss_highest": highest,
                          "rss_grown": grown, "slowest_command_seconds": round(slowest, 3)}))
        if grown > GROWTH_MAX:
            sys.exit(f"the node grew by {grown} bytes, more than {GROWTH_MAX}")
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if os.path.exists(f"/tmp/silent-{child}"):
                os.remove(f"/tmp/silent-{child}")
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
