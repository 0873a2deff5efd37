"""Changes of a zone's clock that concern a cron expression."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from duepoint import expressions
from duepoint.cli import instants
from duepoint.expressions import cron, expression, timezones

_SECOND_US = expression.SECOND_US
_DAY = 86_400
#: So many local times are listed one by one.
_LISTED = 4


def coming(known: cron.Cron, zone: timezones.Zone, from_us: int) -> list[ClockChange]:
    """The next gap and the next overlap that concern the expression, in order."""
    found: dict[bool, ClockChange] = {}
    for start, before, after in zone.changes_after(from_us // _SECOND_US):
        local_from, local_to = sorted((start + before, start + after))
        count = known.pattern.count(local_from, local_to)
        if not count or (after > before) in found:
            continue
        times: list[str] = []
        time = known.pattern.first_from(local_from)
        while time < local_to and len(times) < _LISTED:
            times.append(_clock_text(time))
            time = known.pattern.first_from(time + 1)
        found[after > before] = ClockChange(
            at_us=start * _SECOND_US,
            is_gap=after > before,
            local_from=local_from,
            local_to=local_to,
            times=times,
            count=count,
        )
        if len(found) == 2:
            break
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
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
    times: list[str]
    count: int

    def slots_us(self, of: expressions.Expression) -> list[int]:
        """The slots that stand for these local times: mostly one or two, at most a hundred."""
        width_us = 0 if self.is_gap else (self.local_to - self.local_from) * _SECOND_US
        last_us = self.at_us if self.is_gap else self.at_us + width_us - 1
        slots_us = expression.walk(of, self.at_us - width_us - 1, last_us)
        return list(itertools.islice(slots_us, 100))

    def sentence(self, local: instants.LocalTime) -> str:
        """What the clocks do to the times; the expression's own part follows."""
        begin, end = _clock_text(self.local_from), _clock_text(self.local_to)
        day = local.text(self.at_us)[:10]
        if self.is_gap:
            verb = "do" if self.count > 1 else "does"
            return (
                f"{day}: clocks jump from {begin} to {end}, so {self.listed} {verb} not exist; it "
            )
        verb = "come" if self.count > 1 else "comes"
        return f"{day}: clocks go back from {end} to {begin}, so {self.listed} {verb} twice; it "

    @property
    def listed(self) -> str:
        """The times in words."""
        *others, last = self.times
        if self.count > len(self.times):
            return f"{', '.join(self.times)} and {self.count - len(self.times)} more"
        return f"{', '.join(others)} and {last}" if others else last


def _clock_text(local: int) -> str:
    """A local time of day, with seconds only where there are any."""
    hours, rest = divmod(local % _DAY, 3_600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours:02}:{minutes:02}" + (f":{seconds:02}" if seconds else "")
