"""A bare load on one API server: how many requests it takes from processes that do nothing else.

``python -m benchmarks.kube.loads`` is such a process. It reads an order as a JSON line, prints
``ready``, waits for a second line, sends, and prints how many were accepted and the CPU time.
A refused request is not repeated, so the count shows it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import uvloop

from benchmarks.scene import Child
from tests.support.controlplane import ControlPlane

#: As many processes as the measured workers, each with as many connections as a worker.
PROCESSES = 2
CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class Sent:
    """The time from the first request to the last answer, and the CPU time of the senders."""

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
    """Send a request for each object; raise RuntimeError if one was refused.

    ``@NAME@`` in ``path`` and ``thing`` becomes the prefix and a number, or the name of an owner,
    whose uid replaces ``@UID@``.
    """
    count = count or len(owners)
    share = -(-count // PROCESSES)
    common = {
        "server": plane.server, "ca_file": str(plane.ca_file), "token": plane.admin_token,
        "path": path, "text": json.dumps(thing), "verb": verb, "content_type": content_type,
    }  # fmt: skip
    names = owners or [(f"{prefix}{number}", "") for number in range(count)]
    children = [
        await Child.start(
            "benchmarks.kube.loads",
            text=json.dumps({**common, "owners": names[first : first + share]}),
        )
        for first in range(0, count, share)
    ]
    started = time.monotonic()
    said = [json.loads(one) for one in await asyncio.gather(*(c.finish("go") for c in children))]
    seconds = time.monotonic() - started
    accepted = sum(one["accepted"] for one in said)
    if accepted != count:
        raise RuntimeError(f"{path}: {accepted} of {count} were accepted")
    return Sent(seconds, sum(one["cpu"] for one in said))


async def _main() -> None:
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    context = ssl.create_default_context(cafile=order["ca_file"])
    headers = {
        "Authorization": f"Bearer {order['token']}",
        "Content-Type": order["content_type"],
        "User-Agent": "bare/1",
    }
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=context)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        print("ready", flush=True)
        sys.stdin.readline()
        owners = iter(order["owners"])
        before = time.process_time()
        sending = [_send(session, order, owners) for _ in range(CONNECTIONS)]
        accepted = sum(await asyncio.gather(*sending))
        print(json.dumps({"accepted": accepted, "cpu": time.process_time() - before}), flush=True)


async def _send(
    session: aiohttp.ClientSession, order: dict[str, Any], owners: Iterator[list[str]]
) -> int:
    accepted = 0
    url, text = order["server"] + order["path"], order["text"]
    for name, uid in owners:
        body = text.replace("@NAME@", name).replace("@UID@", uid).encode()
        async with session.request(order["verb"], url.replace("@NAME@", name), data=body) as answer:
            await answer.read()
            accepted += answer.status < 300
    return accepted


if __name__ == "__main__":
    uvloop.run(_main())
