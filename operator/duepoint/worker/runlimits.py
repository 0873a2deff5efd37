"""Limits the regular slots of a schedule with ``maxRuns``.

A definition counts the slots that have started. A slot in flight that has not started (a Job under
a quota, a slot that waits) reserves a run, and frees it if it ends without starting. So no more
than ``maxRuns`` ever start, and a missed slot uses up none. While every run is used or reserved,
further slots are skipped. ``left`` reads, ``within`` decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from duepoint.delayqueue import messages, sharding
from duepoint.schedules import definition as definitions
from duepoint.schedules import points, policies
from duepoint.targets import outcome as outcomes

if TYPE_CHECKING:  # `duepoint simulate` decides without a server and does not load its library
    from duepoint.delayqueue.delayqueue import DelayQueue

#: Most slots that the overdue chains of one claim become in all: one script extends or releases a
#: claim, which takes the server some 3 us for each of its points.
MOST_PLANNED = 500

#: Runs that may still begin, by schedule; only schedules with a limit.
RunsLeft = Mapping[points.ScheduleId, int]

_REGULAR = frozenset({points.PointKind.RETRY, points.PointKind.PLANNED, points.PointKind.QUEUED})


async def left(
    queue: DelayQueue, claim: messages.Claim, found: messages.FoundDefinitions
) -> RunsLeft:
    """Return the runs left to claimed chains of limited schedules; update counts in ``found``.

    The counts are read after the slots in flight, so a slot that starts in between is counted twice
    for the moment, and never missed. Raises QueueUnavailable and WorldChanged.
    """
    limited = [
        point.schedule_id
        for point in claim.points
        if point.kind is points.PointKind.CHAIN and is_limited(found.get(point.schedule_id))
    ]
    if not limited:
        return {}
    begun = dict.fromkeys(limited, 0)  # regular slots in flight that have not started
    for known in map(found.__getitem__, begun):
        for shard in sharding.homes(known.id, queue.layouts.known()):
            async for point, record in queue.occurrences.all_occurrences(shard, of=known.id):
                has_begun = has_started(known, record.first_try_us)
                begun[known.id] += point.kind in _REGULAR and not has_begun
    found.update(await queue.definitions.read_definitions(claim.shard, limited))
    still = [one for one in limited if is_limited(found[one])]
    return {one: max(0, (found[one].runs_left or 0) - begun[one]) for one in still}


def is_limited(known: definitions.Definition | None) -> bool:
    """Whether the runs of this definition are limited, and so counted."""
    return known is not None and known.runs_left is not None


def has_started(known: definitions.Definition, first_try_us: int) -> bool:
    """Whether a slot in flight has started: a Job's cannot have, others start at the first try."""
    return first_try_us > 0 and not known.rule.whole_seconds


def starts(known: definitions.Definition, first_try_us: int, answer: outcomes.Outcome) -> bool:
    """Whether this answer means that the slot has started, and it had not before."""
    if isinstance(answer, outcomes.Delivered):
        return not has_started(known, first_try_us)
    return answer.started and not known.rule.whole_seconds and not first_try_us


def within(
    decision: policies.Decision, runs_left: int | None
) -> tuple[policies.Decision, tuple[policies.Chosen, ...]]:
    """Return the decision limited to the runs that are left, and the slots that it skips."""
    surplus = () if runs_left is None else decision.run[runs_left:]
    if not surplus:
        return decision, ()
    return dataclasses.replace(decision, run=decision.run[:runs_left]), surplus


def most_planned(claim: messages.Claim) -> int:
    """Return how many slots each overdue chain may become before it is due again at once."""
    return max(1, MOST_PLANNED // len(claim.points))
