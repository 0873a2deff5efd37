"""Several expressions as one; times that coincide count once.

next and previous are the nearest of the members' answers. Counting is the hard question, because
a year of ``* * * * * *`` beside ``@every 1s`` must not be walked. Cron members of one zone count by
days (rows.py), periods by their meetings (progression.py), and what lies in both by the flags of a
day. Single instants, and crons of another zone than the first, are looked up one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duepoint.expressions import cron, every, expression, progression, rows


@dataclass(frozen=True, slots=True)
class Merged:
    """The union of the members' slots.

    Attributes:
        members: what the user wrote, for the words.
        crons: those of the first zone.
        periods: those whose slots are not all among a shorter one's.
        others: what is left: instants, windows, crons of other zones.
    """

    members: tuple[expression.Expression, ...]
    crons: rows.Rows | None
    periods: tuple[every.Every, ...]
    others: tuple[expression.Slots, ...]

    def next_after(self, instant_us: int) -> int | None:
        slots_us = [part.next_after(instant_us) for part in self._parts()]
        return min((slot_us for slot_us in slots_us if slot_us is not None), default=None)

    def previous_before(self, instant_us: int) -> int | None:
        slots_us = [part.previous_before(instant_us) for part in self._parts()]
        return max((slot_us for slot_us in slots_us if slot_us is not None), default=None)

    def count_between(self, after_us: int, through_us: int) -> int:
        after_us = max(after_us, expression.FIRST_US - 1)
        through_us = min(through_us, expression.LAST_US)
        if through_us <= after_us:
            return 0
        total = progression.count_of_any(self.periods, after_us, through_us)
        if self.crons:
            total += self.crons.count_between(after_us, through_us)
            total -= self.crons.count_on(self.periods, after_us, through_us)
        return total + sum(1 for _ in self._only_others(after_us, through_us))

    def describe(self) -> str:
        return "; ".join(member.describe() for member in self.members)

    def _parts(self) -> Iterator[expression.Slots]:
        if self.crons:
            yield from self.crons.rows
        yield from self.periods
        yield from self.others

    def _only_others(self, after_us: int, through_us: int) -> Iterator[int]:
        """Slots of ``others`` that no other part has."""
        seen: set[int] = set()
        for part in self.others:
            slot_us = part.next_after(after_us)
            while slot_us is not None and slot_us <= through_us:
                if slot_us not in seen and not self._counted_already(slot_us):
                    seen.add(slot_us)
                    yield slot_us
                slot_us = part.next_after(slot_us)

    def _counted_already(self, slot_us: int) -> bool:
        if self.crons and self.crons.has(slot_us):
            return True
        return any(each.next_after(slot_us - 1) == slot_us for each in self.periods)


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
    zone = next((each.zone_name for each in distinct if isinstance(each, cron.Cron)), "")
    crons = [each for each in distinct if isinstance(each, cron.Cron) and each.zone_name == zone]
    periods = [each for each in distinct if isinstance(each, every.Every)]
    others = [each for each in distinct if not isinstance(each, every.Every) and each not in crons]
    return Merged(
        distinct,
        rows.Rows(crons) if crons else None,
        progression.without_repeats(periods),
        tuple(others),
    )
