"""The keepalive of a worker, and its record of the shards that are away.

The other workers notice a missing keepalive after 25 s. Its answer lists the living workers and the
layout of the index. One node of a cluster may be away, or emptied: the worker retries its shards
and goes on firing the others (``ShardOutages``). It reports outages in readiness, in a metric and,
once, in the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, serverhealth, sharding
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.wakeups import Wakeups

#: Interval of the keepalive, which also detects a half-open socket.
BEAT_SECONDS = 10.0
#: How long a shard may be migrating to another node before that counts as an outage.
_MOVING_SECONDS = 10.0

#: The part of readiness that says whether the queue can be claimed from.
PART = "queue"


class Keepalive:
    """The keepalive of one worker.

    Attributes:
        outages: which shards of the last layout are away.
    """

    def __init__(
        self,
        queue: DelayQueue,
        clock: Clock,
        health: services.Health,
        *,
        worker: str,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._health = health
        self._worker = worker
        self.outages = ShardOutages(0)
        health.expect(PART)

    async def judge_server(self) -> None:
        """Report a server that may lose or evict data; the worker uses it all the same."""
        serverhealth.report(await self._queue.health.problems(), self._health)

    async def run(
        self, wakeups: Wakeups, layout: messages.Layout, claim_everywhere: Callable[[], None]
    ) -> None:
        """Beat until the layout has changed; raises LayoutChanged then, and WorldChanged.

        Args:
            claim_everywhere: called if a beat gets no answer, to find out what else is away.
        """
        waits = services.backoff(first_seconds=1.0, most_seconds=BEAT_SECONDS)
        while True:
            try:
                await self._beat(wakeups, layout)
                serverhealth.report(await self._queue.health.review(), self._health)
            except errors.TryLater as trouble:
                self.outages.keepalive = trouble
                self.report()
                claim_everywhere()
                await self._clock.sleep(next(waits))
                continue
            if self.outages.keepalive is not None:
                self.outages.keepalive = None
                self.report()
            waits = services.backoff(first_seconds=1.0, most_seconds=BEAT_SECONDS)
            await self._clock.sleep(BEAT_SECONDS)

    async def _beat(self, wakeups: Wakeups, layout: messages.Layout) -> None:
        troubles = "; ".join(f"{part}: {text}" for part, text in self._health.troubles().items())
        beat = await self._queue.membership.beat(self._worker, trouble=troubles)
        wakeups.note_beat(beat)
        if beat.layout not in (None, layout):
            raise queue_errors.LayoutChanged("the index was resharded")
        if beat.layout is not None:
            wakeups.standby = sharding.standby_shards(
                sharding.all_shards(beat.layout), beat.workers, self._worker
            )

    async def say_goodbye(self) -> None:
        """Tell the other workers that this one ends; best effort, they notice anyway."""
        with contextlib.suppress(errors.DuepointError):
            await self._queue.membership.goodbye(self._worker)

    def report(self) -> None:
        """Report the shards that are away, or that none is."""
        trouble = self.outages.trouble(self._clock.monotonic())
        telemetry.redis_up.set(trouble is None)
        if trouble is None:
            if self._health.well(PART):
                telemetry.logger.info("claiming", worker=self._worker)
        elif self._health.unwell(PART, trouble):
            telemetry.logger.warning("waiting for a part of the queue", error=trouble)

    def report_away(self, trouble: errors.DuepointError) -> None:
        """Report that the queue is away as a whole."""
        telemetry.redis_up.set(0)
        if self._health.unwell(PART, str(trouble)):
            telemetry.logger.warning("waiting for the queue", error=str(trouble))


class ShardOutages:
    """Which shards cannot be claimed from while the others can. Pure; instants are monotonic.

    A shard that migrates to another node is not an outage, unless that lasts: the migration may
    have been broken off.

    Attributes:
        away: since when each shard is away, and why.
        keepalive: why the last keepalive was not answered; None if it was.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self.away: dict[messages.ShardId, tuple[float, errors.TryLater]] = {}
        self.keepalive: errors.TryLater | None = None

    def record(self, answers: Iterable[messages.Claimed], now: float) -> None:
        """Record the answers of shards."""
        for answer in answers:
            if answer.trouble is None:
                self.away.pop(answer.shard, None)
            else:
                since, _ = self.away.get(answer.shard, (now, None))
                self.away[answer.shard] = since, answer.trouble

    def has(self, shards: Iterable[messages.ShardId]) -> bool:
        """Whether all of these are known to be away."""
        return self.away.keys() >= set(shards)

    def trouble(self, now: float) -> str | None:
        """Return one line that says what is wrong; None if nothing is."""
        lasting = [
            trouble
            for since, trouble in self.away.values()
            if not isinstance(trouble, queue_errors.ShardMoving) or now - since > _MOVING_SECONDS
        ]
        if lasting:
            return f"{len(lasting)} of {self._shards} shards cannot be claimed from: {lasting[0]}"
        return None if self.keepalive is None else str(self.keepalive)
