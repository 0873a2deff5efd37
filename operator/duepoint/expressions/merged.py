"""Several expressions as one; times that coincide count once.

next and previous are the nearest of the members' answers. Counting is the hard question. Cron
members that share zone and daylight-saving behaviour are joined beforehand (union.py) and periods
that only repeat a shorter one are left out, so what remains is rarely more than one part. Among
parts, the one with most slots is counted by arithmetic and the slots of the others are looked up
in it one by one: always exact, and as slow as the second busiest part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duepoint.expressions import cron, every, expression, union, zoned


@dataclass(frozen=True, slots=True)
class Merged:
    """The union of the members' slots.

    Attributes:
        members: what the user wrote, for the words.
        parts: the same slots in as few pieces as possible, for the answers.
    """

    members: tuple[expression.Expression, ...]
    parts: tuple[expression.Slots, ...]

    def next_after(self, instant_us: int) -> int | None:
        slots_us = [part.next_after(instant_us) for part in self.parts]
        return min((slot_us for slot_us in slots_us if slot_us is not None), default=None)

    def previous_before(self, instant_us: int) -> int | None:
        slots_us = [part.previous_before(instant_us) for part in self.parts]
        return max((slot_us for slot_us in slots_us if slot_us is not None), default=None)

    def count_between(self, after_us: int, through_us: int) -> int:
        counted = [(part.count_between(after_us, through_us), part) for part in self.parts]
        counted.sort(key=lambda pair: pair[0], reverse=True)
        busier = [counted[0][1]]
        total = counted[0][0]
        for count, part in counted[1:]:
            total += count - _shared(part, busier, after_us, through_us)
            busier.append(part)
        return total

    def describe(self) -> str:
        return "; ".join(member.describe() for member in self.members)


def merged(expressions: Sequence[expression.Expression]) -> expression.Expression:
    """One expression for all; the only one itself when there is one.

    Raises:
        ValueError: there is none.
    """
    distinct = tuple(dict.fromkeys(expressions))
    if not distinct:
        raise ValueError("there is no expression to merge")
    if len(distinct) == 1:
        return distinct[0]
    return Merged(distinct, tuple(_parts(distinct)))


def _shared(
    part: expression.Slots, busier: list[expression.Slots], after_us: int, through_us: int
) -> int:
    """How many slots of the part are slots of a busier one, too."""
    count = 0
    slot_us = part.next_after(after_us)
    while slot_us is not None and slot_us <= through_us:
        count += any(other.next_after(slot_us - 1) == slot_us for other in busier)
        slot_us = part.next_after(slot_us)
    return count


def _parts(members: Iterable[expression.Expression]) -> list[expression.Slots]:
    periods: list[every.Every] = []
    alike: dict[int, list[cron.Cron]] = {}  # by identity of the stretches, which dst.py shares
    parts: list[expression.Slots] = []
    for member in members:
        if isinstance(member, cron.Cron):
            alike.setdefault(id(member.stretches), []).append(member)
        elif isinstance(member, every.Every):
            periods.append(member)
        else:
            parts.append(member)
    parts += [_joined(crons) for crons in alike.values()]
    return parts + _without_repeats(periods)


def _joined(crons: Sequence[cron.Cron]) -> expression.Slots:
    if len(crons) == 1:
        return crons[0]
    return zoned.Zoned(union.Union([each.pattern for each in crons]), crons[0].stretches)


def _without_repeats(periods: Sequence[every.Every]) -> list[every.Every]:
    """The periods whose slots are not all among those of a shorter one."""
    kept: list[every.Every] = []
    for period in sorted(periods, key=lambda each: (each.period_us, each.anchor_us)):
        if not any(_repeats(period, shorter) for shorter in kept):
            kept.append(period)
    return kept


def _repeats(longer: every.Every, shorter: every.Every) -> bool:
    distance_us = longer.anchor_us - shorter.anchor_us
    return (
        distance_us >= 0
        and distance_us % shorter.period_us == 0
        and longer.period_us % shorter.period_us == 0
    )
