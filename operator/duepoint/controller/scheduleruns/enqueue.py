"""Slots of a ScheduleRun enqueued, and withdrawn again when the ScheduleRun is deleted.

An enqueued slot is an occurrence that is due at once and carries the ScheduleRun's uid and
overrides; enqueued again while it waits, it is the same occurrence. After a call without an answer
it is unknown whether its slots are in the queue: they are enqueued again only after an inventory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import msgspec

from duepoint import errors
from duepoint.controller.scheduleruns import runstatus
from duepoint.controller.scheduleruns.inventory import HeldOccurrence
from duepoint.controller.scheduleruns.runstate import ScheduleRunState
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.runs.progress import Standing
from duepoint.runs.run import RunEvent
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.manualruns import Backfill, Trigger, Wanted

#: Enqueued with one script.
_TOGETHER = 100


class Enqueuer:
    """Enqueues and withdraws for the leader of one term."""

    def __init__(self, queue: DelayQueue, epoch: messages.Epoch) -> None:
        self._queue = queue
        self._epoch = epoch

    async def enqueue(self, run: ScheduleRunState, slots_us: list[int]) -> Exception | None:
        """Every slot is in the queue, still wanted, or unknown; the trouble that was met."""
        for first in range(0, len(slots_us), _TOGETHER):
            trouble = await self._enqueue_part(run, slots_us[first : first + _TOGETHER])
            if trouble is not None:
                return trouble  # later slots of the requested order must not go first
        return None

    async def _enqueue_part(self, run: ScheduleRunState, slots_us: list[int]) -> Exception | None:
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
                    self._record(known, wanted, run.seen.uid, slot_us),
                )
                for slot_us in slots_us
            ]
            await self._queue.occurrences.enqueue_many(known, occurrences, self._epoch)
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
        self, known: Definition, wanted: Wanted, run_uid: str, slot_us: int
    ) -> messages.OccurrenceRecord:
        record = messages.OccurrenceRecord(trigger=wanted.trigger, run_uid=run_uid)
        if not isinstance(wanted.slots, Trigger):
            return record
        record = dataclasses.replace(record, concurrency=wanted.slots.concurrency)
        payload = wanted.slots.payload
        if not payload:
            return record
        sealed = records.sealed(record, known.uid, slot_us, payload)
        seal = self._queue.definitions.digest(known.namespace, sealed)
        return dataclasses.replace(record, payload=payload, seal=seal)

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
        return tuple(
            [
                one
                for one in held
                if await self._queue.occurrences.withdraw(one.known, one.point, self._epoch)
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
    return runstatus.refused(Reason.TOO_MANY_SLOTS, said)


def for_slot(event: RunEvent, slot_us: int) -> RunEvent:
    """The event with the slot that is known here; a Job's annotation may say another."""
    if event.slot_us == slot_us:
        return event
    return msgspec.structs.replace(event, slot_us=slot_us)
