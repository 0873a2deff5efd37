"""Deleted Schedules: the occurrences of ScheduleRuns leave the queue before their Schedule does.

Each occurrence is withdrawn by itself, because the queue then says whether a worker held it; the
ScheduleRuns that began with the Schedule account for their slots by that (``orphaned``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns.runstate import Withdrawn
from duepoint.controller.scheduleruns.runstates import TOMBSTONES, ScheduleRunStates
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.schedules import points
from duepoint.schedules.definition import Definition

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
    """Schedules that leave the queue or have left it, by uid; one for each term."""

    def __init__(
        self,
        *,
        queue: DelayQueue,
        definitions: Definitions,
        epoch: messages.Epoch,
        states: ScheduleRunStates,
    ) -> None:
        self._queue = queue
        self._definitions = definitions
        self._epoch = epoch
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
        for shard in sharding.homes(known.id, self._queue.layouts.known()):
            async for occurrence in self._queue.occurrences.all_occurrences(shard, of=known.id):
                if occurrence.kind not in points.RUN_KINDS:
                    continue
                record, slot_us = occurrence.record, occurrence.slot_us
                key = record.run_uid, slot_us
                # Where the answer is lost, or it has just ended, a worker may have held it.
                leaving.withdrawn[key] = Withdrawn(is_held=True, attempts=record.attempt)
                point = points.manual(known.id, slot_us, record.run_uid, occurrence.kind)
                armed = await self._queue.occurrences.withdraw(known, point, self._epoch)
                if armed is messages.Armed.APPLIED:
                    leaving.withdrawn[key] = Withdrawn(is_held=False, attempts=record.attempt)
        leaving.is_complete = True
