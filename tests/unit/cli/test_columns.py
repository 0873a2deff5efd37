"""Columns stay columns whatever is written in them."""

from __future__ import annotations

import re

import pytest

from duepoint.cli import output

WIDE = "服务暂时不可用"


@pytest.mark.parametrize(
    ("text", "columns"),
    [("", 0), ("abc", 3), (WIDE, 14), ("é", 1), ("e\u0301", 1), ("\U0001f680", 2)],
)
def test_a_text_is_as_wide_as_a_terminal_shows_it(text, columns):
    assert output.width(text) == columns


@pytest.mark.parametrize("most", range(3, 20))
@pytest.mark.parametrize("text", ["a" * 30, WIDE * 3, "é" * 30, f"a{WIDE}b{WIDE}", "a\tb" * 9])
def test_what_is_cut_fits(text, most):
    cut = output.cut(text, most)
    assert most - 1 <= output.width(cut) <= most
    assert cut.endswith("...")


ROW = {"name": "report", "schedule": "0 9 * * MON-SAT, 30 18 * * MON-FRI", "ready": "True"}
SHOWN = {"name": "name", "schedule": "schedule", "ready": "ready"}


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (80, ["report", ROW["schedule"], "True"]),
        (30, ["report", "0 9 * * MON-...", "True"]),
        (25, ["report", "0 9 * *...", "True"]),
        (20, ["report", "True"]),
        (4, ["report", "True"]),
    ],
)
def test_a_narrow_terminal_cuts_a_text_before_a_column_goes(capsys, monkeypatch, columns, shown):
    monkeypatch.setattr(output, "terminal_columns", lambda: columns)
    output.show_rows([ROW], "table", SHOWN, spare=("schedule",), may_cut="schedule", least=9)
    _, line = capsys.readouterr().out.splitlines()
    assert re.split(r"  +", line) == shown
