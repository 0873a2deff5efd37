"""Arithmetic of periods: which instants two of them share, and how many several of them name.

Two periods meet in a third one, whose length is the least common multiple of theirs, or nowhere
(the Chinese remainder theorem). So the size of a union is a signed sum over the meetings of its
members, whatever the number of slots. Members of one Schedule share their anchor, many meetings are
therefore equal and are kept once; those without a slot in the span asked about are dropped. Some
dozens of short periods without a common factor meet in millions of ways; then instants are marked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from duepoint.expressions import every

#: Beyond so many meetings, marking instants in rows of bytes is cheaper.
_MOST_MEETINGS = 2_000

#: Length of such a row.
_ROW = 1 << 20


def meeting(one: every.Every, other: every.Every) -> every.Every | None:
    """The slots that both have; None where there are none."""
    shared_us = math.gcd(one.period_us, other.period_us)
    apart_us = other.anchor_us - one.anchor_us
    if apart_us % shared_us:
        return None
    # one.anchor + k * one.period is a slot of the other one when k solves this congruence.
    modulus = other.period_us // shared_us
    inverse = pow(one.period_us // shared_us, -1, modulus)
    steps = apart_us // shared_us * inverse % modulus
    period_us = one.period_us * modulus
    anchor_us = one.anchor_us + steps * one.period_us
    latest_us = max(one.anchor_us, other.anchor_us)
    rounds = max(0, -(-(latest_us - anchor_us) // period_us))
    return every.Every(anchor_us=anchor_us + rounds * period_us, period_us=period_us)


def signed_meetings(
    periods: Iterable[every.Every], after_us: int, through_us: int, *, most: int
) -> dict[every.Every, int] | None:
    """Periods with factors, which turn "in at least one" into a sum; None beyond ``most`` periods.

    For any set of instants in the span, the sum of factor x (how many of them are slots of the
    period) over what is returned is how many of them are slots of at least one of ``periods``.
    """
    signed: dict[every.Every, int] = {}
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


def count_of_any(periods: Sequence[every.Every], after_us: int, through_us: int) -> int:
    """How many slots in ``(after_us, through_us]`` at least one of the periods has."""
    signed = signed_meetings(periods, after_us, through_us, most=_MOST_MEETINGS)
    if signed is None:
        return _marked(periods, after_us, through_us)
    return sum(sign * each.count_between(after_us, through_us) for each, sign in signed.items())


def _marked(periods: Sequence[every.Every], after_us: int, through_us: int) -> int:
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


def without_repeats(periods: Iterable[every.Every]) -> tuple[every.Every, ...]:
    """The periods whose slots are not all among those of a shorter one."""
    kept: list[every.Every] = []
    for period in sorted(periods, key=lambda each: (each.period_us, each.anchor_us)):
        if not any(_repeats(period, shorter) for shorter in kept):
            kept.append(period)
    return tuple(kept)


def _repeats(longer: every.Every, shorter: every.Every) -> bool:
    distance_us = longer.anchor_us - shorter.anchor_us
    return (
        distance_us >= 0
        and distance_us % shorter.period_us == 0
        and longer.period_us % shorter.period_us == 0
    )
