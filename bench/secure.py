#!/usr/bin/env python3
"""The cost of security: the same loads at a plain cluster and at one with TLS, tokens and the audit log, alternating.

`convoke init` writes the secure cluster, so it has what users get: TLS 1.3 on both ports, access control, and an audit
log, which records every write. Three nodes of each cluster run on this machine, one cluster at a time, with their data in
the same directory. A round measures the plain cluster and then the secure one; the ratio of a load is the median of the
secure cluster divided by the median of the plain one. With --no-audit, the secure cluster has no audit log.

    cargo build --release -p convoke
    bench/secure.py target/release/convoke [--dir DIR] [--duration 10s] [--rounds 3] [--no-audit] [--json]

The time to authorise one request is a benchmark of its own:

    cargo bench -p convoke-server --bench authorise
"""

import argparse
import json
import os
import shutil
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from ports import free_ports

IDS = ["n1", "n2", "n3"]
# Name, load, JSON path, unit, wanted ratio.
LOADS = [
    ("SDK registrations", ["register", "--clients", "8", "--members", "200000"], "per_second", "/s", 0.8),
    ("durable writes", ["log", "--clients", "64"], "per_second", "/s", 0.8),
    ("durable writes, one client", ["log", "--clients", "1"], "per_second", "/s", None),
]


class Cluster:
    """Three nodes; ended with the block."""

    def __init__(self, convoke, directory, secure, audit):
        self.convoke, self.directory, self.secure, self.audit = convoke, directory, secure, audit
        self.processes = []

    def __enter__(self):
        ports = free_ports(6)
        self.clients, peers = ports[:3], ports[3:]
        security = os.path.join(self.directory, "security")
        if self.secure:
            subprocess.run([self.convoke, "init", security, "--nodes", ",".join(IDS)], check=True, stdout=subprocess.DEVNULL)
            self.options = ["--ca", os.path.join(security, "ca.pem"), "--token-file", os.path.join(security, "operator.token")]
        else:
            self.options = []
        for index, node in enumerate(IDS):
            command = [self.convoke, "start", "--client-port", str(self.clients[index]), "--peer-port", str(peers[index]),
                       "--dns-port", "0", "--join", ",".join(f"127.0.0.1:{port}" for port in peers),
                       "--data-dir", os.path.join(self.directory, node)]
            if self.secure:
                config = os.path.join(security, "nodes", node, "convoke.toml")
                if not self.audit:
                    text = open(config).read()
                    open(config, "w").write(text.replace('[audit]\nfile = "audit.log"\n', ""))
                command += ["--config", config]
            else:
                command += ["--id", node]
            log = open(os.path.join(self.directory, f"{node}.log"), "w")
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        self.wait()
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def addresses(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.clients)

    def wait(self):
        """Until every node reports a log that is available, and three nodes."""
        deadline = time.time() + 60
        while time.time() < deadline:
            if all(self.is_ready(port) for port in self.clients):
                return
            time.sleep(0.2)
        sys.exit(f"the cluster did not start: see {self.directory}")

    def is_ready(self, port):
        scheme = "https" if self.secure else "http"
        def ask(*arguments):
            asked = subprocess.run([self.convoke, *arguments, "--json", "--addr", f"{scheme}://127.0.0.1:{port}", *self.options],
                                   capture_output=True, text=True)
            return json.loads(asked.stdout) if asked.returncode == 0 else {}
        context = ssl.create_default_context(cafile=self.options[1]) if self.secure else None
        try:
            urllib.request.urlopen(f"{scheme}://127.0.0.1:{port}/readyz", timeout=5, context=context).close()
        except OSError:
            return False
        up = [node for node in ask("nodes").get("nodes", []) if node["state"] == "up"]
        return len(up) == len(IDS) and ask("log", "status").get("available", False)


def measure(convoke, load, secure, options):
    directory = tempfile.mkdtemp(prefix="secure-" if secure else "plain-", dir=options.dir)
    try:
        with Cluster(convoke, directory, secure, not options.no_audit) as cluster:
            command = [convoke, "bench", *load, "--addr", cluster.addresses(), *cluster.options,
                       "--duration", options.duration, "--json"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)}: {done.stderr}")
            return json.loads(done.stdout)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("convoke")
    parser.add_argument("--dir", default=None)
    parser.add_argument("--duration", default="10s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-audit", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    convoke = os.path.abspath(options.convoke)
    results = []
    for name, load, path, unit, wanted in LOADS:
        plain, secure = [], []
        for _ in range(options.rounds):
            plain.append(measure(convoke, load, False, options)[path])
            secure.append(measure(convoke, load, True, options)[path])
        middle = (statistics.median(plain), statistics.median(secure))
        results.append({"load": name, "plain": plain, "secure": secure, "ratio": middle[1] / middle[0], "wanted": wanted})
        if not options.json:
            goal = "" if wanted is None else f" (goal {wanted:.2f}: {'met' if middle[1] / middle[0] >= wanted else 'missed'})"
            print(f"{name:28} plain {middle[0]:>10.0f}{unit}  secure {middle[1]:>10.0f}{unit}  ratio {middle[1] / middle[0]:.2f}{goal}",
                  flush=True)
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
