"""Every row of a table in SECURITY.md has a test beside it, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "SECURITY.md").read_text()
NAMED = re.compile(r"`([\w/]+/test_\w+\.py)`\s`(\w+)`")
LINES = [line for line in PAGE.splitlines() if line.startswith("|") and "|---" not in line]
HEADS = [line for line in LINES if line.endswith("shown by |")]


def exists(file: str, function: str) -> bool:
    path = ROOT / "tests" / file
    defined = rf"^(?:async )?def test_{function}\("
    return path.is_file() and bool(re.search(defined, path.read_text(), re.MULTILINE))


def test_every_table_has_a_column_of_tests_and_every_test_exists() -> None:
    assert len(HEADS) == PAGE.count("|---|\n")
    named = NAMED.findall(PAGE)
    assert PAGE.count(".py`") == len(named)
    assert [each for each in named if not exists(*each)] == []


@pytest.mark.parametrize(
    "row", [line for line in LINES if line not in HEADS], ids=lambda row: row[2:60]
)
def test_every_sentence_has_a_test_beside_it(row: str) -> None:
    assert NAMED.search(row)
