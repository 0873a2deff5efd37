"""Settles claims: writes their outcomes to the queue, and extends their leases (``Leases``).

The settler gathers the points of a claim that end within a few milliseconds and settles them
together, as often as needed, so that a slow delivery does not delay the next slot of another chain.
If a point cannot be settled while the claim is held, its next owner fires the slot again under the
same name and id. The settler also keeps, for all code that acts under the claim, its time, whether
it is lost, and how long calls to a queue that is away are retried.
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

#: What ``Settlements.deliver`` returns, or why a stream refused the entries.
Handed = frozenset[bytes] | queue_errors.WriteRefused | queue_errors.WrongType | None

#: Attempts that end within this are settled together. Nothing waits for a settlement (a chain whose
#: next slot is near has moved on already), and each script saved leaves the event loop to attempts
#: that are due now. A claim whose attempts have all ended is settled at once.
GATHER_SECONDS = 0.025
#: While Redis fails, a settlement is retried until the lease ends, and at least this long, so that
#: its outcomes are not lost.
_LAST_TRY_SECONDS = 1.0
#: A request that has been open this long is reported as a running run; ``_LOOK_SECONDS`` is the
#: interval of that check.
OPEN_SECONDS = 2.0
_LOOK_SECONDS = 1.0
#: Most attempts in one settlement: its script stays short, and below what Lua can unpack.
MOST_TOGETHER = 500


class Settler:
    """Settles the points of one claim, in as few scripts as its attempts allow."""

    def __init__(self, queue: DelayQueue, clock: Clock, claim: messages.Claim) -> None:
        self._queue = queue
        self._clock = clock
        self.claim = claim
        self.lost = False
        #: Whether the queue was ever out of reach while the claim was held.
        self.cut_off = False
        self._begun = clock.monotonic()
        self._gathered: list[Settlement] = []
        #: First attempts in flight that have not been reported yet, by member, with the time at
        #: which they began, in microseconds and on the monotonic clock.
        self._open: dict[bytes, tuple[Attempt, int, float]] = {}
        #: Runs that have ended and that the queue still counts as active.
        self._left: list[activeruns.EndedRun] = []
        self._number = 0
        self._current: Settlement | None = None
        #: The task that waits for more endings and then settles them; None once it has begun to.
        self._gathering: asyncio.Task[None] | None = None
        self._settling: set[asyncio.Task[None]] = set()
        #: Serialises settlements, so that their numbers rise in the order they reach the queue.
        self._turn = asyncio.Lock()

    def now_us(self) -> int:
        """Return the time of the claim plus the time that has passed since.

        Not this machine's UTC: if that were an hour ahead, retries would come an hour late or, with
        a ``maxAge``, never.
        """
        return self.at_us(self._clock.monotonic())

    def at_us(self, monotonic: float) -> int:
        """Return the time, by the clock of the claim, at this monotonic instant."""
        return self.claim.now_us + int((monotonic - self._begun) * 1_000_000)

    def add(self, ending: Settlement) -> None:
        """Settle this ending soon, together with others."""
        if ending.is_empty:
            return
        self._gathered.append(ending)
        self._left += ending.left
        if self._gathering is None:
            self._gathering = asyncio.create_task(self._settle_soon())
            self._settling.add(self._gathering)
            self._gathering.add_done_callback(self._settling.discard)

    def begin(self, attempt: Attempt, action: actions.Action) -> int:
        """Note that an attempt is in flight, to report it if it takes long.

        Returns the time.
        """
        since = self._clock.monotonic()
        started_us = self.at_us(since)
        # A later attempt has been reported by the first one; creating a Job is short.
        if not attempt.first_try_us and not isinstance(action.target, actions.JobAction):
            self._open[attempt.point.member] = attempt, started_us, since
        return started_us

    def end(self, attempt: Attempt) -> None:
        """Note that an attempt has ended."""
        self._open.pop(attempt.point.member, None)

    async def report(self, ending: Settlement) -> bool:
        """Settle this now, with all gathered endings; return False if the claim is lost."""
        self.add(ending)
        await self.flush()
        return not self.lost

    def report_open(self) -> None:
        """Report attempts that have been in flight for long, each once."""
        began_before = self._clock.monotonic() - OPEN_SECONDS
        for member, (attempt, started_us, since) in list(self._open.items()):
            if since <= began_before:
                del self._open[member]
                self.add(endings.running(attempt, started_us, self.now_us()))

    def ended_runs(self, schedule_id: points.ScheduleId) -> tuple[activeruns.ActiveRun, ...]:
        """Return the runs of a schedule that have ended while the queue counts them as active."""
        return tuple(left.run for left in self._left if left.definition.id == schedule_id)

    async def _settle_soon(self) -> None:
        await self._clock.sleep(GATHER_SECONDS)
        self._gathering = None
        await self.flush()

    async def finish(self) -> None:
        """Settle what is left; no more endings may be added."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None  # its traceback refers to us: a cycle for each claim
        await asyncio.gather(*self._settling, return_exceptions=True)  # ``flush`` resends
        await self.flush()

    async def flush(self) -> None:
        """Settle the gathered endings; first resend an interrupted settlement under its number."""
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
        """Let slots that wait for the ended runs start; if the call fails, they check later."""
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
        """Call the queue, with retries while the claim is held; None = the claim is lost.

        If an answer is lost, the call may still have been carried out. The queue has its result
        then, and the next owner of the points finds it there.
        """
        return None if self.lost else await self._answer(call, trouble_text)

    async def _answer(
        self, call: Callable[[], Awaitable[_AnswerT]], trouble_text: str, *, last_try: float = 0.0
    ) -> _AnswerT | None:
        """Call the queue until it answers, the lease has ended, and the last try is over."""
        waits = services.backoff(first_seconds=0.05, most_seconds=1.0)
        while self._clock.monotonic() < max(last_try, self.claim.held_until):
            try:
                return await call()
            except errors.TryLater as trouble:
                if not self.cut_off:
                    shard, error = self.claim.shard, str(trouble)
                    telemetry.logger.warning(trouble_text, shard=shard, error=error)
                self.cut_off = True
                await self._clock.sleep(next(waits))
            except errors.WorldChanged as change:
                # The index was rebuilt: the claim is gone, and the rebuild arms its points again.
                telemetry.logger.warning(trouble_text, error=str(change))
                break
        # If it still holds its points, extending it would keep other workers from them.
        self.lost = True
        return None

    async def hand_over(
        self, entries: Sequence[messages.StreamEntries], ended: Sequence[Settlement]
    ) -> Handed:
        """Settle these and append their entries, both or neither; None = the claim is lost.

        If a stream refuses, returns the error of ``Settlements.deliver``: nothing was done.
        """
        async with self._turn:
            self._number += 1
            settlement = _together(ended, number=self._number)
            return await self.while_held(
                functools.partial(self._deliver, settlement, entries), "entries put off"
            )

    async def split(self, splits: Sequence[Settlement]) -> frozenset[bytes]:
        """Settle these now; return the planned slots that the claim does not hold.

        Without an answer, those are all: a chain may have moved on, and firing its slots here could
        double the next owner's.
        """
        async with self._turn:
            self._number += 1
            settlement = _together(splits, number=self._number)
            settled = await self.while_held(
                functools.partial(self._queue.settlements.settle, self.claim, settlement),
                "chains not split yet",
            )
        if settled is None or settled.lost:
            return frozenset(one.point.member for one in settlement.planned)
        return settled.not_held

    async def _deliver(
        self, settlement: Settlement, entries: Sequence[messages.StreamEntries]
    ) -> Handed:
        try:
            return await self._queue.settlements.deliver(self.claim, settlement, *entries)
        except (queue_errors.WriteRefused, queue_errors.WrongType) as refusal:
            return refusal

    async def _settle(self, settlement: Settlement) -> None:
        """Settle this; tried once more even if the claim is lost, because of its outcomes."""
        settled = await self._answer(
            functools.partial(self._settled, settlement),
            "settlement put off",
            last_try=self._clock.monotonic() + _LAST_TRY_SECONDS,
        )
        if settled is not None:
            self.lost = self.lost or settled.lost
            telemetry.given_up_total.inc(len(settlement.dead) + len(settled.buried))
        self._current = None

    async def _settled(self, settlement: Settlement) -> messages.Settled:
        await faults.reach(FaultPoint.BEFORE_SETTLEMENT)
        settled = await self._queue.settlements.settle(self.claim, settlement)
        await faults.reach(FaultPoint.AFTER_SETTLEMENT)
        return settled


class Leases:
    """Extends the leases of one worker's claims while their points are carried out.

    A lease lasts ``lease_seconds``; an attempt may take longer. A claim with unfinished points is
    extended when less than two thirds of its lease are left; one whose points are all settled
    never is. Attempts that have been in flight for long are reported beside that, so that a status
    shows them. A claim that Redis reports as lost stays lost: its attempts may end, their
    settlements write only outcomes, and no new request is sent under it. A worker without claims
    does not wake for this.
    """

    def __init__(self, queue: DelayQueue, clock: Clock, *, lease_seconds: float) -> None:
        self._queue = queue
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._kept: set[Settler] = set()
        self._is_busy = asyncio.Event()

    def keep(self, settler: Settler) -> None:
        """Extend this claim from now on."""
        self._kept.add(settler)
        self._is_busy.set()

    def end(self, settler: Settler) -> None:
        """Stop extending this claim."""
        self._kept.discard(settler)
        if not self._kept:
            self._is_busy.clear()

    async def run(self) -> None:
        """Extend leases, and report attempts that take long, until cancelled."""
        while True:
            await self._is_busy.wait()
            await self._clock.sleep(min(_LOOK_SECONDS, self._lease_seconds / 6))
            for settler in self._kept:
                settler.report_open()
            soon = self._clock.monotonic() + self._lease_seconds * 2 / 3
            ageing = [each for each in self._kept if not each.lost and each.claim.held_until < soon]
            # Concurrently: one call without an answer must not cost the other claims their leases.
            troubles = list(filter(None, await asyncio.gather(*map(self._extend, ageing))))
            if troubles:
                telemetry.logger.warning(
                    "claims not extended", claims=len(troubles), error=troubles[0]
                )

    async def _extend(self, settler: Settler) -> str | None:
        """Extend this claim; return the error, if there was one."""
        try:
            await faults.reach(FaultPoint.BEFORE_EXTENSION)
            extended = await self._queue.claims.extend(settler.claim, self._lease_seconds)
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
    """Return one settlement of all these endings."""
    settlement = Settlement(number=number)
    for ending in ended:
        settlement.add(ending)
    settlement.outcomes = run.pack(settlement.events)
    return settlement
