#!/usr/bin/env python3
"""Consul's HTTP API: Convoke and a real Consul under the same loads, in one run, alternating.

Both systems run on this machine with their data in the same directory, one at a time, each time fresh. The load generator is
the same (`convoke bench`), with the same connections, so both serve the same requests. The load generator uses the same
cores, so rates say little: compared is the CPU time of the servers per operation, from /proc. An agent of Consul tells its
servers of registrations later; its CPU time counts until it is idle. Then Convoke alone: 5,000 blocking queries that every
change ends, and 10,000 members with an HTTP check every 10 s.

    tests/consul/prepare consul        # fetches Consul 1.8.7 into target/consul
    cargo build --release -p convoke
    bench/consul.py target/release/convoke --consul target/consul/consul/usr/bin/consul [--servers 1] [--clients 32]
        [--duration 10s] [--rounds 3] [--scenario NAME]... [--dir DIR] [--json]
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from load import bench
from ports import free_ports

# Name, load. Compared is the CPU time per operation; Consul needs at least GOAL times as much.
COMPARED = [
    ("register", ["consul-register", "--keep"]),
    ("catalog-register", ["consul-register", "--catalog", "--keep"]),
    ("lookup", ["consul-lookup", "--members", "10", "--keep"]),
]
GOAL = 10
# Name, load, the figures: JSON path, title, divisor, unit, and the wanted limit.
ALONE = [
    ("wait", ["consul-wait", "--watchers", "5000", "--rate", "1", "--nodes", "1"],
     [("latency_us.p50", "woken, p50", 1000, "ms", None), ("latency_us.max", "woken, last", 1000, "ms", None),
      ("missing", "not woken", 1, "", 0), ("server_cores", "server CPU", 1, "cores", None),
      ("server_cpu_us", "server CPU each", 1, "µs", None), ("watcher_kb", "memory each", 1, "kB", None)]),
    ("checks", ["checks", "--members", "10000", "--interval", "10s", "--nodes", "1"],
     [("per_second", "checks", 1, "/s", None), ("server_cores", "server CPU", 1, "cores", 0.5),
      ("server_cpu_us", "server CPU each", 1, "µs", None)]),
]


class Servers:
    """Servers of one system; ended with the block."""

    def __init__(self, program, directory, count):
        self.program, self.directory, self.count = program, directory, count
        self.processes = []

    def __enter__(self):
        ports = free_ports(4 * self.count)
        rows = [ports[4 * index:4 * index + 4] for index in range(self.count)]
        self.addresses = [f"127.0.0.1:{row[0]}" for row in rows]
        for index, row in enumerate(rows):
            log = open(os.path.join(self.directory, f"{index}.log"), "w")
            self.processes.append(subprocess.Popen(self.command(index, row, rows), stdout=log, stderr=log))
        deadline = time.monotonic() + 60
        while not all(self.is_ready(address) for address in self.addresses):
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                log = open(os.path.join(self.directory, "0.log")).read()
                sys.exit(f"{self.program} does not start:\n{log[-2000:]}")
            time.sleep(0.2)
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def arguments(self):
        pids = ",".join(str(process.pid) for process in self.processes)
        return ["--addr", ",".join(self.addresses), "--server-pid", pids]


class Convoke(Servers):
    def command(self, index, row, rows):
        client, peer, *_ = row
        command = [self.program, "start", "--id", f"n{index}", "--client-port", str(client), "--peer-port", str(peer),
                   "--dns-port", "0", "--data-dir", os.path.join(self.directory, f"n{index}"), "--log-level", "warn"]
        return command + (["--join", ",".join(f"127.0.0.1:{row[1]}" for row in rows)] if self.count > 1 else [])

    def is_ready(self, address):
        return answer(f"http://{address}/readyz?log") is not None


class Consul(Servers):
    def command(self, index, row, rows):
        http, lan, wan, server = row
        joined = [f"-retry-join=127.0.0.1:{other[1]}" for other in rows if other is not row]
        # The setting that Consul recommends for production.
        configuration = "performance { raft_multiplier = 1 } disable_update_check = true"
        return [self.program, "agent", "-server", f"-bootstrap-expect={self.count}", f"-node=n{index}", "-bind=127.0.0.1",
                f"-data-dir={self.directory}/n{index}", f"-http-port={http}", f"-serf-lan-port={lan}",
                f"-serf-wan-port={wan}", f"-server-port={server}", "-dns-port=-1", "-grpc-port=-1", "-log-level=warn",
                f"-hcl={configuration}", *joined]

    def is_ready(self, address):
        passing = answer(f"http://{address}/v1/health/state/passing")
        return passing is not None and passing.count(b"serfHealth") == self.count


def answer(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as found:
            return found.read()
    except OSError:
        return None


def measure(kind, program, load, options):
    directory = tempfile.mkdtemp(prefix="consul-bench-", dir=options.dir)
    try:
        with kind(program, directory, options.servers) as servers:
            return bench(options.convoke, [*load, "--clients", str(options.clients), "--duration", options.duration,
                                           *servers.arguments()])
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def compare(name, load, options):
    reports = {"convoke": [], "consul": []}
    for _ in range(options.rounds):
        reports["convoke"].append(measure(Convoke, options.convoke, load, options))
        reports["consul"].append(measure(Consul, options.consul, load, options))
    each = {system: [report["server_cpu_us"] for report in found] for system, found in reports.items()}
    middle = {system: statistics.median(values) for system, values in each.items()}
    ratio = middle["consul"] / middle["convoke"]
    if not options.json:
        print(f"{name}: convoke bench {' '.join(load)}")
        for system, values in each.items():
            rate = statistics.median(report["per_second"] for report in reports[system])
            errors = [report["errors"] for report in reports[system] if report["errors"]]
            print(f"  {system:8} CPU each {', '.join(f'{value:.1f}' for value in values)} µs, "
                  f"{1e6 / middle[system]:,.0f} per CPU second ({rate:,.0f}/s with this load)" + (f", errors {errors}" if errors else ""))
        print(f"  ratio per CPU second {ratio:.1f} (goal {GOAL}: {'met' if ratio >= GOAL else 'missed'})", flush=True)
    return {"scenario": name, "load": load, "cpu_us": each, "ratio": ratio, "goal": GOAL, "reports": reports}


def alone(name, load, figures, options):
    load = [*load, "--duration", options.long_duration]
    report = bench(options.convoke, load)
    rows = []
    for path, title, divisor, unit, limit in figures:
        value = report
        for part in path.split(".", 1):
            value = value[part]
        rows.append({"figure": title, "value": value / divisor, "unit": unit, "at_most": limit})
    if not options.json:
        print(f"{name}: convoke bench {' '.join(load)}")
        for row in rows:
            goal = "" if row["at_most"] is None else f" (goal at most {row['at_most']}: {'met' if row['value'] <= row['at_most'] else 'missed'})"
            print(f"  {row['figure']:18} {row['value']:,.2f} {row['unit']}{goal}")
        sys.stdout.flush()
    return {"scenario": name, "load": load, "figures": rows, "report": report}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("convoke", help="the binary, built with --release", type=os.path.abspath)
    parser.add_argument("--consul", default=shutil.which("consul"), help="the program consul [default: from PATH]")
    parser.add_argument("--servers", type=int, default=1, help="of each system")
    parser.add_argument("--clients", type=int, default=32, help="connections of the load")
    parser.add_argument("--dir", help="where both keep their data [default: the system's for temporary files]")
    parser.add_argument("--duration", default="10s", help="of each compared measurement")
    parser.add_argument("--long-duration", default="30s", help="of each measurement of Convoke alone")
    parser.add_argument("--rounds", type=int, default=3, help="of each system, in turn; all are shown")
    names = [name for name, *_ in COMPARED + ALONE]
    parser.add_argument("--scenario", action="append", choices=names, help="to measure; may be repeated [default: all]")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args()
    if options.rounds < 1 or options.servers < 1:
        parser.error("--rounds and --servers must be at least 1")
    wanted = options.scenario or names
    if not options.consul and any(name in wanted for name, _ in COMPARED):
        parser.error("no program consul: run tests/consul/prepare consul, and set --consul")
    load_before = os.getloadavg()
    if not options.json:
        print(f"{os.cpu_count()} cores, load {load_before[0]:.1f}; {options.rounds} rounds of {options.duration}")
    results = [compare(name, load, options) for name, load in COMPARED if name in wanted]
    results += [alone(name, load, figures, options) for name, load, figures in ALONE if name in wanted]
    if options.json:
        print(json.dumps({"cores": os.cpu_count(), "load_before": load_before, "load_after": os.getloadavg(),
                          "servers": options.servers, "results": results}, indent=1))


if __name__ == "__main__":
    main()
