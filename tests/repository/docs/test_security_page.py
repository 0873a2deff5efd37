"""Every row of a table in SECURITY.md has a test beside it, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.failures import rows

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "SECURITY.md").read_text()
NAMED = re.compile(r"`([\w/]+/test_\w+\.py)`\s`(\w+)`")
LINES = [line for line in PAGE.splitlines() if line.startswith("|") and "|---" not in line]
HEADS = [line for line in LINES if line.endswith("shown by |")]
ROWS = [line for line in LINES if line not in HEADS]


def _problems(id_: str, text: str) -> list[str]:
    tests = tuple("::".join(found) for found in NAMED.findall(text))
    row = rows.FailureRow(id=id_, failure="", result="", tests=tests)
    return row.problems(ROOT)


def test_every_table_has_a_column_of_tests() -> None:
    assert len(HEADS) == PAGE.count("|---|\n")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:60])
def test_every_sentence_has_a_test_beside_it(row: str) -> None:
    assert _problems("the row", row) == []


def test_every_test_that_is_named_exists() -> None:
    assert PAGE.count(".py`") == len(NAMED.findall(PAGE))
    assert _problems("SECURITY.md", PAGE) == []
