"""Convoke over HTTP with the standard library: a session that moves, and server-sent events that resume. Follows docs/http.md."""

import http.client
import itertools
import json
import threading
import time
import urllib.parse

RETRY_SECONDS = 0.2
TIMEOUT_SECONDS = 5


class Rejected(Exception):
    """The node has rejected the request."""


class Session:
    """Keeps members registered, at any node that responds."""

    def __init__(self, addresses, on_attach):
        self._addresses = itertools.cycle(addresses)
        self._address = next(self._addresses)
        self._on_attach = on_attach
        self._lock = threading.Lock()
        answer = self._request("POST", "/api/v1/sessions", {})
        self._path = "/api/v1/sessions/" + answer["session"]
        self._closed = threading.Event()
        self._interval = answer["heartbeat_interval_ms"] / 1000
        threading.Thread(target=self._heartbeat, daemon=True).start()
        self._on_attach(self._node())

    def register(self, member_id, service, metadata=None):
        self._request("PUT", self._member(member_id), {"service": service, "metadata": metadata or {}})

    def update(self, member_id, **metadata):
        self._request("PATCH", self._member(member_id), metadata)

    def unregister(self, member_id):
        self._request("DELETE", self._member(member_id))

    def close(self):
        self._closed.set()
        self._request("DELETE", self._path)

    def _heartbeat(self):
        while not self._closed.wait(self._interval):
            try:
                self._request("PUT", self._path + "/heartbeat")
            except Rejected:
                return

    def _member(self, member_id):
        return f"{self._path}/members/{urllib.parse.quote(member_id, safe='')}"

    def _node(self):
        return self._send("GET", "/api/v1/status", None)["id"]

    def _request(self, method, path, body=None):
        """Sends a request to the current node, and to the next one if it does not respond. Every node serves the session."""
        with self._lock:
            moving = False
            while True:
                try:
                    answer = self._send(method, path, body)
                    if moving:
                        self._on_attach(self._node())
                    return answer
                except (OSError, http.client.HTTPException):
                    self._address, moving = next(self._addresses), True
                    time.sleep(RETRY_SECONDS)

    def _send(self, method, path, body):
        connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body))
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status == 503:
            raise OSError("node is not ready")
        if response.status >= 400:
            raise Rejected(text.decode())
        return json.loads(text) if text else None


def watch(addresses, filter_text, on_event):
    """Calls `on_event(kind, id, member)` for every event, in a separate thread, until the process ends."""
    threading.Thread(target=_watch, args=(addresses, filter_text, on_event), daemon=True).start()


def _watch(addresses, filter_text, on_event):
    last_event_id, known, caught_up = None, {}, False
    path = "/api/v1/watch?" + urllib.parse.urlencode({"filter": filter_text})
    for address in itertools.cycle(addresses):
        try:
            for kind, event_id, data in _events(address, path, last_event_id):
                last_event_id = event_id or last_event_id
                if kind == "caught-up":
                    if not caught_up:
                        on_event("caught_up", None, None)
                    caught_up = True
                elif kind == "reset":
                    known, caught_up = {}, False
                    on_event("reset", None, None)
                elif kind == "unregister":
                    if known.pop(data["id"], None) is not None:
                        on_event("unregistered", data["id"], None)
                elif kind is not None:
                    member = data["member"]
                    if known.get(member["id"]) != member["version"]:
                        known[member["id"]] = member["version"]
                        shown = {"status": "STATUS_" + member["status"].upper(), "node": member["owner"]["node"]}
                        on_event(kind, member["id"], shown)
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(RETRY_SECONDS)


def _events(address, path, last_event_id):
    """Yields (event, id, data) of a stream until it breaks. Each of them may be None."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            raise OSError(f"status {response.status}")
        fields = {}
        for line in response:
            line = line.decode().rstrip("\n")
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
                continue
            data = json.loads(fields["data"]) if "data" in fields else None
            yield fields.get("event") if data is not None else None, fields.get("id"), data
            fields = {}
    finally:
        connection.close()
