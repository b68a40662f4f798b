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

    def __init__(self, answer):
        super().__init__(answer["error"]["message"])
        self.code = answer["error"]["code"]
        self.answer = answer


class Session:
    """Keeps members registered, at any node that responds."""

    def __init__(self, addresses, on_attach):
        self._addresses = itertools.cycle(addresses)
        self._address = next(self._addresses)
        self._on_attach = on_attach
        self._lock = threading.Lock()
        self._number, self._token, self._members = 0, None, {}
        answer = self._request("POST", "/api/v1/sessions", {})
        self._path = "/api/v1/sessions/" + answer["session"]
        self._closed = threading.Event()
        self._interval = answer["heartbeat_interval_ms"] / 1000
        threading.Thread(target=self._heartbeat, daemon=True).start()
        self._on_attach(self._node())

    def register(self, member_id, service, metadata=None):
        self._members[member_id] = {"service": service, "metadata": dict(metadata or {})}
        self._write("PUT", self._member(member_id), self._members[member_id])

    def update(self, member_id, **metadata):
        self._members[member_id]["metadata"].update(metadata)
        self._write("PATCH", self._member(member_id), metadata)

    def unregister(self, member_id):
        del self._members[member_id]
        self._write("DELETE", self._member(member_id))

    def _write(self, method, path, body=None):
        """Sends a numbered request. If writes were lost with a node, writes everything again."""
        try:
            self._request(method, path, body, numbered=True)
        except Rejected as rejected:
            if rejected.code != "WRITES_LOST":
                raise
            self._repair(rejected.answer["members"])

    def _repair(self, known):
        for member_id, member in self._members.items():
            self._write("PUT", self._member(member_id), member)
        for member_id in known.keys() - self._members.keys():
            self._write("DELETE", self._member(member_id))

    def close(self):
        self._closed.set()
        self._request("DELETE", self._path)

    def _heartbeat(self):
        while not self._closed.wait(self._interval):
            try:
                self._request("PUT", self._path + "/heartbeat")
            except Rejected as rejected:
                if rejected.code != "WRITES_LOST":
                    return
                self._repair(rejected.answer["members"])

    def _member(self, member_id):
        return f"{self._path}/members/{urllib.parse.quote(member_id, safe='')}"

    def _node(self):
        return self._send("GET", "/api/v1/status", None)["id"]

    def _request(self, method, path, body=None, numbered=False):
        """Sends a request to the current node, and to the next one if it does not respond. Every node serves the session.
        A repeated request keeps its number, so that it takes effect once and in its order."""
        with self._lock:
            self._number += numbered
            number = self._number if numbered else None
            moving = False
            while True:
                try:
                    answer = self._send(method, path, body, number)
                    if moving:
                        self._on_attach(self._node())
                    return answer
                except (OSError, http.client.HTTPException):
                    self._address, moving = next(self._addresses), True
                    time.sleep(RETRY_SECONDS)

    def _send(self, method, path, body, number=None):
        headers = {"Convoke-Session-Request": number, "Convoke-Session-Token": self._token}
        headers = {name: str(value) for name, value in headers.items() if value is not None}
        connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        token = response.getheader("Convoke-Session-Token")
        if token is not None:
            self._token = max(token, self._token or "")
        if response.status == 503:
            raise OSError("node is not ready")
        if response.status >= 400:
            raise Rejected(json.loads(text))
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
