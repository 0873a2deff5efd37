"""Deliberate bugs fit the code; their page says what caught those that were tried."""

from __future__ import annotations

import pathlib

import pytest

from tools.mutants import __main__ as mutants
from tools.mutants import catalogue, table

_ROOT = pathlib.Path(__file__).parents[3]
_LEAST = 40


def test_there_are_enough_mutants_of_every_area() -> None:
    assert len(catalogue.MUTANTS) >= _LEAST
    wanted = {"claim", "settle", "watermark", "history", "fencing", "policies", "egress"}
    assert wanted | {"reporter"} <= {mutant.area for mutant in catalogue.MUTANTS}
    names = [mutant.name for mutant in catalogue.MUTANTS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("mutant", catalogue.MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_exactly_one_place(mutant: catalogue.Mutant) -> None:
    text = (_ROOT / "operator" / "duepoint" / mutant.path).read_text()
    assert text.count(mutant.before) == 1, "move the mutant with the line that it changes"
    assert mutant.after != mutant.before
    for suite in mutant.suites:
        for tests in catalogue.SUITES[suite]:
            assert (_ROOT / tests).exists(), tests


def test_the_page_has_every_mutant_and_most_of_them_were_tried() -> None:
    page = (_ROOT / table.PAGE).read_text()
    for mutant in catalogue.MUTANTS:
        assert f"| {mutant.name} |" in page, f"run make mutants AREA={mutant.area!r}"
    assert len(table.read(_ROOT)) >= _LEAST


def test_the_page_names_tests_that_exist() -> None:
    for name, test in table.read(_ROOT).items():
        path, _, function = test.partition("::")
        assert function, f"{name}: {test} ended without naming a test"
        text = (_ROOT / path).read_text()
        plain = function.partition("[")[0].partition("@")[0].rpartition("::")[2]
        assert f"def {plain}(" in text, f"{name}: {test} is gone; run make mutants AREA={name!r}"


def test_the_page_comes_back_as_it_was_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / table.PAGE).parent.mkdir(parents=True)
    known = {catalogue.MUTANTS[0].name: "tests/a.py::test_x[a|b]"}
    table.write(tmp_path, known)
    assert table.read(tmp_path) == known


@pytest.mark.parametrize(
    ("code", "output", "result"),
    [
        (0, "3 passed", mutants.Result()),
        (1, "FAILED tests/a.py::test_x[a b] - assert 1", mutants.Result("tests/a.py::test_x[a b]")),
        (1, "FAILED tests/a.py::test_x@group - E", mutants.Result("tests/a.py::test_x")),
        (4, "not found: tests/a.py", mutants.Result()),
    ],
    ids=["passed", "failed", "failed in a group", "gone"],
)
def test_a_mutant_is_caught_by_the_first_test_that_fails(code, output, result) -> None:
    assert mutants._result(("tests/a.py",), code, output) == result


@pytest.mark.parametrize("output", ["worker crashed", "ERROR tests/a.py - SyntaxError"])
def test_a_run_that_names_no_test_lets_a_mutant_survive(output) -> None:
    result = mutants._result(("tests/a.py",), 1, output)
    assert not result.test
    assert str(result).startswith("SURVIVED (tests/a.py: no test is named")


def test_a_run_without_an_end_lets_a_mutant_survive(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(mutants, "_MOST_SECONDS", 1)
    endless = tmp_path / "test_endless.py"
    endless.write_text("import time\n\n\ndef test_waits():\n    time.sleep(600)\n")
    result = mutants._run(tmp_path, (f"{endless}::test_waits",))
    assert str(result) == f"SURVIVED ({endless}::test_waits: no end within 1 s)"
