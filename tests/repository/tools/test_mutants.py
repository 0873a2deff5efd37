"""Deliberate bugs fit the code; their page says what caught those that were tried."""

from __future__ import annotations

import pathlib
import re

import pytest

from tools.mutants import __main__ as mutants
from tools.mutants import catalogue, table

_ROOT = pathlib.Path(__file__).parents[3]
_LEAST = 40
#: A + says that files differed from the commit: such a row is to be written again.
_COMMIT = re.compile("[0-9a-f]{8}")


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


def test_the_page_says_of_every_mutant_what_caught_it_and_at_which_commit() -> None:
    caught = table.read(_ROOT)
    for mutant in catalogue.MUTANTS:
        assert mutant.name in caught, f"run python -m tools.mutants {mutant.name!r}"
        assert _COMMIT.fullmatch(caught[mutant.name].commit), mutant.name
    assert len(caught) == len(catalogue.MUTANTS)


def test_the_page_names_tests_that_exist() -> None:
    for name, caught in table.read(_ROOT).items():
        test = caught.test
        path, _, function = test.partition("::")
        assert function, f"{name}: {test} ended without naming a test"
        text = (_ROOT / path).read_text()
        plain = function.partition("[")[0].partition("@")[0].rpartition("::")[2]
        assert f"def {plain}(" in text, f"{name}: {test} is gone; run make mutants AREA={name!r}"


def test_the_page_comes_back_as_it_was_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / table.PAGE).parent.mkdir(parents=True)
    known = {catalogue.MUTANTS[0].name: table.Caught("tests/a.py::test_x[a|b]", "0123abcd")}
    table.write(tmp_path, known)
    assert table.read(tmp_path) == known


def test_a_mutant_that_survives_now_is_not_said_to_be_caught(tmp_path: pathlib.Path) -> None:
    (tmp_path / table.PAGE).parent.mkdir(parents=True)
    first, second = (mutant.name for mutant in catalogue.MUTANTS[:2])
    caught = table.Caught("tests/a.py::test_x", "0123abcd")
    table.write(tmp_path, {first: caught, second: caught})
    table.record(tmp_path, first, None)
    assert table.read(tmp_path) == {second: caught}


@pytest.mark.parametrize(
    ("code", "output", "result"),
    [
        (0, "3 passed", mutants.Result()),
        (1, "FAILED tests/a.py::test_x[a b] - assert 1", mutants.Result("tests/a.py::test_x[a b]")),
        (1, "FAILED tests/a.py::test_x@group - E", mutants.Result("tests/a.py::test_x")),
        (
            1,
            "FAILED tests/a.py::test_x[@every 1s]",
            mutants.Result("tests/a.py::test_x[@every 1s]"),
        ),
        (1, "FAILED tests/a.py::test_x[@at]@group - E", mutants.Result("tests/a.py::test_x[@at]")),
        (4, "not found: tests/a.py", mutants.Result()),
    ],
    ids=["passed", "failed", "failed in a group", "at", "at in a group", "gone"],
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
