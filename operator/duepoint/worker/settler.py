"""Writes what has become of one claim to the queue, and extends its lease until then (``Leases``).

The settler gathers what has ended of a claim for a few milliseconds and settles them together, as
often as needed, so that a slow delivery holds up no other chain's next slot. What could not be
settled while the claim was held is left to its next owner: the slot is fired again under the same
name and id. Also owned here, for all who act under the claim: its time, whether it is lost, and how
long a queue that is away is asked again.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from duepoint import errors, faults, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import activeruns, messages
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.messages import Settlement
from duepoint.faults import FaultPoint
from duepoint.runs import run
from duepoint.schedules import actions, points
from duepoint.schedules import definition as definitions
from duepoint.worker import endings
from duepoint.worker.plan import Attempt

_AnswerT = TypeVar("_AnswerT")

#: What became of entries, or why no stream took one.
Handed = messages.DeliveryResult | queue_errors.WriteRefused | queue_errors.WrongType

#: Attempts that end within this are settled together. Nothing waits for a settlement (a chain whose
#: next slot is near has moved on already), and one script less leaves the loop to attempts that are
#: due now. A claim whose attempts have all ended is settled at once.
GATHER_SECONDS = 0.025
#: A settlement is repeated against an ailing Redis for as long as the claim is held, and this
#: long for its outcomes' sake.
_LAST_TRY_SECONDS = 1.0
#: A request that has been open for so long is reported as a run that goes on; that often it is
#: looked for them.
OPEN_SECONDS = 2.0
_LOOK_SECONDS = 1.0
#: Attempts in one settlement: one script stays short, and below what Lua can unpack.
MOST_TOGETHER = 500


class Settler:
    """Settles what has become of one claim, in as few scripts as its attempts allow."""

    def __init__(self, queue: DelayQueue, clock: Clock, claim: messages.Claim) -> None:
        self._queue = queue
        self._clock = clock
        self.claim = claim
        self.lost = False
        #: The queue could not be reached at some time while the claim was held.
        self.cut_off = False
        self._begun = clock.monotonic()
        self._gathered: list[Settlement] = []
        #: First attempts that are under way and that have not been reported, by member, with the
        #: time of their beginning and its instant of the monotonic clock.
        self._open: dict[bytes, tuple[Attempt, int, float]] = {}
        #: Runs that have ended and still count in the queue.
        self._left: list[activeruns.EndedRun] = []
        self._number = 0
        self._current: Settlement | None = None
        #: Waits for more that ends, to settle it together; then settles, and another one may wait.
        self._gathering: asyncio.Task[None] | None = None
        self._settling: set[asyncio.Task[None]] = set()
        #: Numbers rise in the order in which settlements reach the queue.
        self._turn = asyncio.Lock()

    def now_us(self) -> int:
        """The claim's time and what has passed since.

        Not this machine's UTC: were that an hour ahead, retries would come an hour late or, by
        ``maxAge``, never.
        """
        return self.at_us(self._clock.monotonic())

    def at_us(self, monotonic: float) -> int:
        """The same for an instant of the monotonic clock."""
        return self.claim.now_us + int((monotonic - self._begun) * 1_000_000)

    def add(self, ending: Settlement) -> None:
        """Settle this soon: one more point has ended."""
        self._gathered.append(ending)
        self._left += ending.left
        if self._gathering is None:
            self._gathering = asyncio.create_task(self._settle_soon())
            self._settling.add(self._gathering)
            self._gathering.add_done_callback(self._settling.discard)

    def begin(self, attempt: Attempt, action: actions.Action) -> int:
        """An attempt is under way; of one whose target may take long it is reported if it does.

        Returns the time.
        """
        since = self._clock.monotonic()
        started_us = self.at_us(since)
        # The first attempt has reported it; a Job's creation is short.
        if not attempt.first_try_us and not isinstance(action.target, actions.JobAction):
            self._open[attempt.point.member] = attempt, started_us, since
        return started_us

    def end(self, attempt: Attempt) -> None:
        """It has ended."""
        self._open.pop(attempt.point.member, None)

    async def report(self, ending: Settlement) -> bool:
        """Settle this now, with all that was gathered; False where the claim is lost."""
        self.add(ending)
        await self.flush()
        return not self.lost

    def report_open(self) -> None:
        """Report attempts that have been under way for long, each once."""
        began_before = self._clock.monotonic() - OPEN_SECONDS
        for member, (attempt, started_us, since) in list(self._open.items()):
            if since <= began_before:
                del self._open[member]
                self.add(endings.running(attempt, started_us, self.now_us()))

    def put_off(self, what: str, trouble: errors.TryLater) -> None:
        """The queue could not be reached for this claim; the log says so once."""
        if not self.cut_off:
            telemetry.logger.warning(what, shard=self.claim.shard, error=str(trouble))
        self.cut_off = True

    def over(self, schedule_id: points.ScheduleId) -> tuple[activeruns.ActiveRun, ...]:
        """Runs of a schedule that have ended and still count in the queue."""
        return tuple(left.run for left in self._left if left.definition.id == schedule_id)

    async def _settle_soon(self) -> None:
        await self._clock.sleep(GATHER_SECONDS)
        self._gathering = None
        await self.flush()

    async def finish(self) -> None:
        """Nothing more will come: settle what is left."""
        if self._gathering is not None:
            self._gathering.cancel()
        await asyncio.gather(*self._settling, return_exceptions=True)  # what failed is sent again
        await self.flush()

    async def flush(self) -> None:
        """Settle what has been gathered; one that was cut short is sent again, as the same."""
        async with self._turn:
            if self._current is not None:
                await self._settle(self._current)
            while self._gathered:
                part = self._gathered[:MOST_TOGETHER]
                self._gathered = self._gathered[MOST_TOGETHER:]
                self._number += 1
                self._current = _together(part, number=self._number)
                await self._settle(self._current)
            if self._left:
                await self._leave()

    async def _leave(self) -> None:
        """What waits for the ended runs has its turn; untold, it looks again by itself."""
        pending = [left for ending in self._gathered for left in ending.left]
        ended = [left for left in self._left if left not in pending]
        runs: dict[points.ScheduleId, tuple[definitions.Definition, list[activeruns.Run]]] = {}
        for left in ended:
            _, listed = runs.setdefault(left.definition.id, (left.definition, []))
            listed.append(left.run.run)
        self._left = pending
        try:
            for known, listed in runs.values():
                await self._queue.concurrency.leave(self.claim, known, listed)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.warning("ends of runs not reported", error=str(trouble))

    async def while_held(
        self, call: Callable[[], Awaitable[_AnswerT]], trouble_text: str
    ) -> _AnswerT | None:
        """The queue's answer, asked for as long as the claim is held; None = it is lost.

        A lost answer may hide that the call was carried out. Then the queue knows, and the next
        owner of the points finds out.
        """
        waits = services.backoff(first_seconds=0.05, most_seconds=1.0)
        while not self.lost and self._clock.monotonic() < self.claim.held_until:
            try:
                return await call()
            except errors.TryLater as trouble:
                self.put_off(trouble_text, trouble)
                await self._clock.sleep(next(waits))
            except errors.WorldChanged as change:
                telemetry.logger.warning(trouble_text, error=str(change))
                break
        self.lost = True
        return None

    async def hand_over(
        self, entries: Sequence[messages.StreamEntries], ended: Sequence[Settlement]
    ) -> Handed | None:
        """Settle these and append their entries, both or neither; None = it is lost.

        What ``Settlements.deliver`` raises because a stream refused is returned: nothing was done.
        """
        async with self._turn:
            self._number += 1
            settlement = _together(ended, number=self._number)
            return await self.while_held(
                functools.partial(self._deliver, settlement, entries), "entries put off"
            )

    async def _deliver(
        self, settlement: Settlement, entries: Sequence[messages.StreamEntries]
    ) -> Handed:
        try:
            return await self._queue.settlements.deliver(self.claim, settlement, *entries)
        except (queue_errors.WriteRefused, queue_errors.WrongType) as refusal:
            return refusal

    async def _settle(self, settlement: Settlement) -> None:
        waits = services.backoff(first_seconds=0.05, most_seconds=1.0)
        last_try = self._clock.monotonic() + _LAST_TRY_SECONDS
        while self._clock.monotonic() < max(last_try, self.claim.held_until):
            try:
                await faults.reach(FaultPoint.BEFORE_SETTLEMENT)
                settled = await self._queue.settlements.settle(self.claim, settlement)
                await faults.reach(FaultPoint.AFTER_SETTLEMENT)
                self.lost = self.lost or settled.lost
                telemetry.given_up_total.inc(len(settlement.dead) + len(settled.buried))
                break
            except errors.TryLater as trouble:
                self.put_off("settlement put off", trouble)
                await self._clock.sleep(next(waits))
            except errors.WorldChanged as change:
                # The index was made anew under us: the claim is gone, the rebuild arms again.
                telemetry.logger.warning("settlement refused", error=str(change))
                self.lost = True
                break
        else:
            # Its points are still the claim's: kept alive, no other worker could fire them.
            telemetry.logger.warning("settlement given up; others will fire its slots again")
            self.lost = True
        self._current = None


class Leases:
    """Extends the claims of one worker while their points are carried out.

    A claim lasts ``lease_seconds``; an attempt may take longer. Every claim with unfinished points
    is extended when a third of its lease is left to spare, and never one whose points are all
    settled. Attempts that have been under way for long are reported on the same round, so that a
    status shows them. A claim that Redis says is lost stays lost: its attempts may end, their
    settlements write nothing but outcomes, and nothing new is sent under it. A worker without
    claims does not wake for this.
    """

    def __init__(self, queue: DelayQueue, clock: Clock, *, lease_seconds: float) -> None:
        self._queue = queue
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._kept: set[Settler] = set()
        self._is_busy = asyncio.Event()

    def keep(self, settler: Settler) -> None:
        """This claim is carried out from now on."""
        self._kept.add(settler)
        self._is_busy.set()

    def end(self, settler: Settler) -> None:
        """This claim has ended."""
        self._kept.discard(settler)
        if not self._kept:
            self._is_busy.clear()

    async def run(self) -> None:
        """Extend, and report what takes long, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._extend_in_time())
            group.create_task(self._report_open())

    async def _report_open(self) -> None:
        while True:
            await self._is_busy.wait()
            await self._clock.sleep(_LOOK_SECONDS)
            for settler in self._kept:
                settler.report_open()

    async def _extend_in_time(self) -> None:
        while True:
            await self._is_busy.wait()
            await self._clock.sleep(self._lease_seconds / 6)
            soon = self._clock.monotonic() + self._lease_seconds * 2 / 3
            ageing = [each for each in self._kept if not each.lost and each.claim.held_until < soon]
            # Together: one command without an answer must not cost the other claims their lease.
            troubles = list(filter(None, await asyncio.gather(*map(self._extend, ageing))))
            if troubles:
                telemetry.logger.warning(
                    "claims not extended", claims=len(troubles), error=troubles[0]
                )

    async def _extend(self, settler: Settler) -> str | None:
        """The trouble, where there was any."""
        try:
            await faults.reach(FaultPoint.BEFORE_EXTENSION)
            extended = await self._queue.claims.extend(settler.claim, self._lease_seconds)
            await faults.reach(FaultPoint.AFTER_EXTENSION)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            settler.cut_off = True
            return str(trouble)
        except Exception as bug:  # noqa: BLE001 - one claim's trouble must not end the keeping of the others
            telemetry.logger.exception("claim not extended")
            return repr(bug)
        if extended is None:
            settler.lost = True
        else:
            settler.claim = extended
        return None


def _together(ended: Iterable[Settlement], *, number: int) -> Settlement:
    """One settlement of them all."""
    settlement = Settlement(number=number)
    for ending in ended:
        settlement.add(ending)
    settlement.outcomes = run.pack(settlement.events)
    return settlement
