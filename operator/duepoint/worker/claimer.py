"""The loop of a worker: wait until points are due, claim them, hand them over, repeat.

The worker sleeps locally (``Wakeups``): it subscribes, reads, and sleeps exactly as long as the
reply said, so an idle worker sends nothing but a keepalive. Every worker claims from every shard.
Each shard has a preferred worker, and the others come 200-500 ms later, so a dead worker costs half
a second and no configuration. If Redis is away, the worker retries with bounded, jittered backoff
and reports it in readiness; no claimed point is lost, because leases expire by themselves. If only
part of Redis is away (one node of a cluster), the worker retries its shards and goes on firing the
others (``keepalive``).
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from duepoint import clock as clocks
from duepoint import errors, faults, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.claims import claiming
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.wakeups import Wakeups
from duepoint.faults import FaultPoint
from duepoint.worker import keepalive, room, suspects
from duepoint.worker.firing import Firer

#: How often the worker checks for room while it has none for a claim.
_LOOK_FOR_ROOM_SECONDS = 0.05
#: The longest wait before the next try to reach a queue that is away. Points that fall due between
#: its first answer and the first claim may have to wait for the leader.
_MOST_AWAY_SECONDS = 0.5
#: The longest sleep of one turn. The worker claims nothing after it: a subscriber has missed no
#: wake-up, and a worker without a subscription claims from all shards once it has one.
LONGEST_SLEEP_SECONDS = 60.0

#: The wait after a change of the layout; another one may follow at once.
_CHANGE_SECONDS = 0.02
#: Turns of the event loop until the claim that follows another one has been sent.
_TURNS_TO_CLAIM = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a worker claims, and for how long.

    Attributes:
        batch: most points in one claim.
        under_way: most points that are claimed and not yet settled.
    """

    batch: int
    under_way: int
    lease_seconds: float
    grace_seconds: float


async def _at_once() -> None:
    pass


class Claimer:
    """The loop of a worker.

    Args:
        before_claims: returns when this worker may claim; raises TryLater if it may not yet.
    """

    def __init__(
        self,
        queue: DelayQueue,
        firer: Firer,
        clock: Clock,
        health: services.Health,
        *,
        worker: str,
        limits: Limits,
        before_claims: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        self._queue = queue
        self._before_claims = before_claims
        self._firer = firer
        self._clock = clock
        self._worker = worker
        self._limits = limits
        self._draining = asyncio.Event()
        self._room = room.Room(firer.jobs, most=limits.under_way, batch=limits.batch)
        self._keepalive = keepalive.Keepalive(queue, clock, health, worker=worker)
        self._isolation = suspects.Isolation(queue, clock)
        #: Until this instant a claim of suspects in hand delays any other one of suspects.
        self._suspects_until = -math.inf
        #: Shards with further suspects.
        self._suspected: set[messages.ShardId] = set()
        self._asked = 0  # requests to claim that are in flight
        #: The wake-ups of the newest connection; set before the first claim.
        self._wakeups: Wakeups
        self._shards: frozenset[messages.ShardId] = frozenset()
        #: Shards with due points that there was no room for.
        self._waiting: set[messages.ShardId] = set()
        self._running: set[asyncio.Task[bool]] = set()

    def drain(self) -> None:
        """Claim nothing more; claims in flight may end within the grace period."""
        self._draining.set()
        self._firer.drain()
        self._isolation.close()

    async def run(self) -> None:
        """Claim and dispatch until drained; if cancelled, give back points that have not ended."""
        keeping = asyncio.create_task(self._firer.leases.run())
        try:
            await self._claim_until_drained()
            await self._wait_for_running()
        finally:
            await _end(self._running)
            await _end({keeping})
            await self._isolation.take_back()
            await self._keepalive.say_goodbye()

    async def _claim_until_drained(self) -> None:
        waits = services.backoff(first_seconds=0.1, most_seconds=_MOST_AWAY_SECONDS)
        while not self._draining.is_set():
            try:
                await self._claim_while_connected()
            except queue_errors.LayoutChanged as change:
                # The leader reshards the index. Not a fault: the next turn reads the layout.
                telemetry.logger.info("the index has changed", change=str(change))
                await clocks.wait_for(self._draining, _CHANGE_SECONDS, self._clock)
            except (errors.TryLater, errors.WorldChanged) as trouble:
                self._keepalive.report_away(trouble)
                await clocks.wait_for(self._draining, next(waits), self._clock)

    # -- turns, as long as the queue answers ---------------------------------------------------

    async def _claim_while_connected(self) -> None:
        """Take turns until drained; raises TryLater or WorldChanged when the queue is away."""
        await self._queue.start()
        await self._keepalive.judge_server()
        await self._before_claims()
        layout = await self._queue.layouts.read()
        self._shards = frozenset(sharding.all_shards(layout))
        self._waiting.clear()
        self._keepalive.outages = keepalive.ShardOutages(len(self._shards))
        early: set[asyncio.Task[Any]] = set()
        claim_early = functools.partial(self._claim_early, early)
        wakeups = self._wakeups = self._queue.wakeups(claim_early)
        await wakeups.start()
        claim_everywhere = functools.partial(wakeups.ring_after, self._shards)
        beating = asyncio.create_task(self._keepalive.run(wakeups, layout, claim_everywhere))
        draining = asyncio.create_task(self._draining.wait())
        try:
            self._keepalive.report()
            while not self._draining.is_set():
                await self._turn(beating, draining)
        finally:
            await _end({beating, draining})
            await asyncio.gather(*early, return_exceptions=True)  # these may still claim
            await wakeups.close()

    async def _turn(self, beating: asyncio.Task[None], draining: asyncio.Task[Any]) -> None:
        """Sleep until something is due, claim it, hand it over."""
        due = await self._wait_until_due(beating, draining)
        requests, later = self._room.requests(due)
        for shards, batch in requests:
            await self._claim(shards, batch)
        if later:
            # Attempts may free room without an event, or hang: check again after a moment.
            after_seconds = 0.0 if self._room.has_enough() else _LOOK_FOR_ROOM_SECONDS
            self._wakeups.ring_after(later, after_seconds=after_seconds)
            self._waiting.update(later)

    def _claim_early(
        self, early: set[asyncio.Task[Any]], shards: tuple[messages.ShardId, ...]
    ) -> None:
        """Claim a moment too early, to warm the path to the server before the due.

        After an idle period the first round trip takes three times as long as the next one, because
        caches are cold on both sides. If this early claim finds a point due, it takes it. Its
        errors are ignored: the claim that follows meets them again.
        """
        requests, _ = self._room.requests(shards)
        for some, batch in requests:
            claiming_ = asyncio.create_task(self._claim(some, batch))
            early.add(claiming_)
            claiming_.add_done_callback(functools.partial(_forget_early, early))

    async def _claim(
        self, shards: Sequence[messages.ShardId], batch: int, *, of_suspects: bool = False
    ) -> list[messages.Claimed]:
        """Claim from these shards and hand the claims over; claim suspects afterwards."""
        if self._isolation.claim is not None:
            await self._isolation.wait_to_ask()
        self._asked += 1
        try:
            if self._draining.is_set():
                return []
            answers = await self._answers(shards, batch, of_suspects=of_suspects)
            claims = [answer.claim for answer in answers if answer.claim is not None]
            for claim in claims:
                self._hand_over(claim, is_only=len(claims) == 1)
        finally:
            self._asked -= 1
            if self._isolation.claim is not None:
                self._isolation.note_change()
        if not of_suspects:
            for answer in answers:
                if answer.has_suspects:
                    await self._claim_suspects(answer.shard)
            outages = self._keepalive.outages
            if outages.away or any(answer.trouble is not None for answer in answers):
                outages.record(answers, self._clock.monotonic())
                self._keepalive.report()
        return answers

    async def _answers(
        self, shards: Sequence[messages.ShardId], batch: int, *, of_suspects: bool
    ) -> list[messages.Claimed]:
        """Return one answer for each shard; if none of them answers, also ask the other shards.

        Raises TryLater if the queue is away as a whole.
        """
        claim = functools.partial(
            self._queue.claims.claim,
            worker=self._worker,
            lease_seconds=self._limits.lease_seconds,
            standby=self._wakeups.standby,
            skip_suspects=not of_suspects,
        )
        try:
            answers = await claim(shards, batch=batch)
        except errors.TryLater as trouble:
            if of_suspects:
                raise
            answers = [
                messages.Claimed(
                    shard=shard, claim=None, wait_seconds=claiming.AWAY_SECONDS, trouble=trouble
                )
                for shard in shards
            ]
            if not self._keepalive.outages.has(shards):
                # One shard may be gone alone; a server that does not answer takes all its shards
                # along.
                is_gone = isinstance(trouble, queue_errors.Uninitialised)
                here = self._shards.difference(shards)
                others = tuple(here) if is_gone else self._queue.claims.elsewhere(shards)
                if not others:
                    raise
                answers += await claim(others, batch=1)
        await faults.reach(FaultPoint.AFTER_CLAIM)
        for answer in answers:
            self._wakeups.note(answer)
            self._room.more[answer.shard] = answer.more
        return answers

    async def _claim_suspects(self, shard: messages.ShardId) -> None:
        """Claim points that have lost two owners, unless this worker holds such a claim already.

        A worker that took all parts of such claims at once would take the culprit's neighbours down
        with it each time, and they would become as suspicious as the culprit. So the other parts
        wait until the one in hand has ended, or has not killed its worker for a while.
        """
        now = self._clock.monotonic()
        if now < self._suspects_until:
            self._suspected.add(shard)
            self._wakeups.ring_after([shard], after_seconds=self._suspects_until - now)
            return
        self._suspects_until = now + self._limits.lease_seconds
        answers: list[messages.Claimed] = []
        try:
            answers = await self._claim([shard], self._limits.batch, of_suspects=True)
        except errors.TryLater:
            # The next ordinary claim reports the outage.
            self._wakeups.ring_after([shard], after_seconds=claiming.AWAY_SECONDS)
        finally:
            if not any(one.claim is not None and one.claim.is_suspect for one in answers):
                self._end_suspects()  # another worker was quicker

    def _end_suspects(self) -> None:
        self._suspects_until = -math.inf
        if self._suspected:
            self._wakeups.ring_after(self._suspected)
            self._suspected.clear()

    async def _wait_until_due(
        self, beating: asyncio.Task[None], draining: asyncio.Task[Any]
    ) -> tuple[messages.ShardId, ...]:
        """Return the shards to claim from, none when draining; raises what ended the keepalive."""
        waiting = asyncio.create_task(self._wakeups.wait_until_due(LONGEST_SLEEP_SECONDS))
        try:
            ends: set[asyncio.Future[Any]] = {waiting, draining, beating}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if beating.done():
                beating.result()
            return waiting.result() if waiting.done() else ()
        finally:
            if not waiting.done():  # if it is done, a point is due: do not spend a turn of the loop
                await _end({waiting})

    # -- what is under way ---------------------------------------------------------------------

    def _hand_over(self, claim: messages.Claim, *, is_only: bool) -> None:
        holding = self._room.hold(claim, self._give_room)
        wait_to_begin = self._isolate(claim, holding.left, is_only=is_only)
        task = asyncio.create_task(self._carry_out(claim, holding, wait_to_begin))
        self._running.add(task)
        task.add_done_callback(functools.partial(self._end_claim, claim, holding))

    async def _carry_out(
        self,
        claim: messages.Claim,
        holding: room.Holding,
        wait_to_begin: Callable[[], Awaitable[None]] | None,
    ) -> bool:
        """Carry a claim out; if its shard has more points due, claim those first."""
        if self._room.more.get(claim.shard):
            # Planning takes a millisecond; the server can serve the next claim meanwhile.
            for _ in range(_TURNS_TO_CLAIM):
                await asyncio.sleep(0)
        return await self._firer.run(claim, holding, wait_to_begin)

    def _isolate(
        self, claim: messages.Claim, size: int, *, is_only: bool
    ) -> Callable[[], Awaitable[None]] | None:
        """Isolate a claim whose points lost an owner; return what it must await; None = nothing."""
        if not claim.reclaimed:
            return None
        telemetry.reclaimed_total.inc(size)
        in_company = self._room.in_hand.total() > size or self._asked > 1 or not is_only
        if not self._isolation.takes(claim, in_company=in_company):
            return None
        return functools.partial(
            self._isolation.begin, lambda: self._room.in_hand.total() <= size and not self._asked
        )

    def _give_room(self) -> None:
        """Claim from the waiting shards soon: fewer points are in hand, or fewer of them Jobs."""
        if self._waiting and self._room.has_enough():
            self._wakeups.ring_after(self._waiting)
            self._waiting.clear()
        self._isolation.note_change()

    def _end_claim(
        self, claim: messages.Claim, holding: room.Holding, ended: asyncio.Task[bool]
    ) -> None:
        holding.close()
        was_tried = not ended.cancelled() and (ended.exception() is not None or ended.result())
        self._isolation.end(claim, is_innocent=not was_tried)
        if claim.is_suspect:
            self._end_suspects()
        self._running.discard(ended)
        if not ended.cancelled() and (bug := ended.exception()) is not None:
            # Its lease expires, and workers claim its points again in smaller and smaller parts.
            telemetry.logger.error("batch failed", error=repr(bug))

    async def _wait_for_running(self) -> None:
        """Wait for the running claims, at most for the grace period."""
        ending = asyncio.gather(*self._running, return_exceptions=True)
        waiting = asyncio.create_task(self._clock.sleep(self._limits.grace_seconds))
        ends: set[asyncio.Future[Any]] = {ending, waiting}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end({waiting})


def _forget_early(early: set[asyncio.Task[Any]], ended: asyncio.Task[None]) -> None:
    early.discard(ended)
    if not ended.cancelled():
        ended.exception()  # retrieved and ignored: the claim that follows meets it again


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel these tasks and await them."""
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)
