"""Free TCP ports of the loopback address.

Ports are chosen below the range for outgoing connections (32768 and up on Linux), so that no client
of ours takes one between the check and its server's start. Another program still can: `cluster`
restarts servers whose port is taken with new ports. It prefers the ports of last time, so that
exported settings stay valid after a restart.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable, Mapping

LOWEST, HIGHEST = 20_000, 29_999
ATTEMPTS = 200


def choose(names: Iterable[str], preferred: Mapping[str, int]) -> dict[str, int]:
    """Return a free port for each name, all different."""
    chosen: dict[str, int] = {}
    for name in names:
        wish = preferred.get(name)
        taken = set(chosen.values())
        if wish is not None and wish not in taken and is_free(wish):
            chosen[name] = wish
        else:
            chosen[name] = any_free(taken)
    return chosen


def any_free(excluded: Iterable[int] = ()) -> int:
    """Return a free port that is not in `excluded`."""
    refused = set(excluded)
    for _ in range(ATTEMPTS):
        port = LOWEST + secrets.randbelow(HIGHEST - LOWEST + 1)  # no seed that others share
        if port not in refused and is_free(port):
            return port
    raise OSError(f"no free port found between {LOWEST} and {HIGHEST}")


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of a former server in TIME_WAIT do not count as occupied.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
