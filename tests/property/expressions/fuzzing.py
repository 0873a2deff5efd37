"""Texts that nobody should write, and what the engine says to each; a program tries a million.

A try is a text, a zone and choices; the answer must be an expression that answers questions, or
InvalidExpression with a documented reason, within 5 ms of processor time. Texts are good ones with
some of them broken, pieces of the grammar in any order, characters of all planes, and long ones.
A slow answer is asked for again with empty caches, so that only what is slow each time counts.

    python -m tests.property.expressions.fuzzing [COUNT [SEED]]
"""

from __future__ import annotations

import gc
import itertools
import json
import platform
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from duepoint import errors
from duepoint.expressions import compile_expression, timezones
from tests.property.expressions import generators
from tests.support import coldengine

NOW_US = 1_790_000_000_000_000
BAR_SECONDS = 0.005
REASONS = {"InvalidSchedule", "NeverFires", "OutOfRange", "UnknownTimeZone"}
PIECES = (
    *(
        "*",
        "?",
        "/",
        "-",
        ",",
        "#",
        "L",
        "W",
        "LW",
        "H",
        "H(",
        ")",
        "(",
        "R",
        " ",
        "\t",
        "  ",
        "\n",
    ),
    *("0", "1", "5", "7", "12", "24", "31", "59", "60", "61", "99", "1970", "2099", "9" * 30),
    *("MON", "fri", "SUN-", "jan", "DEC", "xyz", "monday", "@every ", "@at ", "@daily", "@", "TZ="),
    *("1h", "30m", "ms", "1.5", "e9", "+", ":", "T", "Z", "2026-12-24T18:00:00Z", "1798135200"),
    *("every", "hours", "PT", "w", "d", "CRON_TZ=Europe/Rome ", "-05:00", "L-3", "15W", "5#5"),
    *(
        "\0",
        "é",
        "\uff11",
        "\u200f",
        "\ud800",
        "🕐",
        '"',
        "'",
        "\\",
        "%",
        "{",
        "[",
        "\x7f",
        "\u00a0",
    ),
)
GOOD = (
    *("@every 1h30m", "@at 2026-12-24T18:00:00Z", "@at 1798135200", "@weekly", "0 0 29 2 *"),
    *("H H(0-5) * * 1-5", "0 0 0 LW * ? 2026-2030", "*/5 9-17 * * MON-FRI", "0 0 31 4,6,9,11 *"),
)
ZONES = (
    *("Etc/UTC", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe", "Pacific/Apia"),
    *(
        "Europe/Berln",
        "utc+2",
        "new york",
        "",
        "Local",
        "\0",
        "z" * 500,
        "A/" * 40,
        "US/Pacific-New",
    ),
)


@dataclass(slots=True)
class Report:
    """What came of many tries.

    Attributes:
        answers: how many texts were accepted, or refused for each reason.
        slowest: processor seconds of the slowest answer, and its text.
        broken: texts with another answer than the documented ones, and that answer.
    """

    answers: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    broken: list[tuple[str, str]] = field(default_factory=list)


def run(count: int, seed: str) -> Report:
    rng, report = Random(seed), Report()
    gc.collect()
    gc.disable()  # a collection is not the text's fault; what is made here has few cycles
    try:
        for number in range(count):
            if number % 50_000 == 0:
                gc.collect()
            _try(rng, report)
    finally:
        gc.enable()
    return report


def _try(rng: Random, report: Report) -> None:
    text = a_text(rng)
    options = {
        "time_zone": rng.choice(ZONES[:5] if rng.random() < 0.97 else ZONES),
        "gap": rng.choice(("RunOnce", "Skip")),
        "overlap": rng.choice(("First", "Second", "Both")),
        "whole_seconds": rng.random() < 0.5,
    }
    seconds, said = _timed(text, options)
    report.answers[said] += 1
    if seconds > BAR_SECONDS / 5:
        seconds = _least_cold(text, options)
    report.slowest = max(report.slowest, (seconds, text))
    if said not in REASONS | {"accepted"}:
        report.broken.append((text, said))


def _least_cold(text: str, options: dict) -> float:
    """The least of some tries: on a shared machine a moment's stall counts as processor time."""
    least = BAR_SECONDS * 1_000
    for _ in range(10):
        least = min(least, _timed_cold(text, options))
        if least <= BAR_SECONDS / 5:
            break
    return least


def _timed(text: str, options: dict) -> tuple[float, str]:
    began = time.thread_time()
    said = answer(text, **options)
    return time.thread_time() - began, said


def _timed_cold(text: str, options: dict) -> float:
    coldengine.forget()
    return _timed(text, options)[0]


def answer(text: str, **options) -> str:
    """``accepted``, the reason of the refusal, or what is wrong with the answer."""
    try:
        expression = compile_expression(text, identity="a/b", from_us=NOW_US, **options)
        expression.next_after(NOW_US)
        expression.previous_before(NOW_US)
        words = expression.describe()
    except errors.InvalidExpression as error:
        return error.reason if len(str(error)) < 600 else f"{len(str(error))} characters"
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return repr(error)
    return "described in lines" if "\n" in words else "accepted"


def a_text(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.2:
        return "".join(rng.choices(PIECES, k=rng.randint(0, 40)))
    if kind < 0.23:
        return "".join(chr(rng.randint(0, 0x10FFFF)) for _ in range(rng.randint(1, 60)))
    if kind < 0.26:
        return rng.choice(PIECES) * rng.choice((50, 190, 200, 5_000)) + rng.choice(PIECES)
    return _mutated(rng, _good(rng))


def _good(rng: Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(GOOD)
    return generators.near_changes(
        rng, special=True, seconds=rng.random() < 0.3, year=rng.random() < 0.1
    ).text


def _mutated(rng: Random, text: str) -> str:
    for _ in range(rng.randint(0, 4)):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(("", rng.choice(PIECES))) + text[at + rng.randint(0, 2) :]
    return text


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = sys.argv[2] if len(sys.argv) > 2 else "fuzz"
    report, began = Report(), time.process_time()
    for part in itertools.count():
        done = report.answers.total()
        if done >= count:
            break
        some = run(min(100_000, count - done), f"{seed} {part}")
        report.answers += some.answers
        report.slowest = max(report.slowest, some.slowest)
        report.broken += some.broken
        sys.stderr.write(f"{report.answers.total()} of {count}\n")
    holds = not report.broken and report.slowest[0] <= BAR_SECONDS
    line = {
        "texts": report.answers.total(),
        "answers": dict(report.answers),
        "slowest_ms": round(report.slowest[0] * 1_000, 3),
        "slowest_text": report.slowest[1][:120],
        "broken": report.broken[:5],
        "cpu_seconds": round(time.process_time() - began, 1),
        "python": platform.python_version(),
        "zones": len(timezones.known_names()),
        "holds": holds,
    }
    sys.stdout.write(json.dumps(line) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
