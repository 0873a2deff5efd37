"""Whatever is typed, the answer is an expression or InvalidExpression, and it comes quickly."""

from random import Random

from duepoint import errors
from duepoint.expressions import compile_expression
from tests.property.expressions import generators
from tests.unit.expressions import stopwatch

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
    *(
        "1h",
        "30m",
        "ms",
        "1.5",
        "e9",
        "-",
        "+",
        ":",
        "T",
        "Z",
        "2026-12-24T18:00:00Z",
        "1798135200",
    ),
    *("\0", "é", "\uff11", "\u200f", "\ud800", "🕐", '"', "'", "\\", "%", "{", "[", "\x7f"),
)
NOW_US = 1_790_000_000_000_000
REASONS = {"InvalidSchedule", "NeverFires", "OutOfRange"}


def mutated(rng):
    """A good text with some of it broken, or no text at all."""
    if rng.random() < 0.3:
        return "".join(rng.choices(PIECES, k=rng.randint(0, 40)))
    text = generators.sample(rng, special=True, seconds=rng.random() < 0.3).text
    if rng.random() < 0.2:
        text = rng.choice(("@every 1h30m", "@at 2026-12-24T18:00:00Z", "@weekly"))
    for _ in range(rng.randint(0, 4)):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(("", rng.choice(PIECES))) + text[at + rng.randint(0, 2) :]
    return text


def answer(text, *, whole_seconds):
    """The reason of the refusal, or None when the text was compiled and has answered."""
    try:
        expression = compile_expression(
            text, identity="a/b", from_us=NOW_US, whole_seconds=whole_seconds
        )
    except errors.InvalidExpression as error:
        return error
    expression.next_after(NOW_US)
    expression.previous_before(NOW_US)
    assert "\n" not in expression.describe()
    return None


def test_any_text_is_an_expression_or_one_documented_error():
    rng, accepted, slowest = Random("fuzz"), 0, 0.0
    tries = generators.samples(1_000)
    for _ in range(tries):
        text = mutated(rng)
        with stopwatch.cpu_seconds() as passed:
            error = answer(text, whole_seconds=rng.random() < 0.5)
            slowest = max(slowest, passed())
        accepted += error is None
        assert error is None or error.reason in REASONS, text
        assert error is None or len(str(error)) < 500, text
    assert accepted > tries / 20
    # The bar is 5 ms on a quiet machine; CPU time still grows when others use the caches.
    assert slowest <= 0.025, slowest


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
        compile_expression.__globals__["_shared"].cache_clear()
        fresh = compile_expression(sample.text, time_zone=zone)
        assert fresh is not used
        for at_us, answers in reversed(list(zip(instants, remembered, strict=True))):
            assert (fresh.next_after(at_us), fresh.previous_before(at_us)) == answers, sample.text
