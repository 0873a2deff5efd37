"""The next days on which daylight saving makes an expression behave specially.

A change of a zone's offset matters to a cron expression when some of its local times lie among
those that the clock jumps over (a gap) or shows twice (an overlap). What then happens is not
decided here: it is read off the engine's own slots around the change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from duepoint import expressions
from duepoint.expressions import cron, expression, timezones

_SECOND_US = expression.SECOND_US
_DAY = 86_400
#: So many local times are listed one by one.
_LISTED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the clock that concerns an expression.

    Attributes:
        at_us: the instant at which the offset changes.
        is_gap: local times are missing; else they come twice.
        local_from, local_to: the local times ``[local_from, local_to)`` concerned, in seconds
            since 1970-01-01T00:00:00 by the wall clock.
        times: the first of the expression's local times among them.
        count: how many there are.
    """

    at_us: int
    is_gap: bool
    local_from: int
    local_to: int
    times: tuple[int, ...]
    count: int

    def slots_us(self, of: expressions.Expression) -> list[int]:
        """The slots that stand for these local times: mostly one or two, at most a hundred."""
        width_us = 0 if self.is_gap else (self.local_to - self.local_from) * _SECOND_US
        slot_us = of.next_after(self.at_us - width_us - 1)
        last_us = self.at_us if self.is_gap else self.at_us + width_us - 1
        found: list[int] = []
        while slot_us is not None and slot_us <= last_us and len(found) < 100:
            found.append(slot_us)
            slot_us = of.next_after(slot_us)
        return found


def coming(asked: cron.Cron, time_zone: str, from_us: int) -> list[Change]:
    """The next gap and the next overlap that concern the expression, in order."""
    found: dict[bool, Change] = {}
    for change in _changes(asked, time_zone, from_us):
        found.setdefault(change.is_gap, change)
        if len(found) == 2:
            break
    return sorted(found.values(), key=lambda change: change.at_us)


def has_any(time_zone: str, from_us: int) -> bool:
    """Whether clocks in the zone still change."""
    starts = timezones.load(time_zone).starts
    return len(starts) > 1 and starts[-1] * _SECOND_US > from_us


def _changes(asked: cron.Cron, time_zone: str, from_us: int) -> Iterator[Change]:
    zone = timezones.load(time_zone)
    pairs = zip(zone.starts[1:], zone.offsets, zone.offsets[1:], strict=False)
    for start, before, after in pairs:
        if start * _SECOND_US <= from_us:
            continue
        local_from, local_to = sorted((start + before, start + after))
        count = asked.pattern.count(local_from, local_to)
        if count:
            yield Change(
                at_us=start * _SECOND_US,
                is_gap=after > before,
                local_from=local_from,
                local_to=local_to,
                times=_times(asked, local_from, local_to),
                count=count,
            )


def _times(asked: cron.Cron, local_from: int, local_to: int) -> tuple[int, ...]:
    times: list[int] = []
    local = asked.pattern.first_from(local_from)
    while local < local_to and len(times) < _LISTED:
        times.append(local)
        local = asked.pattern.first_from(local + 1)
    return tuple(times)


def clock_text(local: int) -> str:
    """A local time of day, with seconds only where there are any."""
    hours, rest = divmod(local % _DAY, 3_600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours:02}:{minutes:02}" + (f":{seconds:02}" if seconds else "")
