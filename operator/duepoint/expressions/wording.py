"""A cron expression in plain words, on one line: times first, then days, months and years.

``30 2 * * 1-5`` reads "at 02:30 on Monday to Friday". The words follow the fields as the engine
reads them, after H and names have become numbers; what is too long to list is summed up.
"""

from __future__ import annotations

from collections.abc import Sequence

from duepoint.expressions import fields as masks
from duepoint.expressions import syntax

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "",
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NTH = ("", "first", "second", "third", "fourth", "fifth")

#: As many times of day are listed one by one; more are described by minute and hour.
_LISTED_TIMES = 6


def describe(fields: syntax.CronFields) -> str:
    """One line without the zone."""
    words = [_times(fields), _days(fields.day_rule)]
    months = masks.values_of(fields.day_rule.months)
    if len(months) < 12:
        words.append(f"in {_listing(_runs(months, names=_MONTHS))}")
    if fields.day_rule.years is not None:
        words.append(f"in {_listing(_runs(sorted(fields.day_rule.years)))}")
    return " ".join(words)


def _times(fields: syntax.CronFields) -> str:
    seconds, minutes, hours = (
        masks.values_of(mask) for mask in (fields.seconds, fields.minutes, fields.hours)
    )
    if len(seconds) * len(minutes) * len(hours) <= _LISTED_TIMES:
        shown = [
            f"{hour:02}:{minute:02}" + (f":{second:02}" if seconds != (0,) else "")
            for hour in hours
            for minute in minutes
            for second in seconds
        ]
        return f"at {_listing(shown)}"
    words = [_unit(minutes, 60, "minute")]
    if seconds != (0,):
        words = [_unit(seconds, 60, "second")]
        if len(minutes) < 60 or words[0].startswith("second"):
            words.append(f"of {_unit(minutes, 60, 'minute')}")
    # without its hours, "minute 5 every day" would read as once a day
    if len(hours) < 24 or words[-1].startswith(("minute", "of minute")):
        words.append(f"of {_unit(hours, 24, 'hour')}")
    return " ".join(words)


def _unit(values: Sequence[int], size: int, unit: str) -> str:
    """Such as "every minute", "every 15 minutes" or "minutes 5, 10 and 20-25"."""
    if len(values) == size:
        return f"every {unit}"
    step = values[1] - values[0] if len(values) > 2 else 0
    if step > 1 and list(values) == list(range(0, size, step)) and size % step == 0:
        return f"every {step} {unit}s"
    return f"{unit}{'s' * (len(values) > 1)} {_listing(_runs(values))}"


def _days(rule: masks.DayRule) -> str:
    by_day, by_weekday = list[str](), list[str]()
    if not rule.day.starred:
        by_day += [f"day {run}" for run in _runs(masks.values_of(rule.day.mask))]
        by_day += [f"the weekday nearest to day {day}" for day in masks.values_of(rule.day.nearest)]
        by_day += ["the last day"] * rule.day.last
        by_day += ["the last weekday (Monday to Friday)"] * rule.day.last_workday
    if not rule.weekday.starred:
        last = masks.values_of(rule.weekday.last_weekdays)
        nth = sorted(rule.weekday.nth_weekdays, key=lambda pair: (pair[1], pair[0]))
        by_weekday += _runs(masks.values_of(rule.weekday.mask), names=_WEEKDAYS)
        by_weekday += [f"the last {_WEEKDAYS[day]} of the month" for day in last]
        by_weekday += [f"the {_NTH[n]} {_WEEKDAYS[day]} of the month" for day, n in nth]
    month_days = f"on {_listing(by_day)} of the month" if by_day else ""
    weekdays = f"on {_listing(by_weekday)}" if by_weekday else ""
    if month_days and weekdays:
        return f"{month_days} or {weekdays}"
    return month_days or weekdays or "every day"


def _runs(values: Sequence[int], *, names: Sequence[str] | None = None) -> list[str]:
    """The values as texts, three or more neighbours drawn together."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    shown = []
    for run in runs:
        texts = [names[value] if names else str(value) for value in run]
        joiner = " to " if names else "-"
        shown += [f"{texts[0]}{joiner}{texts[-1]}"] if len(run) > 2 else texts
    return shown


def _listing(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
