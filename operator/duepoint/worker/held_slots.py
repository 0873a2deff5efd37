"""On a server that went back: what becomes of slots that waited, once they were compared. Pure.

A chain that is due by the suspect instant is moved on to its first slot after it, and a *held*
point stays beside it in the name of the slots in between. Nothing of them is fired or judged before
the leader has compared them with what it knows. A held point that comes back from there is a chain
with an end: its slots are judged as of the suspect instant, the first at which they could be
looked at.
"""

from __future__ import annotations

import dataclasses
import functools

from duepoint.delayqueue import messages
from duepoint.schedules import policies
from duepoint.schedules import rule as rules
from duepoint.schedules.slots import Slots


def judged(
    timeline: Slots, policy: rules.Policy, record: messages.OccurrenceRecord, first_us: int
) -> policies.Decision:
    """What becomes of the slots from ``first_us`` on; ``following`` is none of the point's."""
    decide = functools.partial(policies.decide, timeline, policy, now_us=record.back_us)
    made = decide(chain_due_us=timeline.due_slot(first_us).due_us)
    missed = made.missed
    if missed and record.settled_us >= first_us:  # these have ended once already
        rest = timeline.next_after(record.settled_us)
        is_due = rest is not None and rest.due_us <= record.back_us
        missed = decide(chain_due_us=rest.due_us).missed if rest and is_due else ()
    run = tuple(one for one in made.run if one.slot_us not in record.ended_us)
    not_missed = set(record.ended_us) - {one.slot_us for one in made.run}
    return dataclasses.replace(made, run=run, missed=_without(missed, not_missed))


def _without(
    missed: tuple[policies.Missed, ...], ended_us: set[int]
) -> tuple[policies.Missed, ...]:
    """Groups of missed slots, oldest first, less those that have ended otherwise."""
    left = []
    for group in missed:
        among = {slot_us for slot_us in ended_us if slot_us <= group.newest_us}
        ended_us = ended_us - among
        if group.count > len(among):
            left.append(dataclasses.replace(group, count=group.count - len(among)))
    return tuple(left)
