"""CEL rules of one expression string: the grammar that a Schedule's `schedule` must have.

They are meant to catch every slip of the pen at `kubectl apply` and to say what to write instead.
What needs arithmetic on the calendar (a date that never comes, a step beyond its field's range) is
left to the operator, which knows the engine.

How the rules are cut, measured on kube-apiserver v1.36: one `matches` per field, so that the
message can name the field; no `split` into fields and no `string()` in messages, because both
exceed the API server's cost budget for 32 expressions of 200 characters. Blanks and tabs separate
fields. Each rule keeps quiet where an earlier one has spoken, so that one mistake is one message.
"""

from __future__ import annotations

from typing import Any

Rule = dict[str, Any]

FIELD_COUNT = r"^[ \t]*[!-~]+([ \t]+[!-~]+){4,6}[ \t]*$"
SPECIAL = r"^[ \t]*(@|TZ=|CRON_TZ=)"
PLAIN_CHARACTERS = r"^[!-~ \t]*$"

MONTH = "(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
DAY = "(?i:sun|mon|tue|wed|thu|fri|sat)"

# Numbers of a field; a leading zero is allowed, as CronJob does.
SIXTY = "[0-5]?[0-9]"
HOURS = "([01]?[0-9]|2[0-3])"
DAYS = "(0?[1-9]|[12][0-9]|3[01])"
MONTHS = f"(0?[1-9]|1[0-2]|{MONTH})"
WEEKDAYS = f"(0?[0-7]|{DAY})"
YEARS = "[0-9]{4}"

# Where each field stands when there are 5, 6 or 7 of them: (fields before, fields after at least,
# fields after at most), for the forms with and without the seconds in front.
SECOND_FIRST = ((0, 5, 6),)
MINUTE = ((0, 4, 4), (1, 4, 5))
HOUR = ((1, 3, 3), (2, 3, 4))
DAY_OF_MONTH = ((2, 2, 2), (3, 2, 3))
MONTH_PLACE = ((3, 1, 1), (4, 1, 2))
DAY_OF_WEEK = ((4, 0, 0), (5, 0, 1))
YEAR = ((6, 0, 0),)


def expression_rules() -> list[Rule]:
    """The rules in the order in which a reader should learn of them."""
    return [*_text_rules(), *_special_rules(), *_field_rules(), *_number_rules()]


def _text_rules() -> list[Rule]:
    return [
        _rule(
            f"self.matches(r'{PLAIN_CHARACTERS}')",
            "use only plain ASCII characters, blanks and tabs; no line breaks, full-width digits "
            "or invisible marks",
        ),
        _rule(
            r"!self.matches(r'^[ \t]*(CRON_)?TZ=')",
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
    time = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]+)?"
    zone = r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
    at = rf"{date}[Tt]{time}{zone}|[0-9]{{1,12}}"
    macros = "yearly|annually|monthly|weekly|daily|midnight|hourly"
    return [
        _rule(
            rf"!self.matches(r'^[ \t]*@') || self.matches(r'^[ \t]*@({macros})[ \t]*$')"
            r" || self.matches(r'^[ \t]*@(every|at)([ \t]|$)')",
            "no such macro: write @yearly, @annually, @monthly, @weekly, @daily, @midnight, "
            "@hourly, @every 1h30m or @at 2026-12-24T18:00:00Z, in lower case",
        ),
        _rule(
            r"!self.matches(r'^[ \t]*@every([ \t]|$)')"
            rf" || self.matches(r'^[ \t]*@every[ \t]+{duration}[ \t]*$')",
            "after @every write a positive duration of the units d, h, m, s and ms, such as "
            "@every 90s, @every 1h30m or @every 500ms",
        ),
        _rule(
            # Nothing but zeros, or at most 99 ms in all.
            rf"!self.matches(r'^[ \t]*@every[ \t]+{duration}[ \t]*$')"
            r" || self.matches(r'^[^1-9]*[1-9].*[smhd]')"
            r" && !self.matches(r'^[ \t]*@every[ \t]+0*[0-9]{1,2}([.][0-9]+)?ms[ \t]*$')",
            "the shortest period is 100 ms (1 s with a jobTemplate): write @every 1s or longer",
        ),
        _rule(
            r"!self.matches(r'^[ \t]*@at([ \t]|$)')"
            rf" || self.matches(r'^[ \t]*@at[ \t]+({at})[ \t]*$')",
            "after @at write an RFC 3339 time with its zone, such as @at 2026-12-24T18:00:00Z or "
            "@at 2026-12-24T19:00:00+01:00, or unix seconds, such as @at 1798135200",
        ),
    ]


def _field_rules() -> list[Rule]:
    hashed = "H, H(0-{0}), H/{1}"
    return [
        _field(
            SECOND_FIRST,
            _items(SIXTY, spread=True),
            "seconds (first of 6 or 7 fields): write * or 0-59, a range 10-30, a list 0,30, "
            "a step */15 or 10-50/5, or " + hashed.format(29, 15),
        ),
        _field(
            MINUTE,
            _items(SIXTY, spread=True),
            "minute: write * or 0-59, a range 10-30, a list 0,30, a step */5 or 10-50/5, or "
            + hashed.format(29, 15),
        ),
        _field(
            HOUR,
            _items(HOURS, spread=True),
            "hour: write * or 0-23, a range 9-17, a list 6,18, a step */2 or 8-18/2, or "
            + hashed.format(7, 6),
        ),
        _field(
            DAY_OF_MONTH,
            _items(DAYS, "LW?", f"{DAYS}W", spread=True),
            "day-of-month: write * or ? or 1-31, a range 1-15, a list 1,15, a step */2, "
            "L (last day), 15W (nearest weekday), LW, or H, H(1-10)",
        ),
        _field(
            MONTH_PLACE,
            _items(MONTHS, spread=True),
            "month: write * or 1-12 or JAN-DEC, a range 3-9 or NOV-FEB, a list 1,7, a step */3, "
            "or H",
        ),
        _field(
            DAY_OF_WEEK,
            _items(WEEKDAYS, f"{WEEKDAYS}L", f"{WEEKDAYS}#[1-5]", spread=True),
            "day-of-week: write * or ? or 0-7 or SUN-SAT (0 and 7 are Sunday), a range MON-FRI, "
            "a list 1,3, 5L (last Friday), 1#2 (second Monday), or H",
        ),
        _field(
            YEAR,
            _items(YEARS),
            "year (last of 7 fields): write * or a year of four digits, a range 2026-2030, "
            "a list or a step",
        ),
    ]


def _number_rules() -> list[Rule]:
    return [
        _rule(
            r"self.matches(r'^[ \t]*@') || !self.matches(r'/0+([^0-9]|$)')",
            "a step of zero never moves: write a step of 1 or more, such as */5",
        ),
        _rule(
            r"self.matches(r'^[ \t]*@') || self.findAll(r'\b[0-9]{1,4}-[0-9]{1,4}\b')"
            ".all(range, int(range.split('-')[0]) <= int(range.split('-')[1]))",
            "a range of numbers runs upward: write 3-5, not 5-3, or two ranges such as 22-23,0-5; "
            "only ranges of names, such as FRI-MON, may wrap",
        ),
    ]


def _items(value: str, *others: str, spread: bool = False) -> str:
    """A comma list of the field's values, ranges and steps, H forms and special forms."""
    starts = [r"[*?]", f"{value}(-{value})?"]
    if spread:
        starts.append(rf"H(\({value}-{value}\))?")
    forms = [f"({'|'.join(starts)})(/[0-9]+)?", *others]
    item = f"({'|'.join(forms)})"
    return f"{item}(,{item})*"


def _field(places: tuple[tuple[int, int, int], ...], items: str, message: str) -> Rule:
    shapes = "|".join(
        rf"([^ \t]+[ \t]+){{{before}}}{items}([ \t]+[^ \t]+){{{least},{most}}}"
        for before, least, most in places
    )
    return _rule(
        f"self.matches(r'{SPECIAL}') || !self.matches(r'{FIELD_COUNT}')"
        f"{_absent(places)} || self.matches(r'^[ \\t]*({shapes})[ \\t]*$')",
        message,
    )


def _absent(places: tuple[tuple[int, int, int], ...]) -> str:
    """True where this field does not exist: seconds in 5 fields, the year in 5 or 6."""
    if places == SECOND_FIRST:
        return r" || self.matches(r'^[ \t]*[^ \t]+([ \t]+[^ \t]+){4}[ \t]*$')"
    if places == YEAR:
        return r" || self.matches(r'^[ \t]*[^ \t]+([ \t]+[^ \t]+){4,5}[ \t]*$')"
    return ""


def _rule(rule: str, message: str) -> Rule:
    return {"rule": rule, "message": message}
