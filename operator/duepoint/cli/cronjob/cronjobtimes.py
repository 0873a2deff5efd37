"""When a CronJob runs, to the second, quirks included: robfig/cron v3's way through a zone.

Its search moves a wall clock forward: by months, by days, by hours and by minutes, each until the
field matches, and begins again whenever a larger unit turns over. Days and months are added on the
wall clock and hours and minutes in real time. Mostly that leaves out local times that do not exist
and takes those that come twice as often as they come; where a zone has no midnight one day, or
moves by less than an hour, whole days or single times are lost as well, and for a day that a zone
left out it searches for ever. Only the same search can show that, so this repeats it; the
tests hold it to answers of the library itself.

Seconds since the epoch, UTC. Five fields only, which is what CronJob takes. Source: ``Next`` in
``spec.go`` of robfig/cron v3.0.1, ``Date`` and ``AddDate`` of Go's time package.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from dataclasses import dataclass

from duepoint.expressions import syntax, timezones

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock has no zone
_HOUR, _MINUTE = 3_600, 60
#: After so many years it gives up.
_YEARS = 5
#: Where a zone has no midnight it may go round and round; it never needs so many moves.
_MOST_MOVES = 10_000


class _GoesRound(Exception):
    """The library would never come back."""


class _TurnedOver(Exception):
    """A larger unit has changed: its field has to be looked at again."""


@dataclass(frozen=True, slots=True)
class CronJobTimes:
    """The times of one expression in one zone."""

    fields: syntax.CronFields
    zone: timezones.Zone

    def next_after(self, second: int) -> int | None:
        """The first run after a second; None where it gives up, or hangs."""
        search = _Search(self.fields, self.zone, second + 1)
        last_year = search.clock.year + _YEARS
        while search.clock.year <= last_year:
            try:
                search.months()
                search.days()
                search.hours()
                search.minutes()
                search.seconds()
            except _TurnedOver:
                continue
            except _GoesRound:
                return None
            return search.at
        return None


class _Search:
    """A wall clock that is moved forward until every field matches."""

    def __init__(self, fields: syntax.CronFields, zone: timezones.Zone, second: int) -> None:
        self._fields = fields
        self._zone = zone
        self._is_moved = False
        self._moves_left = _MOST_MOVES
        self.at = second
        self.clock = self._clock_at(second)

    def months(self) -> None:
        while not self._fields.day_rule.months >> self.clock.month & 1:
            if self._moves():
                self._set(self.clock.replace(day=1, hour=0, minute=0, second=0))
            # the same day and time a month on; a day too many runs over into the month after
            year, month = divmod(self.clock.year * 12 + self.clock.month, 12)
            first = self.clock.replace(year=year, month=month + 1, day=1)
            self._set(first + dt.timedelta(days=self.clock.day - 1))
            if self.clock.month == 1:
                raise _TurnedOver

    def days(self) -> None:
        while not self._day_matches():
            if self._moves():
                self._set(self.clock.replace(hour=0, minute=0, second=0))
            self._set(self.clock + dt.timedelta(days=1))
            if self.clock.hour:  # there was no midnight
                late = self.clock.hour > 12
                self._add(_HOUR * (24 - self.clock.hour if late else -self.clock.hour))
            if self.clock.day == 1:
                raise _TurnedOver

    def hours(self) -> None:
        while not self._fields.hours >> self.clock.hour & 1:
            if self._moves():
                self._set(self.clock.replace(minute=0, second=0))
            self._add(_HOUR)
            if self.clock.hour == 0:
                raise _TurnedOver

    def minutes(self) -> None:
        while not self._fields.minutes >> self.clock.minute & 1:
            if self._moves():
                self._add(-(self.at % _MINUTE))
            # to the next minute that matches or the full hour; 1 where the clock changes before
            later = self._fields.minutes >> self.clock.minute + 1
            left = (later & -later).bit_length() or _HOUR // _MINUTE - self.clock.minute
            if self._period(self.at + left * _MINUTE) != self._period(self.at):
                left = 1
            self._add(_MINUTE * left)
            if self.clock.minute == 0:
                raise _TurnedOver

    def seconds(self) -> None:
        if self.clock.second:
            self._moves()
            self._add(_MINUTE - self.clock.second)
            raise _TurnedOver

    def _moves(self) -> bool:
        """Whether this is the first move, before which the smaller units are set to nothing."""
        self._moves_left -= 1
        if not self._moves_left:
            raise _GoesRound
        is_first, self._is_moved = not self._is_moved, True
        return is_first

    def _day_matches(self) -> bool:
        rule, clock = self._fields.day_rule, self.clock
        by_day = bool(rule.day.mask >> clock.day & 1)
        by_weekday = bool(rule.weekday.mask >> clock.isoweekday() % 7 & 1)
        if rule.day.starred or rule.weekday.starred:
            return by_day and by_weekday
        return by_day or by_weekday

    def _add(self, seconds: int) -> None:
        self.at += seconds
        self.clock = self._clock_at(self.at)

    def _set(self, clock: dt.datetime) -> None:
        """The instant that Go chooses for a wall clock, also for one that shows no such time."""
        local = (clock - _EPOCH) // dt.timedelta(seconds=1)
        period = self._period(local)
        offset = self._zone.offsets[period]
        begins, ends = self._zone.starts[period], (*self._zone.starts, 1 << 62)[period + 1]
        if offset and not begins <= local - offset < ends:
            offset = self._zone.offsets[self._period(local - offset)]
        self.at = local - offset
        self.clock = self._clock_at(self.at)

    def _clock_at(self, second: int) -> dt.datetime:
        offset = self._zone.offsets[self._period(second)]
        return _EPOCH + dt.timedelta(seconds=second + offset)

    def _period(self, second: int) -> int:
        return bisect_right(self._zone.starts, second) - 1
