"""Several expressions as one, any expression cut to a start and an end, and what one weighs.

A Schedule may list several texts; an instant that two of them name is one slot. The next and the
previous slot are the nearest of the members' own. To count, the member with the most slots is
counted by arithmetic and the slots of the others are looked up, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duepoint.expressions import cron, expression

#: Most slots that are looked up to count a union, in some 0.2 s. Of more, those that several
#: members name count more than once.
MOST_LOOKED_UP = 100_000


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
        counts = [(member.count_between(after_us, through_us), member) for member in self.members]
        total = sum(count for count, _ in counts)
        counted, looked_up = list[expression.Expression](), 0
        for count, member in sorted(counts, key=lambda pair: pair[0], reverse=True):
            if counted:
                looked_up += count
                if looked_up > MOST_LOOKED_UP:
                    break
                total -= sum(
                    any(other.next_after(slot_us - 1) == slot_us for other in counted)
                    for slot_us in expression.walk(member, after_us, through_us)
                )
            counted.append(member)
        return total

    def describe(self) -> str:
        return "; ".join(member.describe() for member in self.members)


def merged(expressions: Sequence[expression.Expression]) -> expression.Expression:
    """One expression for all; the only one itself. Raises ValueError where there is none."""
    distinct = tuple(dict.fromkeys(expressions))
    if not distinct:
        raise ValueError("there is no expression to merge")
    return distinct[0] if len(distinct) == 1 else Merged(distinct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """The slots of ``inner`` in ``[start_us, end_us)``."""

    inner: expression.Expression
    start_us: int
    end_us: int

    def next_after(self, instant_us: int) -> int | None:
        slot_us = self.inner.next_after(max(instant_us, self.start_us - 1))
        return slot_us if slot_us is not None and slot_us < self.end_us else None

    def previous_before(self, instant_us: int) -> int | None:
        slot_us = self.inner.previous_before(min(instant_us, self.end_us))
        return slot_us if slot_us is not None and slot_us >= self.start_us else None

    def count_between(self, after_us: int, through_us: int) -> int:
        first_us, last_us = max(after_us, self.start_us - 1), min(through_us, self.end_us - 1)
        return self.inner.count_between(first_us, last_us) if first_us < last_us else 0

    def describe(self) -> str:
        words = self.inner.describe()
        if self.start_us > expression.FIRST_US:
            words += f", from {expression.utc_text(self.start_us)}"
        if self.end_us <= expression.LAST_US:
            words += f", before {expression.utc_text(self.end_us)}"
        return words


def windowed(
    inner: expression.Expression, *, start_us: int | None, end_us: int | None
) -> expression.Expression:
    """The expression cut to the window; itself when neither end is given."""
    if start_us is None and end_us is None:
        return inner
    return Windowed(
        inner=inner,
        start_us=expression.FIRST_US if start_us is None else start_us,
        end_us=expression.LAST_US + 1 if end_us is None else end_us,
    )


#: Bytes of an expression and of the rule that names it, beside times and days.
_OF_EACH, _OF_A_CRON = 1_000, 1_800


def size_of(compiled: expression.Expression) -> int:
    """Bytes that it takes at most, with what it remembers; what it shares counts in full."""
    match compiled:
        case cron.Cron():
            return _OF_A_CRON + compiled.pattern.size_bytes
        case Merged():
            return _OF_EACH + sum(map(size_of, compiled.members))
        case Windowed():
            return _OF_EACH + size_of(compiled.inner)
        case _:
            return _OF_EACH
