"""Random expressions that know what they mean, without any parser.

A sample carries its text and, made beside the text and not from it, the sets of values and the
predicates on dates that it stands for. Oracles use those; the engine gets the text alone.
Everything is drawn from a ``random.Random``, so a loop over seeds and Hypothesis can both drive it.
"""

from __future__ import annotations

import calendar
import datetime as dt
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def samples(normally: int) -> int:
    """How many cases to try; the environment variable multiplies it for long runs."""
    return int(normally * float(os.environ.get("DUEPOINT_SAMPLES_FACTOR", "1")))


def chance(of: str) -> Random:
    """The same cases each time; the environment variable chooses others for long runs."""
    return Random(of + os.environ.get("DUEPOINT_SAMPLES_SEED", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    text: str
    values: frozenset[int]
    starred: bool = False
    sweeping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DayField:
    text: str
    matches: Callable[[dt.date], bool]
    starred: bool = False
    plain: frozenset[int] | None = None  # the values, when no special form is in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    text: str
    second: Field | None
    minute: Field
    hour: Field
    day: DayField
    month: Field
    weekday: DayField
    year: Field | None = None

    @property
    def sweeping(self) -> bool:
        return self.minute.sweeping or self.hour.sweeping

    def matches_day(self, date: dt.date) -> bool:
        if date.month not in self.month.values:
            return False
        if self.year and not self.year.starred and date.year not in self.year.values:
            return False
        day, weekday = self.day.matches(date), self.weekday.matches(date)
        return day and weekday if self.day.starred or self.weekday.starred else day or weekday

    def matches(self, local: dt.datetime) -> bool:
        seconds = self.second.values if self.second else {0}
        return (
            local.second in seconds
            and local.minute in self.minute.values
            and local.hour in self.hour.values
            and self.matches_day(local.date())
        )


def field(rng: Random, low: int, high: int, names: list[str] | None = None) -> Field:
    items = [_item(rng, low, high, names) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    values = frozenset().union(*(item.values for item in items))
    return Field(
        text=",".join(item.text for item in items),
        values=values,
        starred=any(item.starred for item in items),
        sweeping=any(item.sweeping for item in items) or len(values) == high - low + 1,
    )


def _item(rng: Random, low: int, high: int, names: list[str] | None) -> Field:
    shape = rng.choice(("star", "step", "one", "one", "range", "range", "range-step", "from-step"))
    first, last = sorted((rng.randint(low, high), rng.randint(low, high)))
    step = rng.randint(1, rng.choice((3, high - low + 1)))

    def word(value: int) -> str:
        if names and rng.random() < 0.4:
            return rng.choice((str.upper, str.lower, str.title))(names[value - low])
        return str(value).zfill(rng.choice((1, 1, 1, 2)))

    if shape == "star":
        every = frozenset(range(low, high + 1))
        return Field(text=rng.choice("**?"), values=every, starred=True, sweeping=True)
    if shape == "step":
        stepped = frozenset(range(low, high + 1, step))
        return Field(text=f"*/{step}", values=stepped, starred=step == 1, sweeping=True)
    if shape == "one":
        return Field(text=word(first), values=frozenset({first}))
    if shape == "from-step":
        stepped = frozenset(range(first, high + 1, step))
        return Field(text=f"{word(first)}/{step}", values=stepped, sweeping=first == low)
    whole = first == low and last == high
    if shape == "range":
        values = frozenset(range(first, last + 1))
        return Field(text=f"{word(first)}-{word(last)}", values=values, sweeping=whole)
    values = frozenset(range(first, last + 1, step))
    return Field(text=f"{word(first)}-{word(last)}/{step}", values=values, sweeping=whole)


def day_field(rng: Random, *, special: bool) -> DayField:
    if special and rng.random() < 0.4:
        return rng.choice((_last_day, _last_workday, _nearest_workday))(rng)
    plain = field(rng, 1, 31)
    return DayField(
        text=plain.text,
        matches=lambda date: date.day in plain.values,
        starred=plain.starred,
        plain=plain.values,
    )


def weekday_field(rng: Random, *, special: bool) -> DayField:
    if special and rng.random() < 0.4:
        return rng.choice((_last_weekday, _nth_weekday, _wrapped_weekdays, _seven))(rng)
    plain = field(rng, 0, 6, WEEKDAYS)
    return DayField(
        text=plain.text,
        matches=lambda date: date.isoweekday() % 7 in plain.values,
        starred=plain.starred,
        plain=plain.values,
    )


def _length(date: dt.date) -> int:
    return calendar.monthrange(date.year, date.month)[1]


def _last_day(_: Random) -> DayField:
    return DayField(text="L", matches=lambda date: date.day == _length(date))


def _last_workday(_: Random) -> DayField:
    def matches(date: dt.date) -> bool:
        rest = [date.replace(day=day) for day in range(date.day, _length(date) + 1)]
        return [day.isoweekday() < 6 for day in rest] == [True] + [False] * (len(rest) - 1)

    return DayField(text="LW", matches=matches)


def _nearest_workday(rng: Random) -> DayField:
    wanted = rng.randint(1, 31)

    def matches(date: dt.date) -> bool:
        target = date.replace(day=min(wanted, _length(date)))
        workdays = [
            date.replace(day=day)
            for day in range(1, _length(date) + 1)
            if date.replace(day=day).isoweekday() < 6
        ]
        return date == min(workdays, key=lambda day: abs(day - target))

    return DayField(text=f"{wanted}W", matches=matches)


def _last_weekday(rng: Random) -> DayField:
    weekday = rng.randint(0, 7)

    def matches(date: dt.date) -> bool:
        return date.isoweekday() % 7 == weekday % 7 and date.day + 7 > _length(date)

    return DayField(text=f"{weekday}L", matches=matches)


def _nth_weekday(rng: Random) -> DayField:
    weekday, nth = rng.randint(0, 7), rng.randint(1, 5)

    def matches(date: dt.date) -> bool:
        return date.isoweekday() % 7 == weekday % 7 and (date.day + 6) // 7 == nth

    return DayField(text=f"{weekday}#{nth}", matches=matches)


def _wrapped_weekdays(rng: Random) -> DayField:
    first, length = rng.randint(1, 6), rng.randint(1, 6)
    last = (first + length) % 7
    values = {(first + more) % 7 for more in range(length + 1)}
    return DayField(
        text=f"{WEEKDAYS[first]}-{WEEKDAYS[last].lower()}",
        matches=lambda date: date.isoweekday() % 7 in values,
    )


def _seven(rng: Random) -> DayField:
    first = rng.randint(1, 7)
    values = {value % 7 for value in range(first, 8)}
    return DayField(
        text=f"{first}-7" if first < 7 else "7",
        matches=lambda date: date.isoweekday() % 7 in values,
    )


def sample(rng: Random, *, special: bool = False, seconds: bool = False) -> Sample:
    """A random expression; ``special`` adds L, W, # and other forms that CronJob does not know."""
    second = field(rng, 0, 59) if seconds else None
    minute, hour = field(rng, 0, 59), field(rng, 0, 23)
    day, month = day_field(rng, special=special), field(rng, 1, 12, MONTHS)
    weekday = weekday_field(rng, special=special)
    parts = [part.text for part in (second, minute, hour, day, month, weekday) if part]
    return Sample(
        text=rng.choice((" ", "  ", "\t")).join(parts),
        second=second,
        minute=minute,
        hour=hour,
        day=day,
        month=month,
        weekday=weekday,
    )


def plain_texts(rng: Random, count: int, *, pool: int = 3_000) -> list[str]:
    """Many random five-field texts, quickly: fields are drawn once and combined."""
    minutes = [field(rng, 0, 59).text for _ in range(pool)]
    hours = [field(rng, 0, 23).text for _ in range(pool)]
    days = [field(rng, 1, 31).text for _ in range(pool)]
    months = [field(rng, 1, 12, MONTHS).text for _ in range(pool)]
    weekdays = [field(rng, 0, 6, WEEKDAYS).text for _ in range(pool)]
    pools = (minutes, hours, days, months, weekdays)
    blanks = (" ", " ", " ", "  ")
    return [rng.choice(blanks).join(map(rng.choice, pools)) for _ in range(count)]


#: The object that H fields of samples are hashed for.
IDENTITY = "prod/nightly-report"


def hashed(rng: Random, name: str, low: int, high: int) -> Field:
    """An H field: a value of the documented hash, worked out apart from the engine."""
    digest = hashlib.sha256(f"{IDENTITY}\n{name}".encode()).digest()
    number = int.from_bytes(digest[:8], "big")
    first, last = sorted((rng.randint(low, high), rng.randint(low, high)))
    step = rng.randint(1, high - low + 1)
    shape = rng.choice(("H", "range", "step", "range-step"))
    letter = rng.choice("Hh")
    if shape == "H":
        return Field(text=letter, values=frozenset({low + number % (high - low + 1)}))
    if shape == "range":
        value = first + number % (last - first + 1)
        return Field(text=f"{letter}({first}-{last})", values=frozenset({value}))
    text = f"{letter}({first}-{last})/{step}"
    if shape == "step":
        first, last, text = low, high, f"{letter}/{step}"
    begin = first + number % min(step, last - first + 1)
    whole = first == low and last == high
    values = frozenset(range(begin, last + 1, step))
    return Field(text=text, values=values, sweeping=whole or len(values) == high - low + 1)


def years(rng: Random) -> Field:
    """A year field that lists some years of the test's decades, or all."""
    drawn = field(rng, 2003, 2037)
    if drawn.starred or "*" in drawn.text or "/" in drawn.text:
        return Field(text="*", values=frozenset(range(1970, 2100)), starred=True)
    return Field(text=drawn.text, values=drawn.values)


def near_changes(
    rng: Random, *, special: bool = False, seconds: bool = False, year: bool = False
) -> Sample:
    """A sample for windows of a few days around a clock change.

    Most have fixed times in the small hours, where clocks change, and match on most days.
    """
    drawn = sample(rng, special=special, seconds=seconds)
    if rng.random() < 0.7:
        hour, minute = _fixed(rng, (0, 1, 2, 3, 4, 23)), _fixed(rng, (0, 5, 15, 30, 44, 45, 59))
    else:
        hour, minute = drawn.hour, drawn.minute
    if special and rng.random() < 0.15:
        minute = hashed(rng, "minute", 0, 59)
    if special and rng.random() < 0.1:
        hour = hashed(rng, "hour", 0, 23)
    keep_days = rng.random() < 0.2
    every_day = DayField(text="*", matches=lambda _: True, starred=True)
    every_month = Field(text="*", values=frozenset(range(1, 13)), starred=True)
    day = drawn.day if keep_days else every_day
    month = drawn.month if keep_days else every_month
    listed = years(rng) if year else None
    weekday = drawn.weekday if keep_days else every_day
    second = drawn.second
    if listed and second is None:
        second = Field(text="0", values=frozenset({0}))
    fields = (second, minute, hour, day, month, weekday, listed)
    return Sample(
        text=" ".join(part.text for part in fields if part),
        second=second,
        minute=minute,
        hour=hour,
        day=day,
        month=month,
        weekday=weekday,
        year=listed,
    )


def _fixed(rng: Random, values: tuple[int, ...]) -> Field:
    chosen = rng.sample(values, rng.choice((1, 1, 2, 3)))
    return Field(text=",".join(str(value) for value in chosen), values=frozenset(chosen))
