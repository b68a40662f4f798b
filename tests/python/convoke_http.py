"""Convoke over HTTP, with the standard library: a session that moves, and server-sent events that resume. Follows docs/http.md."""

import http.client
import itertools
import json
import threading
import time
import urllib.parse

RETRY_SECONDS = 0.2
TIMEOUT_SECONDS = 5


class Refused(Exception):
    """The node has answered, and the answer is no."""


class Session:
    """Keeps members registered, at whatever node answers."""

    def __init__(self, addresses, moved):
        self._addresses = itertools.cycle(addresses)
        self._address = next(self._addresses)
        self._moved = moved
        self._lock = threading.Lock()
        answer = self._ask("POST", "/api/v1/sessions", {})
        self._path = "/api/v1/sessions/" + answer["session"]
        self._closed = threading.Event()
        self._interval = answer["heartbeat_interval_ms"] / 1000
        threading.Thread(target=self._beat, daemon=True).start()
        self._moved(self._node())

    def register(self, member_id, service, metadata=None):
        self._ask("PUT", self._member(member_id), {"service": service, "metadata": metadata or {}})

    def update(self, member_id, **metadata):
        self._ask("PATCH", self._member(member_id), metadata)

    def unregister(self, member_id):
        self._ask("DELETE", self._member(member_id))

    def close(self):
        self._closed.set()
        self._ask("DELETE", self._path)

    def _beat(self):
        while not self._closed.wait(self._interval):
            try:
                self._ask("PUT", self._path + "/heartbeat")
            except Refused:
                return

    def _member(self, member_id):
        return f"{self._path}/members/{urllib.parse.quote(member_id, safe='')}"

    def _node(self):
        return self._once("GET", "/api/v1/status", None)["id"]

    def _ask(self, method, path, body=None):
        """Any node will do: asks the next one if this one does not answer."""
        with self._lock:
            moving = False
            while True:
                try:
                    answer = self._once(method, path, body)
                    if moving:
                        self._moved(self._node())
                    return answer
                except (OSError, http.client.HTTPException):
                    self._address, moving = next(self._addresses), True
                    time.sleep(RETRY_SECONDS)

    def _once(self, method, path, body):
        connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body))
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status == 503:
            raise OSError("not ready: try another")
        if response.status >= 400:
            raise Refused(text.decode())
        return json.loads(text) if text else None


def watch(addresses, filter_text, told):
    """Calls `told(kind, id, member)` for everything that happens, for ever, in a thread of its own."""
    threading.Thread(target=_watch, args=(addresses, filter_text, told), daemon=True).start()


def _watch(addresses, filter_text, told):
    last_event_id, known, caught_up = None, {}, False
    path = "/api/v1/watch?" + urllib.parse.urlencode({"filter": filter_text})
    for address in itertools.cycle(addresses):
        try:
            for kind, event_id, data in _events(address, path, last_event_id):
                last_event_id = event_id or last_event_id
                if kind == "caught-up":
                    if not caught_up:
                        told("caught_up", None, None)
                    caught_up = True
                elif kind == "reset":
                    known, caught_up = {}, False
                    told("reset", None, None)
                elif kind == "unregister":
                    if known.pop(data["id"], None) is not None:
                        told("unregistered", data["id"], None)
                elif kind is not None:
                    member = data["member"]
                    if known.get(member["id"]) != member["version"]:
                        known[member["id"]] = member["version"]
                        shown = {"status": "STATUS_" + member["status"].upper(), "node": member["owner"]["node"]}
                        told(kind, member["id"], shown)
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(RETRY_SECONDS)


def _events(address, path, last_event_id):
    """Yields (event, id, data) of a stream until it breaks; all but the id may be None."""
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
