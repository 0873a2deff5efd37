"""The CRD's grammar and the engine agree: what one understands, the other does not refuse.

Random expressions are made from the pieces of the grammar with a fixed seed, tried on the engine
first, and sent to the API server 32 at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from duepoint import errors
from duepoint.expressions import compile as engine
from tests.integration.crds import kubeapi
from tests.integration.crds.manifests import ABSENT, a_schedule
from tests.integration.crds.rejected import EXPRESSIONS as REJECTED
from tests.integration.crds.test_accepted_objects import EXPRESSIONS as ACCEPTED

SEED = 20261121
WANTED = 960
PER_OBJECT = 32

# The engine forgives these, because an object may have been stored before there was a rule.
FORGIVEN = {"a line break", "macro in capitals"}

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
RANGES = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7), (2026, 2099))


def _understands(text: str) -> bool:
    try:
        engine.compile_expression(text, identity="team/nightly", anchor_us=1)
    except errors.InvalidExpression:
        return False
    return True


def _item(dice: random.Random, field: int) -> str:
    least, most = RANGES[field]
    low, high = sorted((dice.randint(least, most), dice.randint(least, most)))
    names = {4: MONTHS, 5: DAYS}.get(field)
    forms: list[Callable[[], str]] = [
        lambda: "*",
        lambda: "?",
        lambda: str(low),
        lambda: f"{low:02}",
        lambda: f"{low}-{high}",
        lambda: f"*/{dice.randint(1, most)}",
        lambda: f"{low}/{dice.randint(1, 9)}",
        lambda: f"{low}-{high}/{dice.randint(1, 9)}",
    ]
    if names:
        forms += [
            lambda: dice.choice(names),
            lambda: "-".join(dice.choices(names, k=2)).lower(),
        ]
    if field != 6:
        forms += [lambda: "H", lambda: f"H({low}-{high})", lambda: f"H/{dice.randint(1, 9)}"]
    if field == 3:
        forms += [lambda: "L", lambda: "LW", lambda: f"{low}W"]
    if field == 5:
        forms += [lambda: f"{low}L", lambda: f"{low}#{dice.randint(1, 5)}"]
    return dice.choice(forms)()


def _expressions() -> Iterator[str]:
    dice = random.Random(SEED)
    while True:
        fields = dice.choice(((1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5, 6)))
        lists = (
            ",".join(_item(dice, field) for _ in range(dice.choice((1, 1, 1, 2, 3))))
            for field in fields
        )
        yield dice.choice((" ", "  ", "\t")).join(lists)


def test_nothing_that_the_engine_understands_is_refused(api: kubeapi.KubeApi) -> None:
    texts = (text for text in _expressions() if _understands(text))
    for _ in range(WANTED // PER_OBJECT):
        some = [next(texts) for _ in range(PER_OBJECT)]
        answer = api.create(a_schedule("good", schedule=ABSENT, schedules=some), dry_run=True)
        assert answer.ok, answer.body["message"]


@pytest.mark.parametrize("text", ACCEPTED)
def test_the_engine_understands_what_is_accepted(text: str) -> None:
    assert _understands(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(case.thing["spec"]["schedule"], id=case.id)
        for case in REJECTED
        if isinstance(case.thing["spec"].get("schedule"), str)
        and case.id not in FORGIVEN
        and "schedules" not in case.id
    ],
)
def test_the_engine_refuses_what_is_rejected(text: str) -> None:
    assert not _understands(text)
