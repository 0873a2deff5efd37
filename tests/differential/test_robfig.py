"""In UTC, every expression that CronJob accepts has the same times here.

The other side is robfig/cron v3.0.1, which CronJob is built on, asked through a small Go program.
Refused here on purpose, and therefore not generated: a step larger than its field, ``1,,2``,
``*-5`` and ``+5``. ``@every`` has an anchor of its own.
"""

import datetime as dt
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from duepoint import errors
from duepoint.expressions import compile_expression, syntax
from tests.property.expressions import generators

PROGRAM = Path(__file__).parent / "robfig"
START, END = 0, 4_000_000_000  # 1970 to 2096
COUNT = 4
WANTED, PARTS = 100_000, 4


@pytest.fixture(scope="session")
def cronjob(tmp_path_factory):
    """Asks robfig/cron: (text, start, count) -> unix seconds, or the error's text."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed, so CronJob's own library cannot be asked")
    binary = tmp_path_factory.mktemp("robfig") / "robfig"
    built = subprocess.run(
        [go, "build", "-o", str(binary), "."],
        cwd=PROGRAM,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        pytest.skip(f"robfig/cron could not be built: {built.stderr.strip()[-300:]}")

    def ask(questions):
        lines = "".join(f"{text}|{start}|{count}\n" for text, start, count in questions)
        answers = subprocess.run(
            [str(binary)], input=lines, capture_output=True, text=True, check=True
        )
        return [
            line if line.startswith("error") else [int(second) for second in line.split()]
            for line in answers.stdout.split("\n")[:-1]
        ]

    return ask


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
    for text, answer in zip(texts, cronjob([(text, 0, 1) for text in texts]), strict=True):
        if isinstance(answer, str):
            assert any(sign in text.upper() for sign in more_here), text
            compile_expression(text)


@pytest.mark.parametrize("text", ["*/61 * * * *", "1,,2 * * * *", "*-5 * * * *", "+5 * * * *"])
def test_what_is_refused_on_purpose(cronjob, text):
    assert isinstance(cronjob([(text, 0, 1)])[0], list)
    with pytest.raises(errors.InvalidExpression):
        compile_expression(text)
