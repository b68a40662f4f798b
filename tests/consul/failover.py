#!/usr/bin/env python3
"""Fails a Patroni cluster over whose configuration store is Convoke.

usage: failover.py CONVOKE [--keep]

Starts a Convoke node and two PostgreSQL servers under Patroni (PyPI: patroni[consul], psycopg2-binary; Debian: postgresql).
Kills the primary and its Patroni with SIGKILL, waits until the other one is the primary, checks that no committed row is lost,
starts the old primary again and waits until it follows. Exits with 77 if a tool is missing.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from support import answers, eventually, free_port, skip

# The session of the killed primary ends 20 s after its last renewal.
WAIT = 120


def missing():
    try:
        import patroni  # noqa: F401
        import psycopg2  # noqa: F401
        from patroni.dcs import consul  # noqa: F401
    except ImportError as error:
        return f"Python module {error.name} (pip install 'patroni[consul]' psycopg2-binary)"
    if not binaries():
        return "PostgreSQL (package postgresql)"
    return None


def unprivileged():
    """PostgreSQL does not run as root: a user namespace shows it another user, to whom the files of root belong."""
    return [] if os.getuid() != 0 else ["unshare", "--user", "--map-user=65534", "--map-group=65534"]


def binaries():
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    own = shutil.which("postgres")
    return found[-1].parent if found else pathlib.Path(own).parent if own else None


CONFIGURATION = """
scope: convoke
name: {name}
restapi: {{listen: "127.0.0.1:{rest}", connect_address: "127.0.0.1:{rest}"}}
consul: {{host: "{consul}", scheme: http}}
bootstrap:
  dcs: {{ttl: 20, loop_wait: 2, retry_timeout: 3, maximum_lag_on_failover: 1048576, synchronous_mode: true,
    postgresql: {{use_pg_rewind: true, parameters: {{wal_log_hints: "on"}}}}}}
  initdb: [{{encoding: UTF8}}, data-checksums]
postgresql:
  listen: "127.0.0.1:{port}"
  connect_address: "127.0.0.1:{port}"
  data_dir: {directory}/data
  bin_dir: {binaries}
  pgpass: {directory}/pgpass
  pg_hba: ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
  authentication:
    superuser: {{username: postgres, password: "-"}}
    replication: {{username: replicator, password: "-"}}
    rewind: {{username: rewinder, password: "-"}}
  parameters: {{unix_socket_directories: "{directory}", fsync: "off"}}
"""


class Server:
    def __init__(self, name, directory, consul):
        self.name, self.rest, self.port = name, free_port(), free_port()
        self.directory = directory / name
        self.directory.mkdir()
        self.configuration = self.directory / "patroni.yml"
        self.configuration.write_text(
            CONFIGURATION.format(
                name=name, rest=self.rest, port=self.port, consul=consul, directory=self.directory, binaries=binaries()
            )
        )
        self.log = self.directory / "log"
        self.process = None

    def start(self):
        environment = {**os.environ, "HOME": str(self.directory), "PATH": f"{binaries()}:{os.environ['PATH']}"}
        with open(self.log, "ab") as log:
            command = [*unprivileged(), sys.executable, "-m", "patroni", str(self.configuration)]
            self.process = subprocess.Popen(
                command, start_new_session=True, env=environment, cwd=self.directory, stdout=log, stderr=log
            )

    def postmaster(self):
        return int((self.directory / "data" / "postmaster.pid").read_text().split()[0])

    def kill(self):
        postmaster = self.postmaster()
        self.process.kill()
        self.process.wait()
        os.kill(postmaster, signal.SIGKILL)

    def stop(self):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def answers(self, path):
        if self.process.poll() is not None:
            raise AssertionError(f"Patroni of server {self.name} ended with status {self.process.returncode}")
        return answers(f"http://127.0.0.1:{self.rest}/{path}") is not None

    def execute(self, *statements):
        import psycopg2

        connection = psycopg2.connect(host="127.0.0.1", port=self.port, user="postgres", dbname="postgres", connect_timeout=5)
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else None

    def reads(self, statement):
        """The rows, or None while the server does not accept connections: it restarts when it is rewound."""
        import psycopg2

        try:
            return self.execute(statement)
        except psycopg2.OperationalError:
            return None


def run(convoke, directory):
    port, peer = free_port(), free_port()
    # The logs of all processes are shown if the test fails.
    with open(directory / "convoke.log", "wb") as log:
        command = [convoke, "dev", "--client-port", str(port), "--peer-port", str(peer), "--dns-port", "0"]
        node = subprocess.Popen(command, stdout=log, stderr=log)
    servers = []
    try:
        base = f"http://127.0.0.1:{port}"
        eventually("Convoke has a leader", lambda: leader(base), WAIT)
        servers = [Server(name, directory, f"127.0.0.1:{port}") for name in ("a", "b")]
        primary, standby = servers
        primary.start()
        eventually("the first server is the primary", lambda: primary.answers("primary"), WAIT)
        standby.start()
        eventually("the second server follows synchronously", lambda: standby.answers("sync"), WAIT)
        primary.execute("create table rows (n int primary key)", *(f"insert into rows values ({n})" for n in range(100)))
        key = json.load(urllib.request.urlopen(f"{base}/v1/kv/service/convoke/leader"))[0]
        assert key["Session"], key
        begun = time.monotonic()
        primary.kill()
        eventually("the second server is the primary", lambda: standby.answers("primary"), WAIT)
        # Patroni promotes the server after it has become the leader.
        eventually("it accepts writes", lambda: standby.reads("select pg_is_in_recovery()") == [(False,)], WAIT)
        print(f"failed over {time.monotonic() - begun:.1f} s after the kill")
        assert standby.execute("select count(*) from rows") == [(100,)], "a committed row is lost"
        standby.execute("insert into rows values (100)")
        primary.start()
        eventually("the old primary follows", lambda: primary.answers("replica"), WAIT)
        eventually("the old primary has the new row", lambda: primary.reads("select count(*) from rows") == [(101,)], WAIT)
    except BaseException:
        for log in sorted(directory.glob("**/log")) + [directory / "convoke.log"]:
            print(f"--- {log.relative_to(directory)}", *log.read_text(errors="replace").splitlines()[-40:], sep="\n")
        raise
    finally:
        for server in servers:
            server.stop()
        node.terminate()
        node.wait(timeout=30)


def leader(base):
    found = answers(f"{base}/api/v1/log/status")
    return json.loads(found).get("leader") if found else None


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("convoke")
    arguments.add_argument("--keep", action="store_true", help="keep the files of all processes")
    given = arguments.parse_args()
    why = missing()
    if why:
        skip(why)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="patroni-"))
    directory.chmod(0o755)
    try:
        run(given.convoke, directory)
    finally:
        if given.keep:
            print(f"files: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    print("complete")
    return 0


if __name__ == "__main__":
    sys.exit(main())
