"""A forecast of load: how many slots of many Schedules fall into each coming minute.

Schedules with the same expression, zone and jitter have slots in the same minutes. So fifty
thousand Schedules are a few hundred groups, and each is computed once. ``@every`` is arithmetic. A
jitter is a hash, which spreads slots evenly, so each of its minutes gets an equal part. Retries,
catch-ups and manual runs are not forecast. Pure; minutes are numbered from the first one.
"""

from __future__ import annotations

import bisect
import datetime as dt
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
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

#: Pairs of a minute and its number of slots, in the order of the minutes.
Shape = Sequence[tuple[int, float]]
_MINUTE_OF = operator.itemgetter(0)


@dataclass(slots=True)
class AlikeSchedules:
    """Schedules with slots in the same minutes.

    Attributes:
        texts: their expressions, as written.
        names: some of them.
        shape: the minutes of one of them.
        jitter: minutes over which each slot is spread; 0 = none.
    """

    texts: tuple[str, ...]
    time_zone: str
    jitter: int
    shape: Shape
    count: int = 0
    names: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return ", ".join(self.texts)


class ExpressionLoad(Fields, kw_only=True):
    """The slots in one minute of all Schedules with one expression and zone, with any jitter."""

    schedule: str
    time_zone: str
    slots: Annotated[float, "in this minute; a jitter makes it a fraction"]
    schedules: Annotated[Count, "with this expression and zone"]
    such: Annotated[tuple[str, ...], "names of some of them"]


class MinuteLoad(Fields, kw_only=True):
    """One of the worst minutes."""

    time: Time
    slots: float
    alike: Annotated[Count, "other minutes with the same load and Schedules"]
    inside: Annotated[tuple[ExpressionLoad, ...], "largest first"]


class HourLoad(Fields, kw_only=True):
    """An hour of the day, in a zone; one that comes twice, when clocks are set back, is one."""

    day: Annotated[str, "such as Mon 2026-03-02"]
    hour: Count
    begin: Time
    runs: Count
    peak: Annotated[float, "slots of the worst minute"]
    peak_time: Time


@dataclass(slots=True, kw_only=True)
class Forecast:
    """The load of a range of minutes.

    Attributes:
        from_us: the beginning of the first minute.
        minutes: number of slots in each minute.
        schedules: how many Schedules were counted, including those without a slot here.
        suspended: how many of these have no slot because they are suspended.
    """

    from_us: int
    minutes: list[float]
    groups: list[AlikeSchedules]
    schedules: int
    suspended: int

    @property
    def runs(self) -> float:
        return sum(self.minutes)

    def at_us(self, minute: int) -> int:
        return self.from_us + minute * MINUTE_US

    def time(self, minute: int) -> str:
        """Return the beginning of a minute as RFC 3339."""
        return expression.utc_text(self.at_us(minute))

    def inside(self, minute: int) -> list[tuple[float, AlikeSchedules]]:
        """Return the groups with slots in a minute, with their number of slots, largest first."""
        found = []
        for group in self.groups:
            index = bisect.bisect_left(group.shape, minute, key=_MINUTE_OF)
            if index < len(group.shape) and group.shape[index][0] == minute:
                found.append((group.shape[index][1] * group.count, group))
        return sorted(found, key=lambda pair: (-pair[0], pair[1].texts))

    def expressions(self, minute: int) -> tuple[ExpressionLoad, ...]:
        """Return the load of a minute by expression and zone, largest first."""
        by_text: dict[tuple[str, str], list[tuple[float, AlikeSchedules]]] = {}
        for slots_there, group in self.inside(minute):
            by_text.setdefault((group.text, group.time_zone), []).append((slots_there, group))
        found = (
            ExpressionLoad(
                schedule=text,
                time_zone=zone,
                slots=round(sum(slots_there for slots_there, _ in pairs), 2),
                schedules=sum(group.count for _, group in pairs),
                such=tuple(name for _, group in pairs for name in group.names)[:_SUCH],
            )
            for (text, zone), pairs in by_text.items()
        )
        return tuple(sorted(found, key=lambda each: (-each.slots, each.schedule, each.time_zone)))

    def worst(self, most: int) -> list[MinuteLoad]:
        """Return the worst minutes; those that are alike count as one.

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


def forecast(specs: Iterable[ScheduleSpec], *, from_us: int, minutes: int) -> Forecast:
    """Return the load of ``minutes`` minutes, from the one that contains ``from_us``."""
    first_us = from_us - from_us % MINUTE_US
    builder = ForecastBuilder(first_us, minutes)
    for spec in specs:
        builder.add(spec)
    return builder.made()


class ForecastBuilder:
    """Builds a forecast from Schedules added one by one."""

    def __init__(self, first_us: int, minutes: int) -> None:
        self._first_us = first_us
        self._minutes = minutes
        self._groups: dict[tuple[object, ...], AlikeSchedules] = {}
        self._shapes: dict[tuple[object, ...], Shape] = {}
        #: Shapes are cached by ``id`` of the expression: keep it alive, or Python reuses the id.
        self._held: list[object] = []
        self._schedules = 0
        self._suspended = 0

    def add(self, spec: ScheduleSpec) -> None:
        self._schedules += 1
        timing = spec.rule.timing
        begins = 0
        if timing.suspend:
            until_us = timing.suspend_until_us
            begins = self._minutes if until_us is None else self._minute_of(until_us)
            if begins >= self._minutes:
                self._suspended += 1
                return
        line = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
        expression = line.expression
        place = self._place(expression)
        jitter = math.ceil(timing.jitter_ms * 1_000 / MINUTE_US)
        key = (timing.schedules, timing.time_zone, place, jitter, begins)
        group = self._groups.get(key)
        if group is None:
            shape = self._shape(place, line)
            shape = [pair for pair in shape if pair[0] >= begins]
            if jitter > 1:
                shape = spread(shape, jitter, self._minutes)
            group = AlikeSchedules(timing.schedules, timing.time_zone, jitter, shape)
            self._groups[key] = group
        group.count += 1
        if len(group.names) < _NAMES:
            group.names.append(spec.identity)

    def _minute_of(self, at_us: int) -> int:
        return max(0, -((self._first_us - at_us) // MINUTE_US))

    def _place(self, expression: object) -> tuple[object, ...]:
        """Return a cache key for the shape: for ``@every`` its period and first minute."""
        if isinstance(expression, descriptors.Every):
            first_us = expression.next_after(self._first_us - 1)
            first = None if first_us is None else (first_us - self._first_us) // MINUTE_US
            return "every", expression.period_us, first
        return (id(expression),)

    def _shape(self, place: tuple[object, ...], line: slots.Slots) -> Shape:
        shape = self._shapes.get(place)
        if shape is None:
            self._held.append(line.expression)
            shape = self._shapes[place] = list(self._counted(line))
        return shape

    def _counted(self, line: slots.Slots) -> Iterator[tuple[int, float]]:
        """Yield minutes and their slots; if there are many, count each minute by arithmetic."""
        end_us = self._first_us + self._minutes * MINUTE_US
        if line.count(self._first_us - 1, end_us - 1) > 2 * self._minutes:
            for minute in range(self._minutes):
                begin_us = self._first_us + minute * MINUTE_US
                if count := line.count(begin_us - 1, begin_us + MINUTE_US - 1):
                    yield minute, count
            return
        last, count = -1, 0
        for slot_us in line.walk(self._first_us - 1, end_us - 1):
            minute = (slot_us - self._first_us) // MINUTE_US
            if minute == last:
                count += 1
                continue
            if count:
                yield last, count
            last, count = minute, 1
        if count:
            yield last, count

    def made(self) -> Forecast:
        minutes = [0.0] * self._minutes
        groups = list(self._groups.values())
        for group in groups:
            add(minutes, group.shape, group.count)
        return Forecast(
            from_us=self._first_us,
            minutes=minutes,
            groups=groups,
            schedules=self._schedules,
            suspended=self._suspended,
        )


def add(minutes: list[float], shape: Shape, times: float) -> None:
    """Add a shape ``times`` times."""
    for at, count in shape:
        minutes[at] += count * times


def spread(shape: Shape, over: int, minutes: int) -> Shape:
    """Return the shape with each slot spread evenly over minutes that end before the next slot.

    Args:
        over: the number of minutes.
    """
    found: dict[int, float] = {}
    for number, (at, count) in enumerate(shape):
        following = shape[number + 1][0] if number + 1 < len(shape) else at + over
        room = max(1, min(over, following - at))
        for minute in range(at, at + room):
            if minute < minutes:
                found[minute] = found.get(minute, 0.0) + count / room
    return sorted(found.items())
