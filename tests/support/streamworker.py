"""A worker that only appends to streams, as a process that a test may kill.

``python -m tests.support.streamworker URL PREFIX NAME LEASE_SECONDS``: claims, delivers and settles
until it is ended (SIGTERM: when it has drained); no API server, no other targets.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from duepoint import clock as clocks
from duepoint import services
from duepoint.targets import target
from duepoint.targets.stream import target as streamtarget
from duepoint.worker import claimer, firing
from tests.support import queueing


async def main(url: str, prefix: str, name: str, lease_seconds: float) -> None:
    clock = clocks.SystemClock()
    queue = queueing.a_queue(url, prefix)
    streams = streamtarget.StreamTarget(clock)
    targets = target.Targets(job=streams, webhook=streams, stream=streams)
    bounds = firing.Bounds(concurrency=64, lease_seconds=lease_seconds)
    work = firing.Firer(queue=queue, target=targets, clock=clock, bounds=bounds)
    limits = claimer.Limits(
        batch=500, under_way=1000, lease_seconds=lease_seconds, grace_seconds=5.0
    )
    claims = claimer.Claimer(queue, work, clock, services.Health(), worker=name, limits=limits)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, claims.drain)
    await claims.run()


if __name__ == "__main__":
    _, url, prefix, name, lease = sys.argv
    asyncio.run(main(url, prefix, name, float(lease)))
