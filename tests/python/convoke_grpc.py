"""Convoke over gRPC: a session that moves, and a watch that resumes. Follows docs/guides/write-a-client.md."""

import itertools
import queue
import secrets
import threading
import time

import grpc
from convoke.v1 import registry_pb2 as pb
from convoke.v1 import registry_pb2_grpc
from convoke.v1 import types_pb2 as types

RETRY_SECONDS = 0.2
CONNECT_SECONDS = 3


class Rejected(Exception):
    """The node has rejected the request."""


class Session:
    """Keeps members registered, at any node that responds."""

    def __init__(self, addresses, on_attach):
        self._addresses = itertools.cycle(addresses)
        self._on_attach = on_attach
        self._client = "python-" + secrets.token_hex(8)
        self._nonce = secrets.randbits(64)
        self._claim = 0
        self._previous_claim = 0
        self._members = {}
        self._unregistered = set()
        self._seq = 0
        self._answers = {}
        self._changed = threading.Condition()
        self._outgoing = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def register(self, member_id, service, metadata=None):
        spec = types.MemberSpec(id=member_id, service=service, metadata=metadata or {})
        with self._changed:
            # Every later attach includes the member.
            self._members[member_id] = spec
        self._request(register=pb.Register(member=spec))

    def update(self, member_id, **metadata):
        with self._changed:
            self._members[member_id].metadata.update(metadata)
        self._request(update=pb.Update(id=member_id, set=metadata))

    def unregister(self, member_id):
        with self._changed:
            del self._members[member_id]
            self._unregistered.add(member_id)
        self._request(unregister=pb.Unregister(id=member_id))
        with self._changed:
            self._unregistered.discard(member_id)

    def close(self):
        with self._changed:
            self._changed.wait_for(lambda: self._outgoing is not None)
            self._closing = True
            self._outgoing.put(pb.ClientMessage(close=pb.Close()))
        self._thread.join()

    def _request(self, **operation):
        """Sends a request and waits for the answer.

        If the stream breaks first, the next attach repeats the effect of the request.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._outgoing is not None)
            self._seq += 1
            seq, stream = self._seq, self._outgoing
            request = pb.Request(seq=seq, **operation)
            stream.put(pb.ClientMessage(requests=pb.Requests(requests=[request])))
            self._changed.wait_for(lambda: seq in self._answers or self._outgoing not in (stream, None))
            answer = self._answers.pop(seq, None)
        if answer is not None and answer.HasField("error"):
            raise Rejected(answer.error)

    def _run(self):
        while not self._closing:
            try:
                with grpc.insecure_channel(next(self._addresses)) as channel:
                    self._attached(registry_pb2_grpc.RegistryStub(channel))
            except (grpc.RpcError, Rejected, queue.Empty):
                time.sleep(RETRY_SECONDS)
            with self._changed:
                self._outgoing = None

    def _attached(self, stub):
        outgoing = queue.Queue()
        outgoing.put(self._attach())
        # Heartbeats start when the node has sent their interval.
        interval = [CONNECT_SECONDS]
        attached = threading.Event()

        def messages():
            while True:
                try:
                    message = outgoing.get(timeout=interval[0])
                except queue.Empty:
                    if not attached.is_set():
                        return
                    message = pb.ClientMessage(heartbeat=pb.Heartbeat(sent=time.monotonic_ns()))
                if message is None:
                    return
                yield message

        try:
            for message in stub.Attach(messages()):
                kind = message.WhichOneof("message")
                if kind == "attached" and message.attached.claim == self._claim:
                    interval[0] = message.attached.heartbeat_interval_ms / 1000
                    attached.set()
                    with self._changed:
                        self._previous_claim = self._claim
                        self._outgoing = outgoing
                        self._changed.notify_all()
                    self._on_attach(message.attached.node)
                elif kind == "attach_rejected":
                    error = message.attach_rejected.error
                    if error.code != types.Error.STALE_CLAIM:
                        raise Rejected(error)
                    self._claim = error.known
                    outgoing.put(self._attach())
                elif kind == "answers":
                    with self._changed:
                        self._answers.update((answer.seq, answer) for answer in message.answers.answers)
                        self._changed.notify_all()
                elif kind == "heartbeat_ack" and message.heartbeat_ack.HasField("error"):
                    raise Rejected(message.heartbeat_ack.error)
                elif kind == "closed":
                    return
        finally:
            outgoing.put(None)

    def _attach(self):
        """Builds the next attach: with a higher claim than the last attempt, and with all members."""
        with self._changed:
            self._claim += 1
            self._seq = 0
            self._answers.clear()
            return pb.ClientMessage(
                attach=pb.Attach(
                    client=self._client,
                    nonce=self._nonce,
                    claim=self._claim,
                    previous_claim=self._previous_claim,
                    members=[pb.Register(member=spec) for spec in self._members.values()],
                    unregistered=sorted(self._unregistered),
                )
            )


def watch(addresses, filter_text, on_event):
    """Calls `on_event(kind, id, member)` for every event, in a separate thread, until the process ends."""
    threading.Thread(target=_watch, args=(addresses, filter_text, on_event), daemon=True).start()


def _watch(addresses, filter_text, on_event):
    known, recent, token, resume = {}, {}, b"", None
    caught_up = False
    for address in itertools.cycle(addresses):
        try:
            with grpc.insecure_channel(address) as channel:
                request = pb.WatchRequest(filter=filter_text, resume=resume)
                for event in registry_pb2_grpc.RegistryStub(channel).Watch(request):
                    kind = event.WhichOneof("event")
                    if kind == "mark":
                        token, recent = event.mark.token, {}
                    elif kind == "caught_up":
                        if not caught_up:
                            on_event(kind, None, None)
                        caught_up = True
                    elif kind == "reset":
                        known, recent, token, caught_up = {}, {}, b"", False
                        on_event(kind, None, None)
                    elif kind == "unregistered":
                        gone = event.unregistered
                        recent[gone.id] = gone.version
                        if known.pop(gone.id, None) is not None:
                            on_event(kind, gone.id, None)
                    else:
                        members = event.snapshot.members if kind == "snapshot" else [getattr(event, kind)]
                        for member in members:
                            if known.get(member.id) != member.version:
                                known[member.id] = recent[member.id] = member.version
                                on_event(kind, member.id, {"status": types.Status.Name(member.status), "node": member.owner.node})
        except grpc.RpcError:
            time.sleep(RETRY_SECONDS)
        resume = pb.Resume(token=token, recent=recent, known=pb.Resume.Known(versions=known)) if caught_up else None
