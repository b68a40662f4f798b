"""Test program: registers, watches, moves to another node, updates and unregisters. Prints its progress as JSON lines.

    exercise.py grpc|http ADDRESS,ADDRESS,…

The caller kills the first node when it reads {"state": "registered"}.
"""

import importlib
import json
import sys
import threading

TIMEOUT_SECONDS = 60
MEMBER = "python-1"


def report(**fields):
    print(json.dumps(fields), flush=True)


def main():
    convoke = importlib.import_module("convoke_" + sys.argv[1])
    addresses = sys.argv[2].split(",")
    changed = threading.Condition()
    seen, nodes = [], []

    def on_event(kind, member_id, member):
        with changed:
            seen.append((kind, member_id, member))
            report(watch=kind, id=member_id, member=member)
            changed.notify_all()

    def on_attach(node):
        with changed:
            nodes.append(node)
            report(attached=node)
            changed.notify_all()

    def wait(what, condition):
        with changed:
            if not changed.wait_for(condition, TIMEOUT_SECONDS):
                sys.exit(f"timed out after {TIMEOUT_SECONDS} s: {what}")

    def seen_of_member(test):
        return lambda: any(member_id == MEMBER and test(kind, member or {}) for kind, member_id, member in seen)

    convoke.watch(addresses, 'service == "python"', on_event)
    wait("caught up", lambda: any(kind == "caught_up" for kind, _, _ in seen))
    session = convoke.Session(addresses, on_attach)
    session.register(MEMBER, "python", {"language": "Python"})
    wait("the registration is seen", seen_of_member(lambda kind, _: kind in ("registered", "register")))
    report(state="registered")
    wait("attached to another node", lambda: len(set(nodes)) > 1)
    wait("the move is seen", seen_of_member(lambda _, member: member.get("node") == nodes[-1]))
    before = len(seen)
    session.update(MEMBER, after="the move")
    wait("the update is seen", lambda: len(seen) > before)
    session.unregister(MEMBER)
    wait("the unregistration is seen", seen_of_member(lambda kind, _: kind == "unregistered"))
    session.close()
    report(state="done")


main()
