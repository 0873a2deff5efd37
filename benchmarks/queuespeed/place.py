"""A server, an index on it, and Schedules that are stored as the operator stores them."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

from duepoint import clock as clocks
from duepoint.delayqueue import delayqueue, messages
from duepoint.schedules import actions, definition
from duepoint.schedules import rule as rules
from tests.support.redisserver import RedisServer

KEY = b"thirty-two bytes for a benchmark"
EPOCH = messages.Epoch(1)
_AT_ONCE = 5_000
#: Ten everyday expressions; none has a slot within five seconds of a whole hour but that hour.
EXPRESSIONS = (
    *("0 * * * *", "*/5 * * * *", "0,30 * * * *", "*/10 * * * *", "0 * 1-31 * *"),
    *("*/15 * * * *", "0 * * * 1-7", "*/20 * * * *", "*/30 * * * *", "0 0-23 * * *"),
)
now_us = clocks.SystemClock().now_us
CREATED_US = 1_767_225_600_000_000
_RULES = [rules.Rule(timing=rules.Timing(schedules=(text,))) for text in EXPRESSIONS]
_STREAM = actions.encode(actions.Action(target=actions.StreamAction(name="bench", max_length=1000)))

Wanted = tuple[messages.Arming, bytes]


@contextlib.contextmanager
def server(kind: str = "valkey", *options: str) -> Iterator[RedisServer]:
    """Run a server without storage, otherwise with its defaults (``hz`` among them)."""
    with tempfile.TemporaryDirectory() as folder:
        running = RedisServer(kind, Path(folder), *options)
        running.start()
        try:
            yield running
        finally:
            running.stop()


@contextlib.asynccontextmanager
async def queue(url: str, shards: int) -> AsyncIterator[delayqueue.DelayQueue]:
    """Yield the product's queue on an index with so many shards."""
    opened = delayqueue.connect(url, blob_key=KEY)
    await opened.start()
    await opened.membership.open(shards, EPOCH)
    try:
        yield opened
    finally:
        await opened.close()


async def store_due(
    queue: delayqueue.DelayQueue, *, count: int, namespaces: int, due_us: int
) -> None:
    """Store ``count`` Schedules with a stream target, all due at ``due_us``."""
    await store(
        queue,
        (
            arming(queue, f"team-{n % namespaces}", f"schedule-{n}", due_us,
                   rule=_RULES[n % len(_RULES)], created_us=CREATED_US + n % 3600 * 1_000_000)
            for n in range(count)
        ),
    )  # fmt: skip


async def store(queue: delayqueue.DelayQueue, wanted: Iterable[Wanted]) -> None:
    """Store Schedules in batches, as the leader does after its list."""
    left = iter(wanted)
    while part := list(itertools.islice(left, _AT_ONCE)):
        await queue.writer.upsert(part, EPOCH)


def arming(
    queue: delayqueue.DelayQueue,
    namespace: str,
    name: str,
    due_us: int,
    *,
    rule: rules.Rule,
    created_us: int,
    blob: bytes = _STREAM,
) -> Wanted:
    """Return the request to store a Schedule due at ``due_us``; ``blob`` is its action."""
    known = definition.Definition(
        namespace=namespace,
        name=name,
        uid=str(uuid.uuid4()),
        generation=1,
        timing_generation=1,
        created_us=created_us,
        not_before_us=min(created_us, due_us - 1),
        state=definition.State.ARMED,
        rule=rule,
        target=queue.signed_blobs.digest(namespace, blob),
    )
    return messages.Arming(definition=known, due_us=due_us), blob
