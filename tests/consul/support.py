"""What the scripts that run Consul's clients share."""

import socket
import sys
import time
import urllib.request

SKIPPED = 77


def check(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, wanted {wanted!r}")


def eventually(what, condition, seconds=60):
    """Waits until the condition returns something true, and returns it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def answers(url):
    """The body of an answer with status 200; None if there is none yet."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read() if answer.status == 200 else None
    except OSError:
        return None


def skip(missing):
    """Ends the script: the tool is not installed."""
    print(f"SKIPPED, not found: {missing}")
    sys.exit(SKIPPED)
