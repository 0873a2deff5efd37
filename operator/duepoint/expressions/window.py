"""A start and an end around any expression: nothing before the start, nothing at or after the end.

These are ``startTime`` and ``endTime`` of a Schedule. The inner expression is not changed, so the
same compiled form serves Schedules with different windows.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from duepoint.expressions import expression


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
            words += f", from {_utc(self.start_us)}"
        if self.end_us <= expression.LAST_US:
            words += f", before {_utc(self.end_us)}"
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


def _utc(instant_us: int) -> str:
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (epoch + dt.timedelta(microseconds=instant_us)).isoformat().replace("+00:00", "Z")
