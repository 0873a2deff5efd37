"""What daylight saving does to local times, decided once per zone and policy.

A zone is a row of stretches with a constant offset. Between two of them the clock jumps: forward,
so that local times are missing (a gap), or back, so that local times come twice (an overlap)::

    gap      ...01:59 | 03:00...        local 02:00-03:00 does not exist
    overlap  ...01:59 | 01:00...        local 01:00-02:00 exists in both stretches

Within a stretch, slots are simply the matching local times. So all of the policy is: which local
times of each stretch count, and whether its first instant stands in for the ones missing before it.

- Expressions that sweep (a wildcard, a step or a full range in hour or minute) count every local
  time that exists, as often as it exists: their real cadence goes on through both changes.
- Fixed times are moved (``Gap``) or chosen (``Overlap``) as the user asks.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass

from duepoint.expressions import expression, timezones


class Gap(enum.StrEnum):
    """What a fixed time does on a day on which it does not exist."""

    RUN_ONCE = "RunOnce"
    SKIP = "Skip"


class Overlap(enum.StrEnum):
    """Which of two equal local times counts for a fixed time."""

    FIRST = "First"
    SECOND = "Second"
    BOTH = "Both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A period of constant offset, in seconds.

    Attributes:
        start, end: the UTC seconds ``[start, end)`` that it covers.
        offset: local time minus UTC.
        local_from, local_to: the local times ``[local_from, local_to)`` that count in it.
        missing_from: when a match in the local times ``[missing_from, local_from)``, which do not
            exist, makes ``start`` a slot; else equal to ``local_from``.
        rewinds: whether local times of the stretch before count here once more.
    """

    start: int
    end: int
    offset: int
    local_from: int
    local_to: int
    missing_from: int
    rewinds: bool


def stretches(zone_name: str, *, sweeping: bool, gap: Gap, overlap: Overlap) -> tuple[Stretch, ...]:
    """The row of stretches from FIRST_US to LAST_US, without holes between them.

    The same tuple for all that behave alike: where clocks never change, choices do not matter.
    """
    zone = timezones.located(zone_name)
    if sweeping or len(zone.starts) == 1:
        gap, overlap = Gap.SKIP, Overlap.BOTH
    return _row(zone, gap, overlap)


@functools.lru_cache(maxsize=1024)
def _row(zone: timezones.Zone, gap: Gap, overlap: Overlap) -> tuple[Stretch, ...]:
    ends = (*zone.starts[1:], expression.LAST_US // expression.SECOND_US + 1)
    starts = (expression.FIRST_US // expression.SECOND_US, *zone.starts[1:])
    earlier = (zone.offsets[0], *zone.offsets)
    later = (*zone.offsets[1:], zone.offsets[-1])
    return tuple(
        _stretch(period, gap, overlap)
        for period in zip(starts, ends, earlier, zone.offsets, later, strict=False)
    )


def _stretch(period: tuple[int, int, int, int, int], gap: Gap, overlap: Overlap) -> Stretch:
    start, end, offset_before, offset, offset_after = period
    local_from, local_to = start + offset, end + offset
    repeats = offset_before > offset
    if repeats and overlap is Overlap.FIRST:
        local_from = start + offset_before
    if offset > offset_after and overlap is Overlap.SECOND:
        local_to = end + offset_after
    return Stretch(
        start=start,
        end=end,
        offset=offset,
        local_from=local_from,
        local_to=local_to,
        missing_from=min(start + offset_before, local_from) if gap is Gap.RUN_ONCE else local_from,
        rewinds=repeats and overlap is Overlap.BOTH,
    )
