"""``@every 1h30m``: slot k is anchor + k * period, for k = 0, 1, 2, ...

Computed from the anchor each time, so a late answer never moves a later slot: it cannot drift and
it knows no daylight saving. Slot 0, the anchor itself, exists; a Schedule anchored at its creation
never runs it because its watermark starts there, one with a ``startTime`` does.
A Job's name carries its slot in whole seconds, hence the stricter rule with a jobTemplate.

The second half counts the slots of several periods. Two periods meet in a third one, whose length
is the least common multiple of theirs, or nowhere (the Chinese remainder theorem). So the size of a
union is a signed sum over the meetings of its members, for any number of slots. Members of one
Schedule share their anchor, many meetings are therefore equal and are kept once; those without a
slot in the span asked about are dropped. Some dozens of short periods without a common factor meet
in millions of ways; then instants are marked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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
    try:
        period_us = durations.parse_duration_us(value)
    except durations.InvalidDuration as error:
        reason = "OutOfRange" if error.huge else "InvalidSchedule"
        raise _wrong(str(error), position, reason) from error
    if whole_seconds:
        anchor_us -= anchor_us % expression.SECOND_US
    _check_fineness(period_us, position, whole_seconds=whole_seconds)
    if anchor_us + period_us > expression.LAST_US:
        raise _wrong(f"{errors.quoted(value)} reaches beyond the year 2112", position, "OutOfRange")
    return Every(anchor_us=anchor_us, period_us=period_us)


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


# -- several periods -----------------------------------------------------------------------------

#: Beyond so many meetings, marking instants in rows of bytes is cheaper.
_MOST_MEETINGS = 2_000

#: Length of such a row.
_ROW = 1 << 20


def meeting(left: Every, right: Every) -> Every | None:
    """The slots that both have; None where there are none."""
    shared_us = math.gcd(left.period_us, right.period_us)
    apart_us = right.anchor_us - left.anchor_us
    if apart_us % shared_us:
        return None
    # left.anchor + k * left.period is a slot of the right period when k solves this congruence.
    modulus = right.period_us // shared_us
    inverse = pow(left.period_us // shared_us, -1, modulus)
    steps = apart_us // shared_us * inverse % modulus
    period_us = left.period_us * modulus
    anchor_us = left.anchor_us + steps * left.period_us
    latest_us = max(left.anchor_us, right.anchor_us)
    rounds = max(0, -(-(latest_us - anchor_us) // period_us))
    return Every(anchor_us=anchor_us + rounds * period_us, period_us=period_us)


def signed_meetings(
    periods: Iterable[Every], after_us: int, through_us: int, *, most: int
) -> dict[Every, int] | None:
    """Periods with factors, which turn "in at least one" into a sum; None beyond ``most`` periods.

    For any set of instants in the span, the sum of factor x (how many of them are slots of the
    period) over what is returned is how many of them are slots of at least one of ``periods``.
    """
    signed: dict[Every, int] = {}
    for period in periods:
        added = {period: 1}
        for known, sign in signed.items():
            both = meeting(known, period)
            if both is not None and both.count_between(after_us, through_us):
                added[both] = added.get(both, 0) - sign
        for each, sign in added.items():
            signed[each] = signed.get(each, 0) + sign
        signed = {each: sign for each, sign in signed.items() if sign}
        if len(signed) > most:
            return None
    return signed


def count_of_any(periods: Sequence[Every], after_us: int, through_us: int) -> int:
    """How many slots in ``(after_us, through_us]`` at least one of the periods has."""
    signed = signed_meetings(periods, after_us, through_us, most=_MOST_MEETINGS)
    if signed is None:
        return _marked(periods, after_us, through_us)
    return sum(sign * each.count_between(after_us, through_us) for each, sign in signed.items())


def _marked(periods: Sequence[Every], after_us: int, through_us: int) -> int:
    """The same where they meet in too many ways to sum them up: instants are marked in a row."""
    origin_us = min(each.anchor_us for each in periods)
    unit_us = math.gcd(
        *(each.period_us for each in periods), *(each.anchor_us - origin_us for each in periods)
    )
    steps = [
        ((each.anchor_us - origin_us) // unit_us, each.period_us // unit_us) for each in periods
    ]
    first = max((after_us - origin_us) // unit_us + 1, 0)
    end = (through_us - origin_us) // unit_us + 1
    total = 0
    for begin in range(first, end, _ROW):
        size = min(_ROW, end - begin)
        marks = bytearray(size)
        for anchor, step in steps:
            low = max(0, anchor - begin)
            low += (anchor - begin - low) % step
            marks[low::step] = b"\1" * len(range(low, size, step))
        total += marks.count(1)
    return total


def without_repeats(periods: Iterable[Every]) -> tuple[Every, ...]:
    """The periods whose slots are not all among those of a shorter one."""
    kept: list[Every] = []
    for period in sorted(periods, key=lambda each: (each.period_us, each.anchor_us)):
        if not any(meeting(period, shorter) == period for shorter in kept):
            kept.append(period)
    return tuple(kept)
