"""Whatever is typed, the answer is an expression or InvalidExpression, and it comes quickly.

Texts are good ones with some of them broken, pieces of the grammar in any order, characters of all
planes, and long ones.
"""

from __future__ import annotations

import time
from collections import Counter
from random import Random

from duepoint import errors
from duepoint.expressions import compile_expression
from tests.property.expressions import generators

NOW_US = 1_790_000_000_000_000
ANSWERS = {"accepted", "refused", "never"}
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


def test_any_text_is_an_expression_or_one_documented_error():
    rng, answers, tries = Random("fuzz"), Counter(), generators.samples(6_000)
    for _ in range(tries):
        text, began = a_text(rng), time.thread_time()
        said = answer(
            text,
            time_zone=rng.choice(ZONES[:5] if rng.random() < 0.97 else ZONES),
            gap=rng.choice(("RunOnce", "Skip")),
            overlap=rng.choice(("First", "Second", "Both")),
            whole_seconds=rng.random() < 0.5,
        )
        assert said in ANSWERS, text
        assert time.thread_time() - began < 1, text
        answers[said] += 1
    assert set(answers) == ANSWERS
    assert answers["accepted"] > tries / 20


def answer(text: str, **options) -> str:
    """``accepted``, how it was refused, or what is wrong with the answer."""
    try:
        expression = compile_expression(text, identity="a/b", from_us=NOW_US, **options)
        expression.next_after(NOW_US)
        expression.previous_before(NOW_US)
        words = expression.describe()
    except errors.InvalidExpression as error:
        if len(str(error)) >= 600:
            return f"{len(str(error))} characters"
        return "never" if error.never_fires else "refused"
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


def test_the_order_of_questions_does_not_change_the_answers():
    # What was last used is remembered inside; a form just made has nothing to remember.
    rng = Random("order")
    for _ in range(generators.samples(40)):
        sample = generators.near_changes(rng, special=True, seconds=rng.random() < 0.3)
        zone = rng.choice(("America/New_York", "Australia/Lord_Howe", "Etc/UTC"))
        used = compile_expression(sample.text, time_zone=zone)
        instants = [rng.randint(0, 1 << 52)]
        for _ in range(20):
            near = instants[-1] + rng.choice((1, 10**6, 10**9, 10**11)) * rng.randint(-50, 50)
            instants.append(min(max(near, 0), 1 << 52))
        remembered = [(used.next_after(at), used.previous_before(at)) for at in instants]
        compile_expression.__globals__["_cached"].cache_clear()
        fresh = compile_expression(sample.text, time_zone=zone)
        assert fresh is not used
        for at_us, answers in reversed(list(zip(instants, remembered, strict=True))):
            assert (fresh.next_after(at_us), fresh.previous_before(at_us)) == answers, sample.text
