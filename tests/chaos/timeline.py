"""The slots of an object: those that must run, those that may, and those that must not.

The wishes of an object with the same timing make a *segment*. It becomes current at some instant
between its wish and the first status that calls it ``Ready``. A slot is *required* if it is due
while its segment is certainly current and nothing replaces it before the slot must have run;
*allowed* if it is due while the segment may be current; and forbidden otherwise. The oracle of
the simulator, ``tests.simulation.slots``, enumerates the slots here, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.history import Wish
from tests.chaos.windows import Disturbances
from tests.simulation import segments, slots


@dataclass(slots=True)
class Timeline:
    """The timeline of one object.

    Attributes:
        required, allowed: slot -> when it is due.
        specs: allowed slot -> its spec.
    """

    wishes: Sequence[Wish]
    required: dict[int, int] = field(default_factory=dict)
    allowed: dict[int, int] = field(default_factory=dict)
    specs: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def is_off(self, slot_us: int) -> bool:
        """Whether the newest wish before this slot wants nothing to run."""
        before = [one for one in self.wishes if one.at_us <= slot_us]
        return bool(before) and (before[-1].spec is None or bool(before[-1].spec.get("suspend")))

    @property
    def is_untouched(self) -> bool:
        """Whether the object was written only once."""
        return len(self.wishes) == 1


def of(
    wishes: Sequence[Wish], disturbances: Disturbances, namespace: str, until_us: int
) -> Timeline:
    """Return the timeline of an object.

    Args:
        wishes: those of this object, in order.
        until_us: slots that must have run only after this are not required.
    """
    found = Timeline(wishes)
    for segment in _segments(wishes, disturbances):
        if not segment.runs:
            continue
        first = segment.wishes[0]
        begin_us = segment.begin_us
        if not is_member(first) and not any(
            wish.ready_us for wish in wishes[: wishes.index(first)]
        ):
            begin_us = first.created_us  # no operator saw an earlier edit: it applies from then
        listed = slots.slots_of(segment.spec, first.created_us, until_us)
        for slot, following in itertools.zip_longest(listed, listed[1:]):
            due = slot + slots.jitter_us(segment.spec, namespace, first.name, slot, following)
            last = segment.latest_end_us + disturbances.lateness_us
            if slot < begin_us // slots.S * slots.S or due > last:
                continue
            found.allowed.setdefault(slot, due)
            found.specs[slot] = segment.spec
            by_us = disturbances.latest_us(due)
            if slot > segment.latest_begin_us and by_us < min(segment.end_us, until_us):
                found.required[slot] = due
    return found


def _segments(wishes: Sequence[Wish], disturbances: Disturbances) -> list[segments.Segment[Wish]]:
    def begun_by(wish: Wish, is_first: bool) -> int:
        is_of_object = is_first and not is_member(wish)
        return wish.created_us if is_of_object else _seen(wish, disturbances)

    return segments.segments(
        wishes,
        is_job=lambda wish: wish.target == "job",
        begun_by=begun_by,
        seen_by=lambda wish: _seen(wish, disturbances),
    )


def is_member(wish: Wish) -> bool:
    """Whether it is a set's member, which lives in Redis alone and begins when its row is read."""
    return "/" in wish.uid and not wish.uid.startswith("run/")


def _seen(wish: Wish, disturbances: Disturbances) -> int:
    """Return from when on it is certainly current."""
    seen = wish.ready_us or disturbances.seen_by_us(wish.returned_us)
    return disturbances.remembered_us(seen)
