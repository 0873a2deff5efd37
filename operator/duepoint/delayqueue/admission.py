"""Applies concurrency policies in the queue: reads the runs, decides, writes the changes.

``admit`` is for one occurrence of a claim; ``leave`` and ``finish`` record runs that have ended
(the worker by its claim, the operator by its watch of Jobs). ``overlaps`` decides on the runs as
they were read; if another caller has changed them meanwhile, it decides again. The caller asks the
API server about Jobs; this module does not.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from duepoint import errors
from duepoint.delayqueue import activeruns, index, layouts, messages, overlaps, sharding
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.activeruns import ActiveRun, ActiveRuns, Change, Run
from duepoint.delayqueue.definitions import lanes, records
from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

#: Most attempts at one decision; each failed one means that another caller has changed the runs.
_MOST_TRIES = 1_000

DecisionT = TypeVar("DecisionT", overlaps.Answer, overlaps.Finished)


@dataclass(eq=False)
class Concurrency:
    """Decides which claimed slots may start, and records which runs are over."""

    index: index.Index
    layouts: layouts.Layouts
    #: Locks: a process makes one decision about a Schedule at a time, as two would conflict.
    _turns: weakref.WeakValueDictionary[points.ScheduleId, asyncio.Lock] = field(
        default_factory=weakref.WeakValueDictionary, init=False
    )

    async def admit(self, claim: messages.Claim, request: overlaps.Request) -> overlaps.Answer:
        """Return whether a claimed occurrence may start beside the active runs of its schedule.

        If so it counts as one of them from here on; asking again is harmless.
        """
        schedule_id = points.ScheduleId(request.member[:8])
        decided = self._decide(
            claim.shard,
            claim.lanes[schedule_id],
            schedule_id,
            functools.partial(overlaps.admit, request=request),
            id=claim.id,
            member=request.member,
            mark=request.mark,
        )
        answer = await self.layouts.unless_gone(claim.shard, decided)
        return overlaps.Answer(verdict=overlaps.Verdict.LOST) if answer is None else answer

    async def leave(
        self,
        claim: messages.Claim,
        known: definitions.Definition,
        runs: Collection[Run] = (),
        *,
        jobs: Collection[str] = (),
        look: Run | None = None,
    ) -> overlaps.Finished:
        """Record that these runs, or those of these Jobs, have ended; make waiting slots due."""
        decide = functools.partial(
            overlaps.finish, version=known.timing_version, ended=runs, jobs=jobs, look=look
        )
        decided = self._decide(claim.shard, claim.lanes[known.id], known.id, decide)
        finished = await self.layouts.unless_gone(claim.shard, decided)
        return overlaps.Finished() if finished is None else finished

    async def finish(
        self,
        known: definitions.Definition,
        jobs: Collection[str],
        *,
        every: bool = False,
    ) -> overlaps.Finished:
        """Record, without a claim, that these Jobs have ended; make waiting slots due.

        ``every``: there is room for more than these, so make all waiting slots due.
        """
        removed = called = 0
        decide = functools.partial(
            overlaps.finish, version=known.timing_version, jobs=jobs, every=every
        )
        for shard in sharding.homes(known.id, self.index.known_layout()):
            try:
                lane = lanes.of_schedule(known.namespace, known.owner)
                found = await self._decide(shard, lane, known.id, decide)
                removed, called = removed + found.removed, called + found.called
            except queue_errors.LayoutChanged:
                if shard == sharding.home(known.id, await self.layouts.read()):
                    raise  # otherwise it is a former shard that is closed
        return overlaps.Finished(removed=removed, called=called)

    async def _decide(
        self,
        shard: messages.ShardId,
        lane: str,
        schedule_id: points.ScheduleId,
        decide: Callable[[ActiveRuns], DecisionT],
        **asked: object,
    ) -> DecisionT:
        """Read the runs, decide, store the change; start over if another caller was faster.

        Args:
            asked: of one claimed occurrence: the claim, which must hold it, its member, and the
                mark of the state that the runs must be complete for.
        """

        def call() -> scripting.ScriptCall:
            names = self.index.shard(shard)
            keys = names.lane(lane), names.active(schedule_id)
            return self.index.call(
                "activeruns", shard, *keys, lane=lane, schedule=schedule_id, **asked
            )

        turn = self._turns.setdefault(schedule_id, asyncio.Lock())
        async with turn:
            _, *found = await self.index.pipelined.run(call())
            for _ in range(_MOST_TRIES):
                known = _read(*found)
                decision = decide(known)
                if decision.change is None or decision.change.is_empty(known):
                    return decision
                changing = call()
                _put_change(changing, known, decision.change)
                is_changed, *found = await self.index.pipelined.run(changing)
                if is_changed:
                    return decision
        raise errors.TryLater("other callers keep changing the runs of this schedule")


def _put_change(call: scripting.ScriptCall, known: ActiveRuns, change: Change) -> None:
    put = [one for run, one in change.runs.items() if known.runs.get(run) != one]
    call.put(
        stamp=activeruns.new_stamp(change.mark),
        before=known.stamp,
        gone=call.run(run for run in known.runs if run not in change.runs),
        put=call.run(each for one in put for each in (one.run, one.value)),
        hasten=call.run(change.due),
    )
    if (waiting := change.waiting) is not None:
        call.put(queued=waiting.point.member, due=records.checked_due(waiting.point.due_us))
        if waiting.point.kind is points.PointKind.QUEUED:  # other kinds keep their own
            call.put(record=records.pack(waiting.record))


def _read(
    now_us: bytes, history: bytes, held: int, runs: Sequence[bytes], tried: Sequence[bytes]
) -> ActiveRuns:
    found = scripting.fields(runs)
    return ActiveRuns(
        now_us=int(now_us),
        history=history.decode(),
        stamp=found.pop(b"", b""),
        runs={Run(run): ActiveRun(run=Run(run), value=value) for run, value in found.items()},
        tried={
            activeruns.run_of(member): activeruns.Tried(member=member, due_us=due_us)
            for member, due_us in scripting.scored(tried)
            if member[12] in points.TRIED_KINDS
        },
        is_held=bool(held),
    )
