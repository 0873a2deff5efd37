"""In UTC, every expression that CronJob accepts has the same times here.

The other side is robfig/cron v3.0.1, which CronJob is built on, asked through a small Go program.
What is refused here on purpose is listed in docs/reference/semantics.md, and as ``DIFFERENCES``.
``@every`` has an anchor of its own.
"""

import datetime as dt
import re
from random import Random

import pytest

from duepoint import errors
from duepoint.cli.cronjob import conversion
from duepoint.expressions import compile_expression, syntax
from tests.property.expressions import generators
from tests.support import oddtexts

# The program is compiled once: with cold caches that takes a core for a minute.
pytestmark = pytest.mark.xdist_group("robfig")

START, END = 0, 4_000_000_000  # 1970 to 2096
COUNT = 4
WANTED, PARTS = 100_000, 4


def ours(text, start, count):
    expression, at_us, found = compile_expression(text), start * 1_000_000, []
    while len(found) < count and (at_us := expression.next_after(at_us)) is not None:
        found.append(at_us // 1_000_000)
    return found


def within_its_reach(found, start):
    """Cut where the library gives up: beyond the fifth year after the time it steps from."""
    if len(found) == COUNT and found[-1] - start < 4 * 365 * 86_400:
        return found
    reached = []
    for second in found:
        if year(second) > year(reached[-1] if reached else start) + 5:
            break
        reached.append(second)
    return reached


def year(second):
    return (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second)).year


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_expressions_have_the_times_of_cronjob(cronjob, part):
    rng = Random(f"robfig {part}")
    texts = generators.plain_texts(rng, generators.samples(WANTED // PARTS))
    questions = [(text, rng.randint(START, END), COUNT) for text in texts]
    for (text, start, _), theirs in zip(questions, cronjob(questions), strict=True):
        assert within_its_reach(ours(text, start, COUNT), start) == theirs, (text, start)


@pytest.mark.parametrize("macro", syntax.MACROS)
def test_macros_have_the_times_of_cronjob(cronjob, macro):
    for start in (0, 951_782_399, 1_790_000_000):
        assert cronjob([(macro, start, COUNT)]) == [ours(macro, start, COUNT)]


def test_what_cronjob_refuses_is_refused_or_means_more_here(cronjob):
    rng, more_here = Random("refused"), ("L", "W", "#", "H", "7", "-")
    texts = [generators.sample(rng, special=True).text for _ in range(generators.samples(500))]
    answers = zip(texts, cronjob([(text, 0, 1) for text in texts]), strict=True)
    refused = [text for text, answer in answers if isinstance(answer, str)]
    assert refused
    for text in refused:
        assert any(sign in text.upper() for sign in more_here), text
        compile_expression(text)


#: What CronJob takes and we refuse, by what shows it: a test of the fields, and a text of the kind.
DIFFERENCES = {
    "a step larger than its field": (
        lambda fields: any(
            int(step) > size
            for field, size in zip(fields, (60, 24, 31, 12, 7), strict=False)
            for step in re.findall(r"/([+]?[0-9]+)", field)
        ),
        "*/61 * * * *",
    ),
    "a range that begins with a star": (
        lambda fields: any(re.search(r"(^|,)[*?]-", field) for field in fields),
        "*-5 * * * *",
    ),
    "a list without an item": (
        lambda fields: any(set(field) == {","} for field in fields),
        "0 , * * *",
    ),
}
WHITE = " \t\n\v\f\r"


def is_refused_on_purpose(text):
    has_other_white_space = any(each.isspace() and each not in WHITE for each in text)
    fields = re.findall(r"[^ \t\n\v\f\r\u0085\u00a0\u3000]+", text)
    return (
        len(text) > 200
        or has_other_white_space
        or any(shows(fields) for shows, _ in DIFFERENCES.values())
    )


@pytest.mark.parametrize(
    "text",
    [
        *(text for _, text in DIFFERENCES.values()),
        "0\u00a02 * * *",
        "0 2 * * *\u3000",
        "0 2 * * *" + " " * 192,
    ],
)
def test_what_is_refused_on_purpose(cronjob, text):
    assert isinstance(cronjob([(text, 0, 1)])[0], list)
    assert is_refused_on_purpose(text)
    with pytest.raises(errors.InvalidExpression):
        compile_expression(text)


def test_any_text_that_cronjob_takes_has_its_times_or_is_refused_on_purpose(cronjob):
    rng = Random("odd")
    texts = [
        text
        for text in oddtexts.five_field_texts(rng, generators.samples(4_000))
        if "TZ=" not in text  # which CronJob refuses of a new object, whatever its library says
    ]
    questions = [(text, rng.randint(START, END), COUNT) for text in texts]
    taken = refused = 0
    for (text, start, _), theirs in zip(questions, cronjob(questions), strict=True):
        if isinstance(theirs, str):
            continue
        if is_refused_on_purpose(text):
            refused += 1
            with pytest.raises(errors.InvalidExpression):
                compile_expression(text)
            continue
        taken += 1
        assert within_its_reach(ours(text, start, COUNT), start) == theirs, (text, start)
    assert taken > len(texts) / 4
    assert refused > 50


def cannot_be_ported(text):
    """What `import` refuses of a text that CronJob takes: it never runs, or it is too long."""
    fields = re.findall(r"[^ \t\n\v\f\r\u0085\u00a0\u3000]+", text)
    return any(set(field) == {","} for field in fields) or len(text.strip()) > 200


def test_what_import_writes_for_any_text_has_the_times_of_the_cronjob(cronjob):
    texts = [
        text
        for text in oddtexts.five_field_texts(Random("import"), generators.samples(3_000))
        if "TZ=" not in text and not cannot_be_ported(text)
    ]
    start, rewritten = 1_790_000_000, 0
    for text, theirs in zip(texts, cronjob([(text, start, COUNT) for text in texts]), strict=True):
        if isinstance(theirs, str):
            continue
        new, why = conversion.ported_times(text)
        rewritten += bool(why)
        assert within_its_reach(ours(new, start, COUNT), start) == theirs, (text, new)
    assert rewritten > 50


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("30 2 * * *\n", "30 2 * * *"),
        ("\r\n30 2\n* *\v*\f", "30 2 * * *"),
        ("1,,2 * * * *", "1,2 * * * *"),
        (",0 0, * * *", "0 0 * * *"),
        ("+5 +1-+3/+2 * * *", "5 1-3/2 * * *"),
        ("00 007 * * *", "0 7 * * *"),
    ],
)
def test_what_cronjob_reads_generously_is_read_as_generously(cronjob, text, same):
    start = 1_790_000_000
    [theirs] = cronjob([(text, start, COUNT)])
    assert ours(text, start, COUNT) == ours(same, start, COUNT) == theirs
