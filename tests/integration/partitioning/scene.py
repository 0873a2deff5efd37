"""Schedules that run all the time, workers that fire them, and a mover that is killed.

A worker here fires a chain by writing down its due and moves it on by the schedule's period, so
that what ran must be an unbroken row of dues, each once: a gap is a lost slot, a repetition a
doubled one.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import random
import zlib

from duepoint import errors
from duepoint.clock import SystemClock
from duepoint.controller.maintenance import partitioner
from duepoint.controller.schedulesets import schedulesets
from duepoint.delayqueue import delayqueue, messages, sharding
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.wire.servers import Servers
from duepoint.schedules import definition, points
from duepoint.schedules import rule as rules
from tests.support import queueing, serverclient
from tests.support.terms import a_term

PERIOD_US = 400_000


class Killed(BaseException):
    """The process is gone; nothing of it runs any more."""


@dataclasses.dataclass
class Scene:
    """One index, and what was fired of it."""

    url: str
    prefix: str
    epoch: int = queueing.EPOCH
    fired: dict[bytes, list[int]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(list)
    )
    removed: set[bytes] = dataclasses.field(default_factory=set)
    live: dict[bytes, definition.Definition] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)
    longest_late_us: int = 0
    retried_share: float = 0.2
    has_fired: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    opened: list[delayqueue.DelayQueue] = dataclasses.field(default_factory=list)
    servers: dict[delayqueue.DelayQueue, Servers] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server = serverclient.ServerClient(self.url, self.prefix)

    async def open(self, *, read: bool = True) -> delayqueue.DelayQueue:
        servers = queueing.connections_to(self.url, users=False)
        queue = queueing.a_queue(self.url, self.prefix, opened=servers)
        await queue.start()
        if read:
            await queue.layouts.read()
        self.opened.append(queue)
        self.servers[queue] = servers
        return queue

    async def close(self) -> None:
        for queue in self.opened:
            await queue.close()
        await self.server.close()

    # -- the operator ----------------------------------------------------------------------------

    def a_definition(
        self, queue: delayqueue.DelayQueue, name: str, generation: int = 1
    ) -> definition.Definition:
        namespace = f"team-{zlib.crc32(name.encode()) % 5}"
        timing = rules.Timing(schedules=(f"@every {60 + generation}s",))
        values = {**queueing.USUAL, "rule": rules.Rule(timing=timing), "name": name}
        values |= {"namespace": namespace, "uid": f"uid-of-{name}"}
        values |= {"generation": generation, "timing_generation": generation}
        return definition.Definition(
            **values,
            target=queue.signed_blobs.digest(namespace, queueing.BLOB + name[-1:].encode()),
        )

    async def arm(
        self, queue: delayqueue.DelayQueue, name: str, *, generation: int = 1, due_us: int
    ) -> None:
        made = self.a_definition(queue, name, generation)
        arming = messages.Arming(definition=made, due_us=due_us)
        blob = queueing.BLOB + name[-1:].encode()
        (armed,) = await queue.writer.upsert([(arming, blob)], messages.Epoch(self.epoch))
        if armed is not messages.Armed.APPLIED:
            self.problems.append(f"{name} generation {generation}: {armed}")
        self.live[made.id] = made

    async def remove(self, queue: delayqueue.DelayQueue, schedule_id: bytes) -> None:
        known = self.live.pop(schedule_id)
        armed = await queue.writer.remove(
            points.ScheduleId(schedule_id), known.uid, known.namespace, messages.Epoch(self.epoch)
        )
        if armed is not messages.Armed.APPLIED:
            self.problems.append(f"{known.name} could not be removed: {armed}")
        self.removed.add(schedule_id)

    # -- the worker ------------------------------------------------------------------------------

    async def work(
        self, queue: delayqueue.DelayQueue, name: str, *, beats: bool = True, slow: float = 0.0
    ) -> None:
        """Claim and fire until cancelled; without beats it learns of a layout by being refused."""
        while True:
            try:
                if beats:
                    beat = await queue.membership.beat(name)
                    if beat.layout != queue.layouts.known():
                        await queue.layouts.read()
                await self._look(queue, name, slow)
            except queue_errors.LayoutChanged:
                await queue.layouts.read()
            except errors.TryLater:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.01)

    async def _look(self, queue: delayqueue.DelayQueue, name: str, slow: float) -> None:
        shards = sharding.all_shards(queue.layouts.known())
        answers = await queue.claims.claim(shards, worker=name, batch=50, lease_seconds=3.0)
        await asyncio.gather(
            *(self._fire(queue, one.claim, slow) for one in answers if one.claim is not None)
        )

    async def _fire(self, queue: delayqueue.DelayQueue, claim: messages.Claim, slow: float) -> None:
        gone_before = set(self.removed)
        found = await queue.definitions.read_definitions(
            claim.shard, {point.schedule_id for point in claim.points}
        )
        await asyncio.sleep(slow)
        chains, finished, occurrences = [], [], []
        for point in claim.points:
            known = found.get(point.schedule_id)
            if point.due_us > claim.now_us:
                self.problems.append(f"early by {point.due_us - claim.now_us} us")
            if known is None:
                if point.schedule_id in self.live:
                    self.problems.append(f"no definition of {point.schedule_id.hex()}")
                finished.append(point.member)
                continue
            if point.schedule_id in gone_before:
                self.problems.append(f"a ghost: {known.name}")
            self.longest_late_us = max(self.longest_late_us, claim.now_us - point.due_us)
            if point.kind is points.PointKind.CHAIN:
                if random.random() < self.retried_share and not claim.reclaimed:
                    occurrences.append(queueing.a_retry(point, due_us=claim.now_us + 30_000))
                else:
                    self.fired[point.member].append(point.due_us)
                chains.append((point.member, point.due_us + PERIOD_US))
            else:
                self.fired[point.member[:12]].append(point.slot_us)
                finished.append(point.member)
        self.has_fired.set()
        await queue.settlements.settle(
            claim,
            messages.Settlement(
                chains=tuple(chains), finished=tuple(finished), occurrences=tuple(occurrences)
            ),
        )

    # -- the mover -------------------------------------------------------------------------------

    def a_partitioner(self, queue: delayqueue.DelayQueue) -> partitioner.Partitioner:
        term = a_term(SystemClock(), queue=queue, epoch=messages.Epoch(self.epoch))
        term.services.sets = schedulesets.ScheduleSets(term)
        made = partitioner.Partitioner(term)
        made.notice_seconds = 0.1
        return made

    async def partition(self, queue: delayqueue.DelayQueue, shards: int) -> None:
        """Ask, and move to the end."""
        await queue.resharding.ask(shards)
        await self.finish(queue, shards)

    async def finish(self, queue: delayqueue.DelayQueue, shards: int) -> None:
        """Whatever is under way is brought to its end by a mover of our own."""
        running = asyncio.create_task(self.a_partitioner(queue).run())
        try:
            async with asyncio.timeout(240):
                while not await self._is_done(shards):
                    if running.done():
                        running.result()
                    await asyncio.sleep(0.02)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    async def one_pass(self, queue: delayqueue.DelayQueue, shard: messages.ShardId) -> int:
        """Give away what no worker holds; how much of it is damaged."""
        damaged = 0
        async for step in queue.mover.move_once(shard, messages.Epoch(self.epoch)):
            damaged += step.damaged
        return damaged

    async def _is_done(self, shards: int) -> bool:
        seen = await self.opened[0].resharding.progress()
        return (seen.shards, seen.former_shards) == (shards, 0)

    # -- what must be true -----------------------------------------------------------------------

    async def catch_up(self) -> None:
        """A while for dues that wait for another try; what is lost is still missing behind it."""
        self.retried_share = 0.0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):
                while self._broken_rows():
                    self.has_fired.clear()
                    await self.has_fired.wait()

    def _broken_rows(self) -> dict[str, list[int]]:
        """Steps between dues that are no single period, by chain."""
        broken: dict[str, list[int]] = {}
        for member, dues in self.fired.items():
            steps = {after - before for before, after in itertools.pairwise(sorted(dues))}
            if wrong := sorted(steps - {PERIOD_US}):
                broken[member.hex()] = wrong
        return broken

    async def check_index(self, queue: delayqueue.DelayQueue) -> None:
        """The index holds what is live, in its place, and nothing else."""
        layout = await queue.layouts.read()
        held: dict[bytes, messages.ShardId] = {}
        for shard in sharding.all_shards(layout):
            async for stored in queueing.stored(queue, shard):
                assert stored.id not in held, "stored twice"
                assert sharding.home(stored.id, layout) == shard
                assert stored.due_us is not None or stored.claimed, f"{stored.name} has no chain"
                held[stored.id] = shard
        assert held.keys() == self.live.keys()
        for old in range(1, layout.number):
            names = await self.server.redis.keys(f"{self.prefix}{{g{old}.*")
            assert all(name.endswith(b":meta") for name in names), names


def crash_at(servers: Servers, number: int) -> None:
    """The process that uses these connections dies before its n-th exchange with the server."""
    exchange = servers.exchange
    seen = 0

    async def dying(commands, **named):
        nonlocal seen
        seen += 1
        if seen >= number:
            raise Killed
        return await exchange(commands, **named)

    servers.exchange = dying  # type: ignore[method-assign]
