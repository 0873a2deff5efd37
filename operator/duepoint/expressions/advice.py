"""Hints for invalid schedules and time zones: what to write instead.

Each rule is a pattern over the whole item, in capitals, with the most probable intention. The first
rule that matches gives the hint; the last one always matches. An error is clear without its hint;
the hint saves reading the documentation.

Most wrong zone names are valid ones in another case, a city without its continent, an offset, an
abbreviation (which several places share, so the hint names one as an example), or a typing mistake.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Iterator

from duepoint.expressions import durations, fields

#: Form of an item in capitals -> hint, with the parts of the item.
_OF_WEEKDAYS = {
    r"L": 'write "SAT", or "5L" for the last Friday of the month',
    r"L[0-7]": 'write the day first, such as "5L" for the last Friday',
}
_OF_ITEMS = {
    r"CRON\(.*": 'take "cron(" and ")" out, and the last field, which is the year there',
    r"-.*|.*(?:--|/-).*": "values cannot be negative",
    r"R(?:[/(].*)?": "write H, which is the same on every replica",
    r"\*?(\d{1,9})[SMHD]": 'a step has no unit; write "*/{0}" or "@every" and a duration',
    r"\*?/(\d{1,9})[A-Z]+": 'a step has no unit; write "*/{0}"',
    r"[*/](\d{1,9})": 'did you mean "*/{0}"?',
    r"\*[*]+": 'did you mean "*"?',
    r"([*?])-.*": '"{0}" is every value and takes no range; write "{0}" or two numbers',
    r"(.{1,9})/": 'write a number after "/", such as "{0}/2"',
    r"(\w{1,9})-": 'write where the range ends, such as "{0}-{0}"',
    r"(\d{1,9})(?:\.\.|:|_)(\d{1,9})": 'for a range write "{0}-{1}"',
    r"(\d{1,2})[AP]M": "hours count from 0 to 23",
    r"[0-9LW#,/*-]*[LW#][0-9LW#,/*-]*": (
        "L, LW and 15W stand alone in day-of-month, 5L and 1#2 in day-of-week; "
        "they take no ranges and no steps"
    ),
}

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_CLOCK_TIME = re.compile(r"\d{1,2}:\d\d(?::\d\d)?", re.ASCII)
#: The form of pg_cron and EventBridge.
_COUNT = re.compile(r"(?:rate\()?(\d{1,9}) ((?:second|minute|hour|day)s?)\)?", re.ASCII)
#: Form of a whole text, the first that of EventBridge -> what it probably means.
_OF_TEXTS = {
    r"at\((\S{1,40})\)": "@at {0}",
    r"((?:\d+(?:ms|[smhd]))+)": "@every {0}",
    r"(\d{4}-\d\d-\d\dT.{0,29}).*": "@at {0}",
}

_FIELD_COUNTS = (
    "write 5 (minute hour day-of-month month day-of-week), 6 (seconds first) or "
    "7 (seconds first, year last)"
)

#: Macros of other schedulers, and ones that people might expect.
_ELSEWHERE = {
    "@reboot": 'nothing boots here; to run once, write "@at" and an instant',
    "@manual": 'write "@never"',
    "@once": 'write "@at" and an instant, or "@never" to run only when triggered',
    "@minutely": 'write "* * * * *"',
    "@secondly": 'write "@every 1s"',
    "@weekdays": 'write "0 0 * * 1-5"',
    "@weekends": 'write "0 0 * * 6,0"',
    "@quarterly": 'write "0 0 1 */3 *"',
    "@biweekly": 'write "@every 14d" and a startTime',
    "@fortnightly": 'write "@every 14d" and a startTime',
}

_CHARACTERS = (
    ("\"'`\u2018\u2019\u201c\u201d", "take the quotes out of the schedule"),
    ("\u00a0\u2002\u2003\u2007\u2009\u200a\u202f\u3000", "it looks like a space; type a plain one"),
    ("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff", "it is invisible; type the schedule again"),
    ("\u2010\u2011\u2012\u2013\u2014\u2212\uff0d", 'write a plain "-"'),
    ("\u2217\uff0a\u00d7", 'write a plain "*"'),
    ("$", 'the last day of the month is "L"'),
    (";|\uff0c\u3001", 'separate the items of a list with ","'),
    ("~", 'for a value picked once write H, such as "H(0-29)"'),
    ("\\", 'take the "\\" out'),
    ("%", 'take the "%" out; what to run is not part of a schedule'),
    ("[]", "write ranges without brackets"),
    ("{}", "render the template first: {{ ... }} means nothing to a cluster"),
)


def for_item(kind: fields.FieldKind, item: str) -> str:
    """Return a hint for an item that cannot be parsed."""
    text = item.upper()
    short = [word[:3] for word in text.split("-")]
    if re.fullmatch(r"[A-Z]{3,}(?:-[A-Z]{3,})?", text) and set(short) <= set(kind.names):
        return f'write "{"-".join(short)}"'
    hint = _filled(_OF_WEEKDAYS, text) if kind is fields.WEEKDAY else ""
    usual = f'write for example "*", "{kind.low}", "{kind.low}-{kind.low + 2}" or "*/2"'
    return hint or _filled(_OF_ITEMS, text) or usual


def _filled(hints: dict[str, str], text: str) -> str:
    """Return the first hint whose form the text has, with parts of the text; empty if none."""
    for form, hint in hints.items():
        if parts := re.fullmatch(form, text, re.ASCII):
            return hint.format(*parts.groups())
    return ""


def for_number(kind: fields.FieldKind, number: int) -> str:
    """Return a hint for a number outside the field; empty if the range says it all."""
    if kind in (fields.SECOND, fields.MINUTE, fields.HOUR) and number == kind.high + 1:
        return f"count from 0 to {kind.high}"
    if kind is fields.HOUR and number <= fields.MINUTE.high:
        return "the minute comes before the hour"
    if kind is fields.WEEKDAY and 1970 <= number < 2100:
        return "a year is the last of seven fields, and seconds are the first"
    if kind is fields.WEEKDAY:
        return "0 and 7 are both Sunday"
    if kind is fields.DAY and number == 0:
        return 'count from 1; the last day is "L"'
    return "count from 1" if kind is fields.MONTH and number == 0 else ""


def for_character(character: str) -> str:
    """Return a hint for a character that no schedule may have."""
    for characters, hint in _CHARACTERS:
        if character in characters:
            return hint
    return "write plain letters and digits"


def for_macro(text: str, macros: Iterable[str]) -> str:
    """Return a hint for an unknown text that begins with ``@``."""
    text = " ".join(text.split())
    word, _, rest = text.partition(" ")
    glued = re.fullmatch(r"(@every|@at)[:= ]*(.+)", text, re.IGNORECASE)
    if glued:
        return f'did you mean "{glued[1].lower()} {glued[2][:40]}"?'
    known = f"known are {', '.join(macros)}, @every, @at and @never"
    if hint := _ELSEWHERE.get(word.lower()):
        return hint
    if word.lower() in (*macros, "@never"):
        return f'write "{word.lower()}"' + (" alone" if rest else ", in lower case")
    near = difflib.get_close_matches(
        word.lower()[:20], [*macros, "@every", "@at", "@never"], n=1, cutoff=0.7
    )
    meant = f'did you mean "{" ".join((near[0], rest[:40])).strip()}"; ' if near else ""
    return meant + known


def for_field_count(words: list[str], macros: Iterable[str]) -> str:
    """Return a hint for a text with too few or too many fields."""
    text = " ".join(words)
    if f"@{text.lower()}" in macros:
        meant = f"@{text.lower()}"
    elif words[0].lower() == "every" and (periods := durations.meant("".join(words[1:]))):
        meant = f"@every {periods[0]}"
    elif count := _COUNT.fullmatch(text):
        meant = f"@every {''.join(durations.meant(count[1] + count[2])[:1])}"
    elif words[0].lower() == "at" and len(words) > 1:
        meant = f"@at {'T'.join(words[1:])[:40]}"
    elif clock := _CLOCK.fullmatch(text):
        meant = f"{int(clock[2])} {int(clock[1])} * * *"
    else:
        meant = _filled(_OF_TEXTS, text)
    if not meant and any(_CLOCK_TIME.fullmatch(word) for word in words):
        return 'a time of day is its minute and its hour, such as "30 9 * * MON-FRI" for 09:30'
    return f'did you mean "{meant}"?' if meant else _FIELD_COUNTS


# -- time zones ----------------------------------------------------------------------------------

#: Abbreviations that are not zones, with the place that most people mean.
_ABBREVIATIONS = {
    **dict.fromkeys(("et", "edt"), "America/New_York"),
    **dict.fromkeys(("ct", "cst", "cdt"), "America/Chicago"),
    **dict.fromkeys(("mt", "mdt"), "America/Denver"),
    **dict.fromkeys(("pt", "pst", "pdt"), "America/Los_Angeles"),
    "bst": "Europe/London",
    "cest": "Europe/Berlin",
    "eest": "Europe/Helsinki",
    "west": "Europe/Lisbon",
    "msk": "Europe/Moscow",
    "ist": "Asia/Kolkata",  # codespell:ignore ist
    "sgt": "Asia/Singapore",
    "hkt": "Asia/Hong_Kong",
    "jst": "Asia/Tokyo",
    "kst": "Asia/Seoul",
    **dict.fromkeys(("aest", "aedt"), "Australia/Sydney"),
    **dict.fromkeys(("nzst", "nzdt"), "Pacific/Auckland"),
    "brt": "America/Sao_Paulo",
    "z": "Etc/UTC",
}
_LOCAL = {"local", "localtime", "system", "default"}
_OFFSET = re.compile(r"(?:utc|gmt|etc/utc|etc/gmt)?([+-])(\d{1,2})(?::?(\d\d))?", re.ASCII)
_LONGEST_COMPARED = 40
_EXAMPLE = 'write a name such as "Europe/Rome" or "Etc/UTC"'


def for_zone(zone: str, known: frozenset[str]) -> str:
    """Return a hint for an unknown zone; fast, because a tenant may send many wrong names."""
    wanted = re.sub(r"\s+", "_", zone.strip().lower())
    if wanted in _LOCAL:
        return f"the zone of a machine is never used; {_EXAMPLE}"
    whole, cities = _names(known)
    if wanted in whole:
        return f'write it as "{whole[wanted]}"'
    if wanted in _ABBREVIATIONS:
        return f'abbreviations are not unique; did you mean "{_ABBREVIATIONS[wanted]}"?'
    if offset := _OFFSET.fullmatch(wanted):
        return _for_offset(offset)
    near = cities.get(wanted) or _near(wanted, whole, cities)
    return f'did you mean "{near}"?' if near else _EXAMPLE


def _for_offset(offset: re.Match[str]) -> str:
    sign, hours, minutes = offset[1], int(offset[2]), offset[3] or "00"
    if minutes != "00" or hours > (14 if sign == "+" else 12):
        return "an offset is not a zone; write the name of a place that has it"
    if hours == 0:
        return 'write "Etc/UTC"'
    turned = "-" if sign == "+" else "+"
    return (
        f"an offset has no daylight saving; write the name of a place, "
        f'or "Etc/GMT{turned}{hours}", whose sign is the other way round'
    )


@functools.cache
def _names(known: frozenset[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the known names by themselves and by their parts after a slash, in lower case."""
    whole = {name.lower(): name for name in sorted(known)}
    cities: dict[str, str] = {}
    for lower, name in whole.items():
        parts = lower.split("/")
        for first in range(1, len(parts)):
            cities.setdefault("/".join(parts[first:]), name)
    return whole, cities


def _near(wanted: str, whole: dict[str, str], cities: dict[str, str]) -> str | None:
    """Return the most similar name; whole names first, then their last parts.

    To save time, compare only names with the same first letter and nearly the same length.
    """
    if not 3 <= len(wanted) <= _LONGEST_COMPARED:
        return None
    if (longer := whole.get(wanted.rpartition("-")[0])) is not None:
        return longer  # US/Pacific-New was one
    city = wanted.rpartition("/")[2]
    for text, names, least in ((wanted, whole, 0.8), (city, cities, 0.75)):
        likely = [name for name in names if name[0] == text[:1] and abs(len(name) - len(text)) < 2]
        if near := difflib.get_close_matches(text, likely, n=1, cutoff=least):
            return names[near[0]]
    return None


# -- valid texts that mean something else in another scheduler -----------------------------------

# Six fields begin with seconds here, as in Quartz and Spring; in EventBridge and Nomad they end
# with the year. Quartz and EventBridge count the days of the week from 1, which is Sunday. If both
# day fields are restricted, either may match, as in crontab; in Spring and Jenkins both must. The
# page docs/reference/semantics.md lists the forms of each.

_EVERY = ("*", "?")
_FIXED = re.compile(r"\d+", re.ASCII)
_STEP = re.compile(r"\*/\d", re.ASCII)
_NAME = re.compile(r"[A-Za-z]{2,}", re.ASCII)
#: Digits of weekdays, without those after # or /, which mean the same everywhere.
_NUMBERED = re.compile(r"(?<![#/\d])[1-7]", re.ASCII)


def of_other_schedulers(text: str) -> Iterator[str]:
    """Yield sentences about how another scheduler would read the text."""
    words = text.split()
    if text.lstrip().startswith("@"):
        return
    if len(words) == 5 and "H" in "".join(_NAME.sub("", word) for word in words).upper():
        yield from _of_both_days(words[2], words[4], "Jenkins")
    if len(words) not in (6, 7):
        return
    second, minute, hour, day, month, weekday, *year = words
    if not year:
        yield from _of_both_days(day, weekday, "Spring")
    is_hourly = hour in _EVERY and (
        _FIXED.fullmatch(minute) is not None or _STEP.match(second) is not None
    )
    is_odd = second not in ("0", "00") and not second.startswith("*")
    if not year and weekday in _EVERY and (is_hourly or is_odd or "?" in (hour, month)):
        # In EventBridge the fifth field is the weekday, whose numbers are one higher.
        fifth = _NUMBERED.sub(lambda found: str(int(found[0]) - 1), month)
        five = " ".join([*words[:4], fifth])
        yield (
            "the first of six fields is the second; EventBridge and Nomad begin with the minute "
            f'and end with the year: if this is theirs, write "{five}"'
        )
    elif "?" in (day, weekday) and _NUMBERED.search(weekday):
        yield (
            "1 is Monday here and in Spring, and Sunday in Quartz and EventBridge; names such as "
            "MON-FRI mean the same everywhere"
        )


def _of_both_days(day: str, weekday: str, other: str) -> Iterator[str]:
    if not {day, weekday} & {*_EVERY, "*/1"}:
        yield (
            f"either day field may match here, as in crontab; if this is for {other}, where both "
            'must, restrict one of them, such as "MON#1" for a Monday from 1 to 7'
        )
