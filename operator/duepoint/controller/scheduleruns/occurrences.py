"""The slots of ScheduleRuns in the queue: found, enqueued, and withdrawn again.

An enqueued slot is an occurrence that is due at once and carries the ScheduleRun's uid and
overrides; enqueued again while it waits, it is the same occurrence. After a call without an answer
it is unknown whether its slots are in the queue: they are enqueued again only after an inventory.

A leader that did not enqueue a slot itself, or got no answer when it did, finds the slot only by
looking, in this order: the occurrences in the queue, then every outcome reported so far, then the
ScheduleRuns with their published statuses, and at last the Jobs. A slot that is in none of them was
never enqueued, or was lost with the index, and may be enqueued (again). In any other order a slot
that ends meanwhile is seen in neither place, and would run twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from duepoint import errors, faults
from duepoint.controller import inventory
from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import runstatus
from duepoint.controller.scheduleruns.runstate import ScheduleRunState, Withdrawn
from duepoint.controller.scheduleruns.runstates import TOMBSTONES, ScheduleRunStates
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.faults import FaultPoint
from duepoint.runs.progress import Standing
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.manualruns import Backfill, Trigger, Wanted
from duepoint.schedules.points import DuePoint, PointKind


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOccurrence:
    """An occurrence in the queue that belongs to a ScheduleRun."""

    run_uid: str
    slot_us: int
    kind: PointKind
    known: Definition

    @property
    def point(self) -> DuePoint:
        return points.manual(self.known.id, self.slot_us, self.run_uid, self.kind)


def withdrawn(held: HeldOccurrence, now_us: int) -> RunEvent:
    """The end of a slot that waited for its next attempt when its ScheduleRun was deleted."""
    known = held.known
    return RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=held.slot_us,
        trigger=held.kind.name.title(),
        state=RunState.FAILED,
        reason=Reason.DELETED,
        at_us=now_us,
        message="its ScheduleRun was deleted before the delivery was accepted",
        finished_us=now_us,
        run_uid=held.run_uid,
    )


async def read(queue: DelayQueue) -> dict[str, list[HeldOccurrence]]:
    """All occurrences of ScheduleRuns, by the uid of these; raises QueueUnavailable."""
    by_run: dict[str, list[HeldOccurrence]] = {}
    async for _, occurrence, known in inventory.occurrences(queue, points.RUN_KINDS):
        run_uid = occurrence.record.run_uid
        held = HeldOccurrence(
            run_uid=run_uid, slot_us=occurrence.slot_us, kind=occurrence.kind, known=known
        )
        by_run.setdefault(run_uid, []).append(held)
    return by_run


#: Enqueued with one script.
_TOGETHER = 100


class Enqueuer:
    """Enqueues and withdraws for the leader of one term."""

    def __init__(self, term: TermContext) -> None:
        self._term = term

    async def enqueue(
        self, run: ScheduleRunState, slots_us: list[int], payload: bytes | None = None
    ) -> Exception | None:
        """Every slot is in the queue, still wanted, or unknown; the trouble that was met.

        Args:
            payload: of the trigger; None = the one that is kept.
        """
        for first in range(0, len(slots_us), _TOGETHER):
            trouble = await self._enqueue_part(run, slots_us[first : first + _TOGETHER], payload)
            if trouble is not None:
                return trouble  # later slots of the requested order must not go first
        return None

    async def _enqueue_part(
        self, run: ScheduleRunState, slots_us: list[int], payload: bytes | None
    ) -> Exception | None:
        known, wanted = run.known, run.wanted
        assert known is not None and wanted is not None  # noqa: S101, PT018
        opened = [run.course.open[slot_us] for slot_us in slots_us]
        for slot in opened:
            # Enqueued before the answer is here, because its end may be reported sooner.
            slot.standing = Standing.HANDED
        try:
            occurrences = [
                (
                    points.manual(known.id, slot_us, run.seen.uid, wanted.kind),
                    self._record(known, wanted, run.seen.uid, slot_us, payload),
                )
                for slot_us in slots_us
            ]
            await faults.reach(FaultPoint.BEFORE_RUNS_ENQUEUED)
            await self._term.queue.occurrences.enqueue_many(known, occurrences, self._term.epoch)
            await faults.reach(FaultPoint.AFTER_RUNS_ENQUEUED)
        except (queue_errors.Fenced, queue_errors.LayoutChanged):
            raise
        except errors.WorldChanged as gone:
            for slot in opened:
                slot.standing = Standing.WANTED
            return gone
        except errors.TryLater as trouble:
            for slot in opened:
                slot.standing = Standing.UNKNOWN
            return trouble
        return None

    def _record(
        self,
        known: Definition,
        wanted: Wanted,
        run_uid: str,
        slot_us: int,
        payload: bytes | None,
    ) -> messages.OccurrenceRecord:
        record = messages.OccurrenceRecord(trigger=wanted.trigger, run_uid=run_uid)
        if not isinstance(wanted.slots, Trigger):
            return record
        record = msgspec.structs.replace(record, concurrency=wanted.slots.concurrency)
        if payload is None:
            assert not wanted.slots.is_payload_apart  # noqa: S101 - its own would be lost
            payload = wanted.slots.payload
        if not payload:
            return record
        signed = records.signed_content(record, known.uid, slot_us, payload)
        signature = self._term.queue.signed_blobs.digest(known.namespace, signed)
        return msgspec.structs.replace(record, payload=payload, signature=signature)

    async def withdraw(self, run: ScheduleRunState) -> tuple[HeldOccurrence, ...]:
        """No open slot of it is in the queue any more; those that waited there.

        Jobs that run, and what a worker has claimed, are left alone.
        """
        known, wanted = run.known, run.wanted
        if known is None or wanted is None:
            return ()
        run_uid, kind = run.seen.uid, wanted.kind
        open_slots = [
            HeldOccurrence(run_uid=run_uid, slot_us=slot_us, kind=kind, known=known)
            for slot_us in run.course.open
        ]
        return await self.withdraw_all(open_slots)

    async def withdraw_all(self, held: Iterable[HeldOccurrence]) -> tuple[HeldOccurrence, ...]:
        """None of these is in the queue any more; those that waited there."""
        await faults.reach(FaultPoint.BEFORE_RUN_WITHDRAWN)
        return tuple(
            [
                one
                for one in held
                if await self._term.queue.occurrences.withdraw(
                    one.known, one.point, self._term.epoch
                )
                is messages.Armed.APPLIED
            ]
        )


def refusal(run: ScheduleRunState) -> runstatus.RunVerdict | None:
    """The refusal of a range with too many slots; nothing of it is started."""
    wanted, planned = run.wanted, run.planned
    if wanted is None or planned is None or not isinstance(wanted.slots, Backfill):
        return None
    limit = wanted.slots.limit
    if run.course.opened or planned <= limit:
        return None
    said = (
        f"the range holds {planned} slots and spec.backfill.limit allows {limit}, so nothing was "
        "started; write a shorter range, or a limit of up to 10000"
    )
    return runstatus.failed(Reason.INVALID_SPEC, said)


#: Reads the definition in the queue of a Schedule (uid, namespace); raises QueueUnavailable.
Definitions = Callable[[str, str], Awaitable[Definition | None]]


@dataclass(slots=True)
class _Leaving:
    """A deleted Schedule.

    Attributes:
        withdrawn: its occurrences of ScheduleRuns, by the uid of that and the slot.
        is_complete: whether these are all that the queue held.
    """

    withdrawn: dict[tuple[str, int], Withdrawn] = field(default_factory=dict)
    is_complete: bool = False


class LeavingSchedules:
    """Schedules that leave the queue or have left it, by uid; one for each term.

    The occurrences of ScheduleRuns leave before their Schedule does. Each is withdrawn by itself,
    because the queue then says whether a worker held it; the ScheduleRuns that began with the
    Schedule account for their slots by that (``orphaned``).
    """

    def __init__(
        self, term: TermContext, *, definitions: Definitions, states: ScheduleRunStates
    ) -> None:
        self._term = term
        self._definitions = definitions
        self._states = states
        self._leaving: OrderedDict[str, _Leaving] = OrderedDict()

    def __contains__(self, schedule_uid: str) -> bool:
        return schedule_uid in self._leaving

    def restored(self, schedule_uid: str) -> None:
        """The Schedule was not deleted after all, or was restored."""
        self._leaving.pop(schedule_uid, None)

    def withdrawn(self, schedule_uid: str, run_uid: str) -> dict[int, Withdrawn] | None:
        """The occurrences of a ScheduleRun by slot; None where some may be left in the queue."""
        leaving = self._leaving.get(schedule_uid)
        if leaving is None or not leaving.is_complete:
            return None
        return {
            slot_us: withdrawn
            for (uid, slot_us), withdrawn in leaving.withdrawn.items()
            if uid == run_uid
        }

    async def leave(self, seen: Observed) -> None:
        """Withdraw what the queue holds of it; raises QueueUnavailable, a repeat continues."""
        leaving = self._leaving.setdefault(seen.uid, _Leaving())
        if len(self._leaving) > TOMBSTONES:
            self._leaving.popitem(last=False)
        named = self._states.of_schedule(seen.namespace, seen.name)
        begun = [run for run in named if run.begins_with == seen.uid]
        if self._states.is_complete and not begun:
            return
        for run in begun:
            async with run.enqueuing:  # slots that are being enqueued now are in the queue, or not
                pass
        known = await self._definitions(seen.uid, seen.namespace)
        if known is not None:
            await self._withdraw_all(known, leaving)

    async def _withdraw_all(self, known: Definition, leaving: _Leaving) -> None:
        for shard in sharding.homes(known.id, self._term.queue.layouts.known()):
            async for occurrence in self._term.queue.occurrences.all_occurrences(
                shard, of=known.id
            ):
                if occurrence.kind not in points.RUN_KINDS:
                    continue
                record, slot_us = occurrence.record, occurrence.slot_us
                key = record.run_uid, slot_us
                # Where the answer is lost, or it has just ended, a worker may have held it.
                leaving.withdrawn[key] = Withdrawn(is_held=True, attempts=record.attempt)
                point = points.manual(known.id, slot_us, record.run_uid, occurrence.kind)
                armed = await self._term.queue.occurrences.withdraw(known, point, self._term.epoch)
                if armed is messages.Armed.APPLIED:
                    leaving.withdrawn[key] = Withdrawn(is_held=False, attempts=record.attempt)
        leaving.is_complete = True
