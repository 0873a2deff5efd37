"""A server and an index of the size that is to be filled.

Shards and buckets are those of an operator for such a size: 256 shards from ten million schedules
on, and buckets for the schedules that a namespace is declared to come to.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from benchmarks.queuespeed import place
from benchmarks.scale import source
from duepoint.delayqueue import delayqueue, keys

_MANY = 10_000_000


def shards(count: int) -> int:
    return 256 if count >= _MANY else 64


@contextlib.asynccontextmanager
async def queue(url: str, count: int) -> AsyncIterator[delayqueue.DelayQueue]:
    """The real queue on an index for so many schedules, made where there is none."""
    buckets = keys.buckets_for(source.PER_NAMESPACE, shards(count))
    opened = delayqueue.connect(url, blob_key=place.KEY, buckets=buckets)
    await opened.start()
    await opened.membership.open(shards(count), place.EPOCH)
    try:
        yield opened
    finally:
        await opened.close()
