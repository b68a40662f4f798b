"""Registers, watches, survives the death of its node, updates, unregisters; says what happens in JSON lines.

    exercise.py grpc|http ADDRESS,ADDRESS,…

Whoever runs it kills the first node when it reads {"state": "registered"}.
"""

import importlib
import json
import sys
import threading

PATIENCE_SECONDS = 60
MEMBER = "python-1"


def say(**what):
    print(json.dumps(what), flush=True)


def main():
    convoke = importlib.import_module("convoke_" + sys.argv[1])
    addresses = sys.argv[2].split(",")
    news = threading.Condition()
    seen, nodes = [], []

    def told(kind, member_id, member):
        with news:
            seen.append((kind, member_id, member))
            say(watch=kind, id=member_id, member=member)
            news.notify_all()

    def moved(node):
        with news:
            nodes.append(node)
            say(attached=node)
            news.notify_all()

    def wait(what, condition):
        with news:
            if not news.wait_for(condition, PATIENCE_SECONDS):
                sys.exit(f"did not happen: {what}")

    def about(test):
        return lambda: any(member_id == MEMBER and test(kind, member or {}) for kind, member_id, member in seen)

    convoke.watch(addresses, 'service == "python"', told)
    wait("caught up", lambda: any(kind == "caught_up" for kind, _, _ in seen))
    session = convoke.Session(addresses, moved)
    session.register(MEMBER, "python", {"language": "Python"})
    wait("the registration is seen", about(lambda kind, _: kind in ("registered", "register")))
    say(state="registered")
    wait("attached to another node", lambda: len(set(nodes)) > 1)
    wait("the move is seen", about(lambda _, member: member.get("node") == nodes[-1]))
    before = len(seen)
    session.update(MEMBER, after="the move")
    wait("the update is seen", lambda: len(seen) > before)
    session.unregister(MEMBER)
    wait("the unregistration is seen", about(lambda kind, _: kind == "unregistered"))
    session.close()
    say(state="done")


main()
