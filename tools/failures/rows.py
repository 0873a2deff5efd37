"""The rows of ``rows.toml`` as values."""

from __future__ import annotations

import pathlib
import re
import tomllib
from dataclasses import dataclass

_FILE = pathlib.Path(__file__).with_name("rows.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRow:
    """One failure or threat.

    Attributes:
        id: its letter and number.
        failure: what goes wrong.
        result: what happens then.
        tests: ``file::function``, below ``tests/`` and without ``test_``.
        left_out: what of it no test injects, and why; empty where nothing is.
    """

    id: str
    failure: str
    result: str
    tests: tuple[str, ...]
    left_out: str = ""

    def problems(self, root: pathlib.Path) -> list[str]:
        """What is wrong with the row, given the root of the project."""
        if not self.tests and not self.left_out:
            return [f"{self.id} names no test and does not say why"]
        return [
            f"{self.id} names {test}, which does not exist"
            for test in self.tests
            if not _exists(root, test)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureChapter:
    """Rows of one kind."""

    name: str
    rows: tuple[FailureRow, ...]


def read(path: pathlib.Path = _FILE) -> tuple[FailureChapter, ...]:
    """All chapters in their order."""
    return tuple(
        FailureChapter(
            name=chapter["name"],
            rows=tuple(
                FailureRow(**{**row, "tests": tuple(row["tests"])}) for row in chapter["row"]
            ),
        )
        for chapter in tomllib.loads(path.read_text())["chapter"]
    )


def _exists(root: pathlib.Path, test: str) -> bool:
    file, _, function = test.partition("::")
    path = root / "tests" / file
    return path.is_file() and bool(
        re.search(rf"^(?:async )?def test_{re.escape(function)}\(", path.read_text(), re.MULTILINE)
    )
