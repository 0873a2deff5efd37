"""The page that says which test caught each mutant, written and read back."""

from __future__ import annotations

import fcntl
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass

from tools.mutants import catalogue

PAGE = pathlib.Path("docs/reference/mutants.md")
_HEAD = """\
# Deliberate bugs, and the tests that catch them

`make mutants` puts each of these bugs into a copy of the project, one at a time, and runs the tests
that should notice. The last two columns name the first test that failed in the run that wrote the
row, and that passes without the bug, and the commit that the bug was put into; a `+` says that the
files differed from that commit. Rows that say so have not been tried. A bug that no test catches,
or that only keeps tests from ending, ends the command with an error.

| area | file | what goes wrong | caught by | at commit |
|---|---|---|---|---|
"""
_COLUMNS = 5
_NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Caught:
    """What a run found.

    Attributes:
        test: the first one that failed.
        commit: what the mutant was put into, as Git abbreviates it.
    """

    test: str
    commit: str


def write(root: pathlib.Path, caught: Mapping[str, Caught]) -> None:
    """Write the page, in the order of the catalogue."""
    rows = [
        f"| {each.area} | `{each.path}` | {each.name} | {_shown(caught.get(each.name))} |\n"
        for each in catalogue.MUTANTS
    ]
    (root / PAGE).write_text(_HEAD + "".join(rows))


def record(root: pathlib.Path, name: str, caught: Caught | None) -> None:
    """The page says what caught this mutant; None where nothing did.

    Runs that go on side by side take turns.
    """
    with (root / PAGE).open() as page:
        fcntl.flock(page, fcntl.LOCK_EX)
        others = {known: found for known, found in read(root).items() if known != name}
        write(root, others if caught is None else {**others, name: caught})


def read(root: pathlib.Path) -> dict[str, Caught]:
    """What caught each mutant, as the page says."""
    page = root / PAGE
    if not page.exists():
        return {}
    caught = {}
    for line in page.read_text().partition("|---|---|---|---|---|\n")[2].splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in line.strip("|").split(" | ")]
        if len(cells) == _COLUMNS and cells[3] != _NOT_TRIED:
            caught[cells[2]] = Caught(cells[3].strip("`"), cells[4].strip("`"))
    return caught


def _shown(caught: Caught | None) -> str:
    """The last two cells."""
    if caught is None:
        return f"{_NOT_TRIED} | -"
    return f"`{caught.test}`".replace("|", "\\|") + f" | `{caught.commit}`"
