"""CEL rules of one expression string: the grammar that a Schedule's `schedule` must have.

They accept what the engine accepts (operator/duepoint/expressions) and refuse what it refuses, text
by text, and say what to write instead; two tests hold the two together, one of them on a real API
server. What needs a calendar or arithmetic over the whole text is left to the engine alone: a date
that never comes, an instant beyond the year 2112, a period that is too short or too fine in sum.

How the rules are cut, measured on kube-apiserver v1.36: one `matches` per field, so that the
message can name the field; no `split` into fields and no `string()` in messages, because both
exceed the API server's cost budget for 32 expressions of 200 characters. Two `find`, counted from
the end of the text, get the text of a field. Each rule passes texts that an earlier one refuses, so
that one mistake gives one message.
"""

from __future__ import annotations

from typing import Any

Rule = dict[str, Any]

# White space of ASCII separates, tab to carriage return, and may stand around the text, as in
# CronJob's parser: a block `schedule: |` ends with a line end.
SPACE = r"[ \t-\r]"
WORD = r"[^ \t-\r]+"

FIELD_COUNT = rf"^{SPACE}*[!-~]+({SPACE}+[!-~]+){{4,6}}{SPACE}*$"
SPECIAL = rf"^{SPACE}*(@|TZ=|CRON_TZ=)"
PLAIN_CHARACTERS = r"^[!-~ \t-\r]*$"

MONTH = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
DAY = "(?i:sun|mon|tue|wed|thu|fri|sat)"

# Numbers of a field, after any leading zeros.
SIXTY = "[0-5]?[0-9]"
HOURS = "([01]?[0-9]|2[0-3])"
DAYS = "([1-9]|[12][0-9]|3[01])"
MONTHS = "([1-9]|1[0-2])"
WEEKDAYS = "[0-7]"
YEARS = "(19[7-9]|20[0-9])[0-9]"

# Steps of a field, after any leading zeros: no larger than the field. A step of zero passes here,
# because another rule refuses it.
STEPS_OF_SIXTY = "([0-5]?[0-9]|60)"
STEPS_OF_HOURS = "(1?[0-9]|2[0-4])"
STEPS_OF_DAYS = "([0-2]?[0-9]|3[01])"
STEPS_OF_MONTHS = "([0-9]|1[0-2])"
STEPS_OF_WEEKDAYS = "[0-7]"
STEPS_OF_YEARS = "([0-9]?[0-9]|1[0-2][0-9]|130)"

# Where each field stands when there are 5, 6 or 7 of them: (fields before, fields after at least,
# fields after at most), for the forms with and without the seconds in front.
SECOND_FIRST = ((0, 5, 6),)
MINUTE = ((0, 4, 4), (1, 4, 5))
HOUR = ((1, 3, 3), (2, 3, 4))
DAY_OF_MONTH = ((2, 2, 2), (3, 2, 3))
MONTH_PLACE = ((3, 1, 1), (4, 1, 2))
DAY_OF_WEEK = ((4, 0, 0), (5, 0, 1))
YEAR = ((6, 0, 0),)

# Ranges of two numbers; the rule of the field refuses those with more digits than a year.
NUMBER_RANGE = r"\b0*[0-9]{1,4}-[+]?0*[0-9]{1,4}\b"


def expression_rules() -> list[Rule]:
    """Return the rules in the order in which a reader should learn them."""
    return [*_text_rules(), *_special_rules(), *_field_rules(), *_number_rules()]


def _text_rules() -> list[Rule]:
    return [
        _rule(
            f"self.matches(r'{PLAIN_CHARACTERS}')",
            "use only plain ASCII characters, blanks, tabs and line ends; no full-width digits, "
            "no-break spaces or invisible marks",
        ),
        _rule(
            rf"!self.matches(r'^{SPACE}*(CRON_)?TZ=')",
            "take TZ= or CRON_TZ= out of the schedule and write the zone into spec.timeZone, "
            "such as timeZone: Europe/Rome",
        ),
        _rule(
            f"self.matches(r'{SPECIAL}') || self.matches(r'{FIELD_COUNT}')"
            f" || !self.matches(r'{PLAIN_CHARACTERS}')",
            "write 5 fields (minute hour day-of-month month day-of-week), 6 (seconds first) or 7 "
            "(seconds first, year last), or one of @every 1h30m, @at 2026-12-24T18:00:00Z, "
            "@yearly, @monthly, @weekly, @daily, @hourly",
        ),
    ]


def _special_rules() -> list[Rule]:
    duration = r"([0-9]+([.][0-9]+)?(ms|s|m|h|d))+"
    date = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    time = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?"
    zone = r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
    at = rf"{date}[Tt]{time}{zone}|[0-9]+"
    macros = "yearly|annually|monthly|weekly|daily|midnight|hourly|never"
    every = rf"^{SPACE}*@every{SPACE}+"
    return [
        _rule(
            rf"!self.matches(r'^{SPACE}*@') || self.matches(r'^{SPACE}*@({macros}){SPACE}*$')"
            rf" || self.matches(r'^{SPACE}*@(every|at)({SPACE}|$)')",
            "no such macro: write @yearly, @annually, @monthly, @weekly, @daily, @midnight, "
            "@hourly, @never, @every 1h30m or @at 2026-12-24T18:00:00Z, in lower case",
        ),
        _rule(
            rf"!self.matches(r'^{SPACE}*@every({SPACE}|$)')"
            rf" || self.matches(r'{every}{duration}{SPACE}*$')",
            "after @every write a positive duration of the units d, h, m, s and ms, such as "
            "@every 90s, @every 1h30m or @every 500ms",
        ),
        _rule(
            # Nothing but zeros, or at most 99 ms in all.
            rf"!self.matches(r'{every}{duration}{SPACE}*$')"
            r" || self.matches(r'^[^1-9]*[1-9].*[smhd]')"
            rf" && !self.matches(r'{every}0*[0-9]{{1,2}}([.][0-9]+)?ms{SPACE}*$')",
            "the shortest period is 100 ms (1 s with a jobTemplate): write @every 1s or longer",
        ),
        _rule(
            rf"!self.matches(r'^{SPACE}*@at({SPACE}|$)')"
            rf" || self.matches(r'^{SPACE}*@at{SPACE}+({at}){SPACE}*$')",
            "after @at write an RFC 3339 time with its zone, such as @at 2026-12-24T18:00:00Z or "
            "@at 2026-12-24T19:00:00+01:00, or unix seconds, such as @at 1798135200",
        ),
    ]


def _field_rules() -> list[Rule]:
    hashed = "H, H(0-{0}), H/{1}"
    return [
        _field(
            SECOND_FIRST,
            _items(SIXTY, STEPS_OF_SIXTY, spread=True),
            "seconds (first of 6 or 7 fields)",
            "write * or 0-59, a range 10-30, a list 0,30, a step from 1 to 60 such as */15 or "
            "10-50/5, or " + hashed.format(29, 15),
        ),
        _field(
            MINUTE,
            _items(SIXTY, STEPS_OF_SIXTY, spread=True),
            "minute",
            "write * or 0-59, a range 10-30, a list 0,30, a step from 1 to 60 such as */5 or "
            "10-50/5, or " + hashed.format(29, 15),
        ),
        _field(
            HOUR,
            _items(HOURS, STEPS_OF_HOURS, spread=True),
            "hour",
            "write * or 0-23, a range 9-17, a list 6,18, a step from 1 to 24 such as */2 or "
            "8-18/2, or " + hashed.format(7, 6),
        ),
        _field(
            DAY_OF_MONTH,
            _items(DAYS, STEPS_OF_DAYS, "[Ll][Ww]?", f"0*{DAYS}[Ww]", spread=True),
            "day-of-month",
            "write * or ? or 1-31, a range 1-15, a list 1,15, a step from 1 to 31 such as */2, "
            "L (last day), 15W (nearest weekday), LW, or H, H(1-10)",
        ),
        _field(
            MONTH_PLACE,
            _items(MONTHS, STEPS_OF_MONTHS, name=MONTH, spread=True),
            "month",
            "write * or 1-12 or JAN-DEC, a range 3-9 or NOV-FEB, a list 1,7, a step from 1 to 12 "
            "such as */3, or H",
        ),
        _field(
            DAY_OF_WEEK,
            _items(
                WEEKDAYS,
                STEPS_OF_WEEKDAYS,
                f"(0*{WEEKDAYS}|{DAY})([Ll]|#0*[1-5])",
                name=DAY,
                spread=True,
            ),
            "day-of-week",
            "write * or ? or 0-7 or SUN-SAT (0 and 7 are Sunday), a range MON-FRI, "
            "a list 1,3, 5L (last Friday), 1#2 (second Monday), or H",
        ),
        _field(
            YEAR,
            _items(YEARS, STEPS_OF_YEARS),
            "year (last of 7 fields)",
            "write * or a year from 1970 to 2099, a range 2026-2030, a list or a step",
        ),
    ]


def _number_rules() -> list[Rule]:
    zero = r"[^ \t-\r,]*/[+]?0+\b"
    downward = "int(range.split('-')[0]) > int(range.split('-')[1])"
    ranges = f"self.findAll(r'{NUMBER_RANGE}')"
    return [
        _naming(
            rf"self.matches(r'^{SPACE}*@') || !self.matches(r'{zero}')",
            f"self.find(r'{zero}')",
            "a step of zero never moves: write a step of 1 or more, such as */5",
        ),
        _naming(
            rf"self.matches(r'^{SPACE}*@') || !{ranges}.exists(range, {downward})",
            f"{ranges}.filter(range, {downward})[0]",
            "a range of numbers runs upward: write 3-5, not 5-3, or two ranges such as 22-23,0-5; "
            "only ranges with a name, such as FRI-MON, may wrap",
        ),
    ]


def _items(value: str, steps: str, *others: str, name: str = "", spread: bool = False) -> str:
    """Return the pattern of a list of the field's values, ranges, steps and special forms.

    Empty items are ignored, as in CronJob; at least one is not empty.
    """
    plain = f"([+]?0*{value}|{name})" if name else f"[+]?0*{value}"
    starts = [r"[*?]", f"{plain}(-{plain})?"]
    if spread:
        own = f"(0*{value}|{name})" if name else f"0*{value}"
        starts.append(rf"[Hh](\({own}-{own}\))?")
    forms = [f"({'|'.join(starts)})(/[+]?0*{steps})?", *others]
    item = f"({'|'.join(forms)})"
    return f",*{item}(,+{item})*,*"


def _field(places: tuple[tuple[int, int, int], ...], items: str, name: str, message: str) -> Rule:
    shapes = "|".join(
        rf"({WORD}{SPACE}+){{{before}}}{items}({SPACE}+{WORD}){{{least},{most}}}"
        for before, least, most in places
    )
    return {
        "rule": f"self.matches(r'{SPECIAL}') || !self.matches(r'{FIELD_COUNT}')"
        f"{_absent(places)} || self.matches(r'^{SPACE}*({shapes}){SPACE}*$')",
        "message": f"{name}: {message}",
        "messageExpression": f"'{name} \"' + {_found(places)} + '\": {message}'",
    }


def _found(places: tuple[tuple[int, int, int], ...]) -> str:
    """Return CEL for the text of the field: the last of the words up to it."""
    last = places[-1]
    upto = rf"self.find(r'^{SPACE}*({WORD}{SPACE}+){{{last[0]}}}{WORD}')"
    if len(places) == 1:
        return f"{upto}.find(r'{WORD}$')"
    first = places[0]
    five = rf"self.matches(r'^{SPACE}*{WORD}({SPACE}+{WORD}){{4}}{SPACE}*$')"
    of_five = rf"self.find(r'^{SPACE}*({WORD}{SPACE}+){{{first[0]}}}{WORD}')"
    return f"({five} ? {of_five} : {upto}).find(r'{WORD}$')"


def _absent(places: tuple[tuple[int, int, int], ...]) -> str:
    """Return CEL that is true without this field: seconds in 5 fields, the year in 5 or 6."""
    if places == SECOND_FIRST:
        return rf" || self.matches(r'^{SPACE}*{WORD}({SPACE}+{WORD}){{4}}{SPACE}*$')"
    if places == YEAR:
        return rf" || self.matches(r'^{SPACE}*{WORD}({SPACE}+{WORD}){{4,5}}{SPACE}*$')"
    return ""


def _naming(rule: str, wrong: str, message: str) -> Rule:
    """Return a rule whose message begins with the wrong text; `wrong` is CEL for it."""
    expression = f"'\"' + {wrong} + '\": {message}'"
    return {"rule": rule, "message": message, "messageExpression": expression}


def _rule(rule: str, message: str) -> Rule:
    return {"rule": rule, "message": message}
