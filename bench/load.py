"""Runs the load generator."""

import json
import subprocess
import sys


def bench(convoke, arguments, environment=None):
    """Runs `convoke bench` and returns its report."""
    done = subprocess.run([convoke, "bench", *arguments, "--json"], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"convoke bench {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout)
