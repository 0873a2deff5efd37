"""Runs ``kubeload``: several processes that ask one API server at the same time."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.controlplane import ControlPlane

#: As many as workers run beside each other here, each with as many connections as a worker has.
PROCESSES = 2
CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class Sent:
    """From the first request to the last answer; the CPU time is the loops' own."""

    seconds: float
    cpu_seconds: float


async def send(
    plane: ControlPlane,
    path: str,
    thing: dict[str, Any],
    *,
    count: int = 0,
    prefix: str = "",
    owners: Sequence[tuple[str, str]] = (),
    verb: str = "POST",
    content_type: str = "application/json",
) -> Sent:
    """Send a request for each object.

    ``@NAME@`` in the path and in ``thing`` becomes the prefix and a number, or the name of the
    owner whose uid is written for ``@UID@``. Fails where one was refused.
    """
    count = count or len(owners)
    share = -(-count // PROCESSES)
    common = {
        "server": plane.server, "ca_file": str(plane.ca_file), "token": plane.admin_token,
        "path": path, "text": json.dumps(thing), "prefix": prefix, "verb": verb,
        "content_type": content_type, "connections": CONNECTIONS,
    }  # fmt: skip
    orders = [
        {
            **common,
            "owners": list(owners[first : first + share]),
            "first": 0 if owners else first,
            "count": min(share, count - first),
        }
        for first in range(0, count, share)
    ]
    loops = [await _start(order) for order in orders]
    started = time.monotonic()
    said = await asyncio.gather(*(_run(loop) for loop in loops))
    seconds = time.monotonic() - started
    accepted = sum(one for one, _ in said)
    if accepted != count:
        raise RuntimeError(f"{path}: {accepted} of {count} were accepted")
    return Sent(seconds, sum(used for _, used in said))


async def _start(order: dict[str, Any]) -> asyncio.subprocess.Process:
    loop = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.kubeload",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20,
    )  # fmt: skip
    assert loop.stdin is not None
    assert loop.stdout is not None
    loop.stdin.write(json.dumps(order).encode() + b"\n")
    await loop.stdin.drain()
    await loop.stdout.readline()
    return loop


async def _run(loop: asyncio.subprocess.Process) -> tuple[int, float]:
    assert loop.stdin is not None
    assert loop.stdout is not None
    loop.stdin.write(b"go\n")
    await loop.stdin.drain()
    accepted, cpu_seconds = (await loop.stdout.readline()).split()
    await loop.wait()
    return int(accepted), float(cpu_seconds)
