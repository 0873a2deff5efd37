"""Programs that are hidden from a command, and the rest that is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import without


@pytest.fixture
def path(tmp_path):
    """Two folders of programs; only the first holds the one to hide."""
    for folder, names in (("first", ("hide-me", "stay")), ("second", ("other",))):
        (tmp_path / folder).mkdir()
        for name in names:
            program = tmp_path / folder / name
            program.write_text(f"#!/bin/sh\necho {name}\nexit 7\n")
            program.chmod(0o755)
    return os.pathsep.join(str(tmp_path / folder) for folder in ("first", "second"))


@pytest.mark.parametrize(
    ("command", "code"), [("stay", 7), ("other", 7), ("hide-me", 127)], ids=str
)
def test_a_hidden_program_is_not_found_and_every_other_is(path, monkeypatch, command, code):
    monkeypatch.setenv("PATH", path)
    assert without.main(["hide-me", "absent", "--", command]) == code


def test_a_folder_that_holds_none_of_them_stays_as_it_is(path, tmp_path):
    reduced = without.reduced(path, {"hide-me"}, tmp_path).split(os.pathsep)
    assert reduced[1] == path.split(os.pathsep)[1]
    assert [one.name for one in Path(reduced[0]).iterdir()] == ["stay"]


@pytest.mark.parametrize("arguments", [[], ["x"], ["x", "--"]], ids=["nothing", "x", "no command"])
def test_without_a_command_there_is_a_usage_and_code_2(arguments, capsys):
    assert without.main(arguments) == 2
    assert "usage" in capsys.readouterr().err
