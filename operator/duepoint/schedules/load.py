"""A forecast of load: how many slots of many Schedules fall into each coming minute.

Schedules with the same expression, zone and jitter have slots in the same minutes. So fifty
thousand Schedules are a few hundred groups, and each is computed once. ``@every`` is arithmetic. A
jitter is a hash, which spreads slots evenly, so each of its minutes gets an equal part. Retries,
catch-ups and manual runs are not forecast. Pure; minutes are numbered from the first one.
"""

from __future__ import annotations

import collections
import datetime as dt
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from duepoint.expressions import descriptors, expression, timezones
from duepoint.model.answers import Count
from duepoint.model.vocabulary import Fields, Time
from duepoint.schedules import slots
from duepoint.schedules.spec import ScheduleSpec

MINUTE_US = 60_000_000
#: How many names of its Schedules a group keeps, to show them.
_NAMES = 5
#: How many names to show of the Schedules with one expression.
_SUCH = 3

#: Minutes with their number of slots, in order.
Shape = Mapping[int, float]


@dataclass(slots=True)
class _Alike:
    """Schedules with slots in the same minutes.

    Attributes:
        text: their expressions, as written.
        names: some of them.
        shape: the minutes of one of them.
    """

    text: str
    time_zone: str
    shape: Shape
    count: int = 0
    names: list[str] = field(default_factory=list)


class ExpressionLoad(Fields, kw_only=True):
    """The slots in one minute of all Schedules with one expression and zone, with any jitter."""

    schedule: str
    time_zone: str
    slots: Annotated[float, "in this minute; a jitter makes it a fraction"]
    schedules: Annotated[Count, "with this expression and zone"]
    such: Annotated[tuple[str, ...], "names of some of them"]


class MinuteLoad(Fields, kw_only=True):
    """One of the minutes with the most slots."""

    time: Time
    slots: float
    alike: Annotated[Count, "other minutes with the same load and Schedules"]
    inside: Annotated[tuple[ExpressionLoad, ...], "largest first"]


class HourLoad(Fields, kw_only=True):
    """An hour of the day in a zone; an hour repeated when clocks are set back counts once."""

    day: Annotated[str, "such as Mon 2026-03-02"]
    hour: Count
    begin: Time
    runs: Count
    peak: Annotated[float, "slots of the worst minute"]
    peak_time: Time


class Forecast:
    """The load of a range of minutes, from Schedules that are added one by one.

    Args:
        from_us: an instant in the first minute.
        length: the number of minutes.

    Attributes:
        from_us: the beginning of the first minute.
        schedules: how many Schedules were counted, including those without a slot here.
        suspended: how many of these have no slot because they are suspended.
    """

    def __init__(self, from_us: int, length: int) -> None:
        self.from_us = from_us - from_us % MINUTE_US
        self._length = length
        self._groups: dict[tuple[object, ...], _Alike] = {}
        self.schedules = self.suspended = 0

    def add(self, spec: ScheduleSpec) -> None:
        self.schedules += 1
        timing = spec.rule.timing
        begins = 0
        if timing.suspend:
            until_us = timing.suspend_until_us
            begins = self._length if until_us is None else self._minute_of(until_us)
            if begins >= self._length:
                self.suspended += 1
                return
        line = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
        jitter = math.ceil(timing.jitter_ms * 1_000 / MINUTE_US)
        key = (timing.schedules, timing.time_zone, self._place(line.expression), jitter, begins)
        group = self._groups.get(key)
        if group is None:
            shape: Shape = {at: count for at, count in self._counted(line).items() if at >= begins}
            if jitter > 1:
                shape = spread(shape, jitter, self._length)
            group = _Alike(", ".join(timing.schedules), timing.time_zone, shape)
            self._groups[key] = group
        group.count += 1
        if len(group.names) < _NAMES:
            group.names.append(spec.identity)

    @functools.cached_property
    def minutes(self) -> list[float]:
        """The number of slots in each minute; read it after the last ``add``."""
        minutes = [0.0] * self._length
        for group in self._groups.values():
            for at, count in group.shape.items():
                minutes[at] += count * group.count
        return minutes

    @property
    def runs(self) -> float:
        return sum(self.minutes)

    def at_us(self, minute: int) -> int:
        return self.from_us + minute * MINUTE_US

    def time(self, minute: int) -> str:
        """Return the beginning of a minute as RFC 3339."""
        return expression.utc_text(self.at_us(minute))

    def expressions(self, minute: int) -> tuple[ExpressionLoad, ...]:
        """Return the load of a minute by expression and zone, largest first."""
        by_text: dict[tuple[str, str], list[_Alike]] = {}
        for group in self._groups.values():
            if minute in group.shape:
                by_text.setdefault((group.text, group.time_zone), []).append(group)
        found = (
            ExpressionLoad(
                schedule=text,
                time_zone=zone,
                slots=round(sum(group.shape[minute] * group.count for group in groups), 2),
                schedules=sum(group.count for group in groups),
                such=tuple(name for group in groups for name in group.names)[:_SUCH],
            )
            for (text, zone), groups in by_text.items()
        )
        return tuple(sorted(found, key=lambda each: (-each.slots, each.schedule, each.time_zone)))

    def worst(self, most: int) -> list[MinuteLoad]:
        """Return the minutes with the most slots; those that are alike count as one.

        Minutes are alike if they have the same load at the same minute of an hour.
        """
        places: dict[tuple[int, int], list[int]] = {}
        for minute, slots_there in enumerate(self.minutes):
            if slots_there:
                place = -round(slots_there), self.at_us(minute) // MINUTE_US % 60
                places.setdefault(place, []).append(minute)
        return [
            MinuteLoad(
                time=self.time(found[0]),
                slots=round(self.minutes[found[0]], 2),
                alike=len(found) - 1,
                inside=self.expressions(found[0]),
            )
            for _, found in sorted(places.items())[:most]
        ]

    def hours(self, zone: str) -> list[HourLoad]:
        """Return the hours in the local time of a zone, oldest first."""
        clock = timezones.load(zone)
        found: dict[tuple[int, int], list[int]] = {}
        for minute in range(len(self.minutes)):
            second = self.at_us(minute) // 1_000_000
            day, rest = divmod(second + clock.offset_at(second), 86_400)
            found.setdefault((day, rest // 3_600), []).append(minute)
        return [self._hour(day, hour, each) for (day, hour), each in sorted(found.items())]

    def _hour(self, day: int, hour: int, minutes: Sequence[int]) -> HourLoad:
        date = dt.date(1970, 1, 1) + dt.timedelta(days=day)
        worst = max(minutes, key=self.minutes.__getitem__)
        return HourLoad(
            day=f"{date:%a} {date.isoformat()}",
            hour=hour,
            begin=self.time(minutes[0]),
            runs=round(sum(self.minutes[minute] for minute in minutes)),
            peak=round(self.minutes[worst], 2),
            peak_time=self.time(worst),
        )

    def _minute_of(self, at_us: int) -> int:
        return max(0, -((self.from_us - at_us) // MINUTE_US))

    def _place(self, compiled: expression.Expression) -> object:
        """Return what a group's minutes depend on: for ``@every`` its period and first minute."""
        if isinstance(compiled, descriptors.Every):
            first_us = compiled.next_after(self.from_us - 1)
            return compiled.period_us, first_us and (first_us - self.from_us) // MINUTE_US
        return compiled

    def _counted(self, line: slots.Slots) -> Shape:
        """Return the slots by minute; if there are many, count each minute by arithmetic."""
        end_us = self.from_us + self._length * MINUTE_US
        if line.count(self.from_us - 1, end_us - 1) > 2 * self._length:
            begins = range(self.from_us, end_us, MINUTE_US)
            counts = (line.count(begin_us - 1, begin_us + MINUTE_US - 1) for begin_us in begins)
            return {minute: count for minute, count in enumerate(counts) if count}
        found = line.walk(self.from_us - 1, end_us - 1)
        return collections.Counter((slot_us - self.from_us) // MINUTE_US for slot_us in found)


def spread(shape: Shape, over: int, minutes: int) -> Shape:
    """Return the shape with each slot spread evenly over minutes that end before the next slot.

    Args:
        over: the number of minutes.
    """
    found: dict[int, float] = {}
    slots_there = list(shape.items())
    for number, (at, count) in enumerate(slots_there):
        following = slots_there[number + 1][0] if number + 1 < len(slots_there) else at + over
        room = max(1, min(over, following - at))
        for minute in range(at, at + room):
            if minute < minutes:
                found[minute] = found.get(minute, 0.0) + count / room
    return dict(sorted(found.items()))
