"""How many regular slots of a schedule with ``maxRuns`` may still be tried.

A definition counts the slots that have started; a slot that is under way and has not started (a Job
under a quota, a slot that waits) has a run set aside for it, and gets it back when it ends without
one. So no more than ``maxRuns`` ever start, and none is lost to a slot that was missed: while every
run is taken or set aside, further slots are skipped. ``left`` reads, ``within`` decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from duepoint.delayqueue import messages, sharding
from duepoint.runs import outcome as outcomes
from duepoint.schedules import definition as definitions
from duepoint.schedules import points, policies

if TYPE_CHECKING:  # `duepoint simulate` decides without a server and does not load its library
    from duepoint.delayqueue.delayqueue import DelayQueue

#: Slots that overdue chains of one claim become, all together: a claim is extended and given back
#: by one script, which takes the server some 3 us for each of its points.
MOST_PLANNED = 500

#: Runs that may be begun, by schedule; one without a limit is not in it.
RunsLeft = Mapping[points.ScheduleId, int]

_REGULAR = frozenset({points.PointKind.RETRY, points.PointKind.PLANNED, points.PointKind.QUEUED})


async def left(
    queue: DelayQueue, claim: messages.Claim, found: messages.FoundDefinitions
) -> RunsLeft:
    """For the claimed chains of limited schedules; ``found`` has their newest counts afterwards.

    The count is read again after the slots under way: one that starts in between is so counted
    twice, for the moment, and never not at all. Raises QueueUnavailable and WorldChanged.
    """
    limited = [
        point.schedule_id
        for point in claim.points
        if point.kind is points.PointKind.CHAIN and is_limited(found.get(point.schedule_id))
    ]
    if not limited:
        return {}
    begun = dict.fromkeys(limited, 0)  # regular slots under way that have not started
    for known in map(found.__getitem__, begun):
        for shard in sharding.homes(known.id, queue.layouts.known()):
            async for one in queue.occurrences.all_occurrences(shard, of=known.id):
                has_begun = has_started(known, one.record.first_try_us)
                begun[known.id] += one.kind in _REGULAR and not has_begun
    found.update(await queue.definitions.read_definitions(claim.shard, limited))
    still = [one for one in limited if is_limited(found[one])]
    return {one: max(0, (found[one].runs_left or 0) - begun[one]) for one in still}


def is_limited(known: definitions.Definition | None) -> bool:
    """Whether its runs are counted."""
    return known is not None and known.runs_left is not None


def has_started(known: definitions.Definition, first_try_us: int) -> bool:
    """Whether a slot under way has: a Job starts with its Job, all else with the first try."""
    return first_try_us > 0 and not known.rule.whole_seconds


def starts(known: definitions.Definition, first_try_us: int, answer: outcomes.Outcome) -> bool:
    """Whether a slot has started by this answer, and had not before."""
    if isinstance(answer, outcomes.Delivered):
        return not has_started(known, first_try_us)
    return answer.started and not known.rule.whole_seconds and not first_try_us


def within(
    decision: policies.Decision, runs_left: int | None
) -> tuple[policies.Decision, tuple[policies.Chosen, ...]]:
    """The decision as far as runs are left, and what is skipped for want of them."""
    surplus = () if runs_left is None else decision.run[runs_left:]
    if not surplus:
        return decision, ()
    return dataclasses.replace(decision, run=decision.run[:runs_left]), surplus


def most_planned(claim: messages.Claim) -> int:
    """How many slots each overdue chain of a claim may become; then it is due again at once."""
    return max(1, MOST_PLANNED // len(claim.points))
