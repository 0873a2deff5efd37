"""``@every 1h30m``: slot k is anchor + k * period, for k = 0, 1, 2, ...

Computed from the anchor each time, so a late answer never moves a later slot: it cannot drift and
it knows no daylight saving. Slot 0, the anchor itself, exists; a Schedule anchored at its creation
never runs it because its watermark starts there, one with a ``startTime`` does.

A Job's name carries its slot in whole seconds, hence the stricter rule with a jobTemplate.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint import errors
from duepoint.expressions import durations, expression

SHORTEST_US = 100_000
SHORTEST_WITH_JOB_US = expression.SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """Evenly spaced slots from the anchor on; both numbers in microseconds."""

    anchor_us: int
    period_us: int

    def next_after(self, instant_us: int) -> int | None:
        steps = max(0, (instant_us - self.anchor_us) // self.period_us + 1)
        slot_us = self.anchor_us + steps * self.period_us
        return slot_us if slot_us <= expression.LAST_US else None

    def previous_before(self, instant_us: int) -> int | None:
        steps = (min(instant_us - 1, expression.LAST_US) - self.anchor_us) // self.period_us
        return self.anchor_us + steps * self.period_us if steps >= 0 else None

    def count_between(self, after_us: int, through_us: int) -> int:
        return max(0, self._slots_through(through_us) - self._slots_through(after_us))

    def _slots_through(self, instant_us: int) -> int:
        last_us = min(instant_us, expression.LAST_US)
        return max(0, (last_us - self.anchor_us) // self.period_us + 1)

    def describe(self) -> str:
        return f"every {durations.format_duration(self.period_us)}"


def parse(value: str, *, position: int, anchor_us: int, whole_seconds: bool) -> Every:
    """The Every written as ``value``, which begins at ``position`` of the whole text.

    Raises:
        InvalidExpression: InvalidSchedule, or OutOfRange when no slot but the anchor fits.
    """
    period_us = _period_us(value, position)
    if whole_seconds:
        anchor_us -= anchor_us % expression.SECOND_US
    _check_fineness(period_us, position, whole_seconds=whole_seconds)
    if anchor_us + period_us > expression.LAST_US:
        raise _wrong(f"{errors.quoted(value)} reaches beyond the year 2112", position, "OutOfRange")
    return Every(anchor_us=anchor_us, period_us=period_us)


def _period_us(value: str, position: int) -> int:
    try:
        return durations.parse_duration_us(value)
    except durations.InvalidDuration as error:
        reason = "OutOfRange" if error.huge else "InvalidSchedule"
        raise _wrong(str(error), position, reason) from error


def _check_fineness(period_us: int, position: int, *, whole_seconds: bool) -> None:
    if whole_seconds and (period_us < SHORTEST_WITH_JOB_US or period_us % expression.SECOND_US):
        raise _wrong(
            f"{durations.format_duration(period_us)} is not a whole number of seconds, as a "
            'jobTemplate needs; write at least "1s"',
            position,
        )
    if period_us < SHORTEST_US:
        raise _wrong(
            f"{durations.format_duration(period_us)} is too short; the shortest is 100ms", position
        )
    if period_us % 1_000:
        raise _wrong("the period must be a whole number of milliseconds", position)


def _wrong(what: str, position: int, reason: str = "InvalidSchedule") -> errors.InvalidExpression:
    return errors.InvalidExpression(
        f"@every: {what}", reason=reason, field="@every", position=position
    )
