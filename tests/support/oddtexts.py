"""Random schedule texts at the edge of the grammar: mostly well formed, with one or two slips.

For tests that compare two parsers or validators: the engine, the rules of the CRD, CronJob's own
parser. Each accepts roughly half of the texts. A `random.Random` puts them together from pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

_MONTHS = ("JAN", "feb", "Mar", "DEC", "nov")
_DAYS = ("SUN", "mon", "Fri", "SAT")
#: The name of each field, its lowest and highest number, the names of its values.
FIELDS = (
    ("second", 0, 59, ()),
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 7, _DAYS),
    ("year", 1970, 2099, ()),
)
FIVE = FIELDS[1:6]
_SPACES = (" ", " ", " ", "  ", "\t", "\n", "\r\n", "\v", "\f")
_STRANGE = ("\u00a0", "\u3000", "\x1c", "\x00", "\u200f", "\u0665", "\uff10", "\U0001d7d9")
_SLIPS = (*"*?,,-/++0Hh()LWlw#:@.;~x ", "\n", "61", "*-5", "TZ=", "mon", *_STRANGE)
_OTHERS = (
    "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@Daily",
    "@reboot", "@", "TZ=UTC 0 0 * * *", "CRON_TZ=UTC 0 0 * * *", " tz=UTC 0 0 * * *",
    "@every 1h30m", "@every 90s", "@every  5m", "@every 100ms", "@every 99ms", "@every 0s",
    "@every 0", "@every 1.5h", "@every .5h", "@every 1.h", "@every -5m", "@every +5m", "@every 1w",
    "@every 50ms49ms", "@every 00100ms", "@every 1us", "@EVERY 5m", "@every", "@every 5m 5m",
    "@every 0.0001ms", "@every 100.5ms", "@every 99999999999999999999h", "@every 1e3s",
    "@every 0h0.05s", "@every1h", "@every 0.1s", "@every 0000000000.1000000000000000000s",
    "@at 2026-12-24T18:00:00Z", "@at 2026-12-24t18:00:00.123456z",
    "@at 2026-12-24T18:00:00.1234567Z",
    "@at 2026-12-24T19:00:00+01:00", "@at 2026-02-30T18:00:00Z", "@at 2026-12-24T24:00:00Z",
    "@at 2026-12-24T18:00:60Z", "@at 2026-12-24T18:00:00+24:00", "@at 1798135200", "@at 0",
    "@at 0000000000000001798135200", "@at 9999999999999", "@at -5", "@at +5", "@at 2026-12-24",
    "@at 9999-01-01T00:00:00Z", "@at", "@at 1798135200 ", "@at 1798135200 1", "@AT 1798135200",
    "@at 0000-01-01T00:00:00Z", "@at \u0665",
)  # fmt: skip


def any_texts(rng: Random, count: int) -> Iterator[str]:
    """Yield texts in and near every form that the engine accepts."""
    for _ in range(count):
        kind = rng.random()
        if kind < 0.15:
            text = rng.choice(_OTHERS)
        else:
            kinds = rng.choice((FIVE, FIVE, FIELDS[:6], FIELDS))
            text = _joined(rng, [_list(rng, *each, own=True) for each in kinds])
        text = _around(rng, text)
        yield _slipped(rng, text) if rng.random() < 0.3 else text


def five_field_texts(rng: Random, count: int) -> Iterator[str]:
    """Yield one-line texts in and near the forms that CronJob accepts."""
    for _ in range(count):
        text = _joined(rng, [_list(rng, *each, own=False) for each in FIVE])
        text = _around(rng, text)
        yield _slipped(rng, text) if rng.random() < 0.25 else text


def _joined(rng: Random, words: list[str]) -> str:
    text = words[0]
    for word in words[1:]:
        text += (rng.choice(_SPACES) if rng.random() < 0.2 else " ") + word
    return text


def _around(rng: Random, text: str) -> str:
    before = rng.choice(_SPACES) if rng.random() < 0.1 else ""
    behind = rng.choice((*_SPACES, *_STRANGE[:3])) if rng.random() < 0.2 else ""
    padding = " " * rng.choice((150, 190, 199, 200)) if rng.random() < 0.01 else ""
    return before + text + padding + behind


def _slipped(rng: Random, text: str) -> str:
    """Return the text with a piece inserted, removed or doubled."""
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(3):
            case 0:
                text = text[:at] + rng.choice(_SLIPS) + text[at:]
            case 1:
                text = text[:at] + text[at + 1 :]
            case _:
                text = text[:at] + text[max(0, at - 1) : at] * rng.choice((1, 2)) + text[at:]
    return text


def _list(rng: Random, name: str, low: int, high: int, names: tuple[str, ...], *, own: bool) -> str:
    items = [
        _item(rng, name, low, high, names, own=own) for _ in range(rng.choice((1, 1, 1, 1, 2, 3)))
    ]
    if rng.random() < 0.05:
        items.insert(rng.randrange(len(items) + 1), "")
    return ",".join(items)


def _item(rng: Random, name: str, low: int, high: int, names: tuple[str, ...], *, own: bool) -> str:
    def number(value: int) -> str:
        shape = rng.random()
        if shape < 0.05:
            return f"+{value}"
        if shape < 0.1:
            return str(value).zfill(rng.choice((2, 3, 9)))
        return str(value)

    def value() -> str:
        if names and rng.random() < 0.3:
            return rng.choice(names)
        beyond = rng.random() < 0.02
        return number(rng.choice((low - 1, high + 1)) if beyond else rng.randint(low, high))

    def a_range() -> str:
        first, last = rng.randint(low, high), rng.randint(low, high)
        if first > last and rng.random() < 0.8:
            first, last = last, first
        ends = [number(first), number(last)]
        if names and rng.random() < 0.4:
            ends[rng.randrange(2)] = rng.choice(names)
        return "-".join(ends)

    forms = [lambda: rng.choice("**?"), value, value, value, a_range, a_range]
    if own and name != "year":
        forms += [lambda: rng.choice("Hh"), lambda: f"{rng.choice('HHh')}({a_range()})"]
    text = rng.choice(forms)()
    if rng.random() < 0.25:
        size = high - low + 1
        text += f"/{number(rng.choice((0, size, size + 1, *range(1, 6), rng.randint(1, size))))}"
    special = {
        "day": lambda: rng.choice(("L", "LW", "lw", f"{value()}W", f"{rng.randint(0, 32):02}w")),
        "weekday": lambda: rng.choice((f"{value()}L", f"{value()}#{number(rng.randint(0, 6))}")),
    }
    if own and name in special and rng.random() < 0.15:
        text = special[name]()
    return text
