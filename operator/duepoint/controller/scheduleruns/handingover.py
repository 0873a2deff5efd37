"""Slots of a ScheduleRun brought into the queue, and taken out again when nobody wants them.

A slot that is handed over becomes an occurrence that is due at once and carries the ScheduleRun's
uid and overrides; asked for again while it waits it is the same occurrence. A call without an
answer leaves its slot in doubt: it is asked for again only after a survey.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import msgspec

from duepoint import errors
from duepoint.controller.scheduleruns import runstatus
from duepoint.controller.scheduleruns.runline import Line
from duepoint.controller.scheduleruns.runsurvey import Held
from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.wire import scripting
from duepoint.runs.course import Standing
from duepoint.runs.run import RunEvent
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.manualruns import Backfill, Trigger, Wanted

#: Handed over with one script.
_TOGETHER = 100


class HandingOver:
    """Performs hand-overs for the leader of one term."""

    def __init__(self, queue: DelayQueue, epoch: messages.Epoch) -> None:
        self._queue = queue
        self._epoch = epoch

    async def hand_over(self, line: Line, slots_us: list[int]) -> Exception | None:
        """Every slot is in the queue, still wanted, or in doubt; the trouble that was met."""
        for first in range(0, len(slots_us), _TOGETHER):
            trouble = await self._part(line, slots_us[first : first + _TOGETHER])
            if trouble is not None:
                return trouble  # what comes later in the order asked for does not go first
        return None

    async def _part(self, line: Line, slots_us: list[int]) -> Exception | None:
        known, wanted = line.known, line.wanted
        assert known is not None and wanted is not None  # noqa: S101, PT018
        opened = [line.course.open[slot_us] for slot_us in slots_us]
        for one in opened:
            # Handed over before the answer is here, because its end may be told sooner.
            one.standing = Standing.HANDED
        try:
            handed = [
                (
                    points.manual(known.id, slot_us, line.seen.uid, wanted.kind),
                    self._record(known, wanted, line.seen.uid, slot_us),
                )
                for slot_us in slots_us
            ]
            await self._queue.occurrences.enqueue_many(known, handed, self._epoch)
        except (scripting.Fenced, scripting.LayoutChanged):
            raise
        except errors.WorldChanged as gone:
            for one in opened:
                one.standing = Standing.WANTED
            return gone
        except errors.TryLater as trouble:
            for one in opened:
                one.standing = Standing.UNKNOWN
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

    async def withdraw(self, line: Line) -> tuple[Held, ...]:
        """No open slot of it is in the queue any more; those that waited there.

        Jobs that run, and what a worker has in hand, are left alone.
        """
        known, wanted = line.known, line.wanted
        if known is None or wanted is None:
            return ()
        run_uid, kind = line.seen.uid, wanted.kind
        open_slots = [
            Held(run_uid=run_uid, slot_us=slot_us, kind=kind, known=known)
            for slot_us in line.course.open
        ]
        return await self.withdraw_all(open_slots)

    async def withdraw_all(self, held: Iterable[Held]) -> tuple[Held, ...]:
        """None of these is in the queue any more; those that waited there."""
        return tuple(
            [
                one
                for one in held
                if await self._queue.occurrences.withdraw(one.known, one.point, self._epoch)
                is messages.Armed.APPLIED
            ]
        )


def refusal(line: Line) -> runstatus.Verdict | None:
    """What is said of a range with too many slots; nothing of it is started."""
    wanted, planned = line.wanted, line.planned
    if wanted is None or planned is None or not isinstance(wanted.slots, Backfill):
        return None
    limit = wanted.slots.limit
    if line.course.opened or planned <= limit:
        return None
    said = (
        f"the range holds {planned} slots and spec.backfill.limit allows {limit}, so nothing was "
        "started; write a shorter range, or a limit of up to 10000"
    )
    return runstatus.refused(Reason.TOO_MANY_SLOTS, said)


def of_slot(event: RunEvent, slot_us: int) -> RunEvent:
    """The event under the slot that is known here; a Job's annotation may say another."""
    if event.slot_us == slot_us:
        return event
    return msgspec.structs.replace(event, slot_us=slot_us)
