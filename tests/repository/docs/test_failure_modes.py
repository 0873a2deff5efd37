"""Every failure and threat has its tests, and the page of them is current."""

from __future__ import annotations

import itertools
import pathlib

import pytest

from tools.failures import __main__ as page
from tools.failures import rows

_ROOT = pathlib.Path(__file__).parents[3]
_ROWS = list(itertools.chain.from_iterable(chapter.rows for chapter in rows.read()))
#: How many there are of each letter.
_COUNTS = {"C": 33, "R": 16, "K": 17, "L": 5, "T": 3, "P": 9, "S": 24}


def test_no_failure_is_missing() -> None:
    wanted = [
        f"{letter}{number}" for letter, most in _COUNTS.items() for number in range(1, most + 1)
    ]
    assert [row.id for row in _ROWS] == wanted


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.id)
def test_a_row_names_tests_that_exist_or_says_why_there_is_none(row: rows.FailureRow) -> None:
    assert row.problems(_ROOT) == []


def test_a_row_without_a_test_or_with_one_that_is_gone_is_noticed() -> None:
    nothing = rows.FailureRow(id="X1", failure="a", result="b", tests=())
    assert nothing.problems(_ROOT) == ["X1 names no test and does not say why"]
    gone = rows.FailureRow(id="X2", failure="a", result="b", tests=("unit/test_clock.py::gone",))
    assert gone.problems(_ROOT) == ["X2 names unit/test_clock.py::gone, which does not exist"]


def test_the_page_is_current() -> None:
    assert page.PAGE.read_text() == page.page(), "run python -m tools.failures"
