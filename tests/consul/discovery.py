#!/usr/bin/env python3
"""Discovers targets with `consul_sd_configs` of Prometheus or vmagent at a node.

usage: discovery.py HOST:PORT prometheus|vmagent PROGRAM

Registers an instance with a TTL check whose address serves metrics. The program must scrape it while it passes, drop it
while it is critical, and drop it after its end.
"""

import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import urllib.request

from support import answers, check, eventually, free_port

CONFIGURATION = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: discovered
    consul_sd_configs:
      - server: {address}
        services: [sd-web]
        tags: [scraped]
        {refresh}
    relabel_configs:
      - source_labels: [__meta_consul_health]
        regex: passing
        action: keep
      - source_labels: [__meta_consul_service]
        target_label: service
      - source_labels: [__meta_consul_service_id]
        target_label: instance_id
      - source_labels: [__meta_consul_tags]
        target_label: tags
      - source_labels: [__meta_consul_service_metadata_version]
        target_label: version
"""


class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"scraped 1\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


# Prometheus asks again after this time, vmagent in an interval of all configurations.
REFRESH = {"prometheus": "refresh_interval: 1s", "vmagent": ""}


def command(kind, program, directory, port):
    configuration = str(directory / "scrape.yml")
    if kind == "prometheus":
        return [program, f"--config.file={configuration}", f"--web.listen-address=127.0.0.1:{port}",
                f"--storage.tsdb.path={directory}/data"]
    # What vmagent scrapes goes nowhere.
    return [program, f"-promscrape.config={configuration}", f"-httpListenAddr=127.0.0.1:{port}",
            "-promscrape.consulSDCheckInterval=1s", "-remoteWrite.url=http://127.0.0.1:9/", f"-remoteWrite.tmpDataPath={directory}/data"]


class Agent:
    """The agent of a node, without a client library."""

    def __init__(self, address):
        self.base = f"http://{address}/v1/agent"

    def put(self, path, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.base}/{path}", data, method="PUT"), timeout=30).close()


def discover(kind, agent, targets, metrics):
    def target():
        found = targets()
        check(len(found) <= 1, True, f"{kind}: at most one target, of {found}")
        return found[0] if found else None

    agent.put("service/register", {
        "Name": "sd-web", "ID": "sd-1", "Address": "127.0.0.1", "Port": metrics, "Tags": ["scraped", "v2"],
        "Meta": {"version": "2"}, "Check": {"TTL": "10m", "Status": "passing"},
    })
    # Another one without the tag, which the program must not scrape.
    agent.put("service/register", {"Name": "sd-web", "ID": "sd-2", "Address": "127.0.0.1", "Port": 9})
    eventually("the target is scraped", lambda: (target() or {}).get("health") == "up")
    labels = target()["labels"]
    wanted = {"service": "sd-web", "instance_id": "sd-1", "version": "2", "instance": f"127.0.0.1:{metrics}"}
    check({name: labels.get(name) for name in wanted}, wanted, "labels")
    check(sorted(labels["tags"].strip(",").split(",")), ["scraped", "v2"], "tags")
    agent.put("check/fail/service:sd-1?note=broken")
    eventually("the critical target is dropped", lambda: target() is None)
    agent.put("check/pass/service:sd-1")
    eventually("the target is scraped again", lambda: (target() or {}).get("health") == "up")
    agent.put("service/deregister/sd-1")
    eventually("the deregistered target is dropped", lambda: target() is None)
    agent.put("service/deregister/sd-2")


def main():
    address, kind, program = sys.argv[1:]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as directory:
        directory, port = pathlib.Path(directory), free_port()
        (directory / "scrape.yml").write_text(CONFIGURATION.format(address=address, refresh=REFRESH[kind]))
        log = directory / "log"
        with open(log, "wb") as out:
            process = subprocess.Popen(command(kind, program, directory, port), stdout=out, stderr=out)

        def targets():
            check(process.poll(), None, f"the status of {kind}")
            found = answers(f"http://127.0.0.1:{port}/api/v1/targets")
            return json.loads(found)["data"]["activeTargets"] if found else []

        try:
            discover(kind, Agent(address), targets, server.server_port)
        except BaseException:
            print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(timeout=30)
    print("complete")


if __name__ == "__main__":
    main()
