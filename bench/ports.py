"""Ports for the processes that a benchmark starts."""

import socket


def free_ports(count):
    """Returns ports that no process uses now. Another process may take one before it is used."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
