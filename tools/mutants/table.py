"""The page that says which test caught each mutant, written and read back."""

from __future__ import annotations

import fcntl
import pathlib

from tools.mutants import catalogue

PAGE = pathlib.Path("docs/reference/mutants.md")
_HEAD = """\
# Deliberate bugs, and the tests that catch them

`make mutants` puts each of these bugs into a copy of the project, one at a time, and runs the tests
that should notice. The last column names the first test that failed in the run that wrote its
row, and that passes without the bug; rows that say so have not been tried. A bug that no test
catches, or that only keeps tests from ending, ends the command with an error.

| area | file | what goes wrong | caught by |
|---|---|---|---|
"""
_COLUMNS = 4


def write(root: pathlib.Path, caught: dict[str, str]) -> None:
    """Write the page, in the order of the catalogue."""
    rows = [
        f"| {each.area} | `{each.path}` | {each.name} | {_shown(caught.get(each.name, ''))} |\n"
        for each in catalogue.MUTANTS
    ]
    (root / PAGE).write_text(_HEAD + "".join(rows))


def record(root: pathlib.Path, name: str, caught: str) -> None:
    """The page says what caught this mutant; empty where nothing did.

    Runs that go on side by side take turns.
    """
    with (root / PAGE).open() as page:
        fcntl.flock(page, fcntl.LOCK_EX)
        write(root, {**read(root), name: caught})


def read(root: pathlib.Path) -> dict[str, str]:
    """What caught each mutant, as the page says; empty where there is none."""
    page = root / PAGE
    if not page.exists():
        return {}
    caught = {}
    for line in page.read_text().partition("|---|---|---|---|\n")[2].splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in line.strip("|").split(" | ")]
        if len(cells) == _COLUMNS and cells[3] != "not tried":
            caught[cells[2]] = cells[3].strip("`")
    return caught


def _shown(test: str) -> str:
    return f"`{test}`".replace("|", "\\|") if test else "not tried"
