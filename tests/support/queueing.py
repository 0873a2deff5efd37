"""Helpers for tests of the delay queue: armings, settlements, and queues of each kind."""

from __future__ import annotations

import asyncio
import dataclasses
import types
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from duepoint.clock import Clock, SystemClock
from duepoint.delayqueue import delayqueue, keys, messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.repair import sweeper
from duepoint.delayqueue.wire import connecting, servers
from duepoint.schedules import definition, points
from duepoint.schedules import rule as rules
from tests.support import redisusers, serverclient, shardstats

BLOB = b'{"webhook":{"url":"https://hooks.example.com/x"}}'
BLOB_KEY = b"a key of thirty-two bytes, really"
EPOCH = messages.Epoch(7)
SECOND_US = 1_000_000
CREATED_US = 1_767_225_600_000_000  # 2026-01-01

#: The usual values of a definition's fields.
USUAL = {
    "namespace": "default",
    "name": "report",
    "generation": 1,
    "timing_generation": 1,
    "created_us": CREATED_US,
    "not_before_us": CREATED_US,
    "state": definition.State.ARMED,
    "rule": rules.Rule(timing=rules.Timing(schedules=("@every 1m",))),
}


@dataclasses.dataclass
class Harness:
    """A queue under test, with its clock and a way to let time pass.

    Attributes:
        server: the test's own client of the server behind the queue.
        servers: the connections of the queue itself.
    """

    queue: DelayQueue
    now_us: Callable[[], int]
    pass_time: Callable[[float], Awaitable[None]]
    server: serverclient.ServerClient | None = None
    servers: servers.Servers | None = None
    clock: Clock | None = None

    async def close(self) -> None:
        await self.queue.close()
        if self.server is not None:
            await self.server.close()

    def meet_another_server(self) -> None:
        """Do what the process does when its server turns out to be another one."""
        for report in self.servers.changes.on_upheaval:
            report()

    async def arm(self, **changes) -> messages.Armed:
        (armed,) = await self.queue.writer.upsert([(self.arming(**changes), BLOB)], EPOCH)
        return armed

    def arming(
        self,
        *,
        due_in: float | None = -1.0,
        due_us: int | None = None,
        keep_chain: bool = False,
        **changes,
    ) -> messages.Arming:
        """Return an arming of ``report``, with its chain due this many seconds from now."""
        if due_us is None and due_in is not None and not keep_chain:
            due_us = self.now_us() + int(due_in * SECOND_US)
        return messages.Arming(
            definition=self.definition(**changes), due_us=due_us, keep_chain=keep_chain
        )

    def definition(self, **changes) -> definition.Definition:
        changes.setdefault("uid", f"uid-of-{changes.get('name', 'report')}")
        if "generation" in changes:
            changes.setdefault("timing_generation", changes["generation"])
        values = {**USUAL, **changes}
        values.setdefault("target", self.queue.signed_blobs.digest(values["namespace"], BLOB))
        return definition.Definition(**values)

    async def shards(self) -> list[messages.ShardId]:
        return [messages.ShardId(n) for n in range((await self.queue.layouts.read()).shards)]

    async def sweep(self, due_us: int | None = None, **options) -> list[sweeper.Swept]:
        """Walk over each shard once and return the steps; lost chains become due at ``due_us``."""
        options.setdefault("due_of", lambda _: due_us)
        return [
            step
            for shard in await self.shards()
            async for step in self.queue.sweeper.sweep(shard, EPOCH, **options)
        ]

    async def rearm(self, due_us: int | None = None, **options) -> int:
        """Walk over each shard once and return how many lost chains were armed again."""
        return sum(step.armed for step in await self.sweep(due_us, **options))

    async def look(self, *, worker: str = "w1", **options) -> list[messages.Claimed]:
        """Claim once from every shard."""
        return await self.queue.claims.claim(await self.shards(), worker=worker, **options)

    async def claim_all(self, *, worker: str = "w1", **options) -> list[messages.Claim]:
        """Claim until nothing more is due, and return all claims."""
        claims = []
        while True:
            found = [answer.claim for answer in await self.look(worker=worker, **options)]
            if not any(found):
                return claims
            claims += [claim for claim in found if claim]

    async def claim_one(self, *, worker: str = "w1", **options) -> messages.Claim:
        """Return the only claim, after waiting as long as the queue says."""
        while True:
            answers = await self.look(worker=worker, **options)
            claims = [answer.claim for answer in answers if answer.claim]
            if claims:
                assert len(claims) == 1
                return claims[0]
            waits = [a.wait_seconds for a in answers if a.wait_seconds is not None]
            assert waits, "nothing will ever be due"
            await self.pass_time(min(waits))

    async def outcomes(self) -> list[bytes]:
        """Return the outcomes that the leader would read and count."""
        ledger = self.queue.ledger()
        entries = await ledger.read_outcomes()
        for entry in entries:
            await ledger.store(entry.shard, {}, through=entry.id, epoch=EPOCH)
        return [entry.outcomes for entry in entries]

    async def total(self) -> shardstats.ShardStats:
        """Return the sum of all shards' statistics."""
        stats = await shardstats.read(self.queue)
        return shardstats.ShardStats(
            shard=messages.ShardId(-1),
            **{
                name: sum(getattr(each, name) for each in stats)
                for name in ("points", "due", "claimed", "claims", "outcomes", "dead", "lag_us")
            },
        )


async def stored(queue: DelayQueue, shard: messages.ShardId) -> AsyncIterator[Any]:
    """Yield every Schedule of a shard: fields of its definition, and its chain's due time.

    ``due_us`` is None if there is no chain, or if a worker has claimed it (``claimed``).
    """
    reader = queue.definitions
    async for records in reader.records(shard, await reader.namespaces(shard)):
        found = await reader.read_here(shard, [schedule_id for schedule_id, _ in records])
        for known in found.values():
            if known.owner is not None:
                continue
            score = await reader.chain_due(shard, known)
            fields = {name: getattr(known, name) for name in _FIELDS}
            claimed = score is not None and score >= points.DUE_LIMIT_US
            due_us = None if score is None or claimed else int(score)
            yield types.SimpleNamespace(shard=shard, claimed=claimed, due_us=due_us, **fields)


_FIELDS = ("id", "uid", "namespace", "name", "generation", "timing_generation", "state")


def members(claims: list[messages.Claim]) -> list[bytes]:
    return sorted(point.member for claim in claims for point in claim.points)


def moved(chain: points.DuePoint, seconds: float) -> tuple[bytes, int]:
    """Return the chain moved on by these seconds, as a settlement does it."""
    return chain.member, chain.due_us + int(seconds * SECOND_US)


def a_retry(
    point: points.DuePoint, *, due_us: int | None = None, attempt: int = 1, **record
) -> messages.Occurrence:
    """Return the point's slot as a retry."""
    return messages.Occurrence(
        point=points.DuePoint(
            schedule_id=point.schedule_id,
            timing_version=point.timing_version,
            kind=points.PointKind.RETRY,
            slot_us=point.slot_us,
            due_us=point.due_us if due_us is None else due_us,
        ),
        record=messages.OccurrenceRecord(attempt=attempt, **record),
        source=point.member,
    )


def a_planned(point: points.DuePoint, slot_us: int) -> messages.Occurrence:
    """Return a chosen slot of an overdue chain."""
    return messages.Occurrence(
        point=points.DuePoint(
            schedule_id=point.schedule_id,
            timing_version=point.timing_version,
            kind=points.PointKind.PLANNED,
            slot_us=slot_us,
            due_us=slot_us,
        ),
        record=messages.OccurrenceRecord(trigger="CatchUp"),
    )


def a_queue(url: str, prefix: str, *, users: bool = True, **options) -> delayqueue.DelayQueue:
    """Return a queue on a test server, logged in as the shipped users, or else by the URL."""
    opened = options.pop("opened", None) or connections_to(url, users=users)
    return delayqueue.connect(url, blob_key=BLOB_KEY, prefix=prefix, opened=opened, **options)


def connections_to(url: str, *, users: bool = True, connections: int = 8) -> servers.Servers:
    """Return connections, logged in as the shipped users, or else by the URL."""
    if users:
        return redisusers.TwoUsers(url, connections=connections)
    return servers.open_servers(connecting.Server(url=url), connections=connections)


async def redis_harness(
    url: str,
    prefix: str,
    shards: int = 4,
    *,
    users: bool = True,
    connections: int = 8,
    buckets: int = keys.BUCKETS,
    **options,
) -> Harness:
    """Return a harness on a Redis server; the caller closes it."""
    opened = connections_to(url, users=users, connections=connections)
    queue = a_queue(url, prefix, opened=opened, buckets=buckets, **options)
    await queue.start()
    await queue.membership.open(shards, EPOCH)
    server = serverclient.ServerClient(url, prefix, buckets=buckets)
    clock = SystemClock()
    return Harness(queue, clock.now_us, asyncio.sleep, server, opened, clock)


def an_entry(
    namespace: str = "default", name: str = "ticks", *, max_length: int = 10, **fields: bytes | str
) -> messages.StreamEntries:
    """Return a stream entry that belongs to no point."""
    values = fields or {"a": "b"}
    return messages.StreamEntries(
        namespace=namespace,
        name=name,
        max_length=max_length,
        names=tuple(values),
        members=[b"a member"],
        values=[tuple(values.values())],
    )
