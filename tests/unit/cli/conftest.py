"""Runs the command as a user would, without a process of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from duepoint import cli


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def column(self, name: str) -> list[str]:
        return [row[name] for row in self.rows]


@pytest.fixture
def duepoint():
    """Arguments -> Answer; anything but an exit is a bug and passes through."""

    def run(*arguments: str, given: str | bytes | None = None) -> Answer:
        of_rows = arguments[:1] in (("next",), ("previous",), ("simulate",))
        if of_rows and not {"-o", "--output", "-h"} & set(arguments):
            arguments = (*arguments, "-o", "json")  # tests read the rows of these
        result = CliRunner().invoke(cli.commands, arguments, input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def refused(duepoint):
    """Arguments -> the one line that says what is wrong."""

    def run(*arguments: str, given: str | bytes | None = None) -> str:
        answer = duepoint(*arguments, given=given)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.count("\n") == 1
        return answer.err

    return run
