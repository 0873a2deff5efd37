"""The table of the runs of ``make simulate`` in the documentation, written and read back.

A run with ``RECORD=1`` has a row, named by its command; the same command again replaces it. The
last row is the sum. Text around the table is written by hand and stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "simulated-histories.md"
_HEAD = (
    "| arguments of `make simulate` | histories | failed | points | faults | changes | seconds |\n"
)
_LINE = "|---|---|---|---|---|---|---|\n"
_SUM = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What histories showed.

    Attributes:
        failed: histories in which something was wrong.
        points: slots that had an effect.
        faults: events that happened, changes by users apart.
        changes: what users did because of an event.
        seconds: how long all of them took to play.
    """

    histories: int = 0
    failed: int = 0
    points: int = 0
    faults: int = 0
    changes: int = 0
    seconds: int = 0

    def __add__(self, other: Counts) -> Counts:
        mine, theirs = dataclasses.astuple(self), dataclasses.astuple(other)
        names = [field.name for field in dataclasses.fields(self)]
        sums = (a + b for a, b in zip(mine, theirs, strict=True))
        return Counts(**dict(zip(names, sums, strict=True)))


def record(arguments: str, counts: Counts, page: Path = PAGE) -> None:
    """The row of these arguments says what was counted."""
    rows = {**read(page), arguments: counts}
    lines = [_row(f"`{name}`", each) for name, each in sorted(rows.items())]
    lines.append(_row(_SUM, sum(rows.values(), Counts())))
    before, _, after = _parts(page)
    page.write_text(before + _HEAD + _LINE + "".join(lines) + after)


def read(page: Path = PAGE) -> Mapping[str, Counts]:
    """What each row says, without the sum."""
    found = {}
    for line in _parts(page)[1].splitlines():
        name, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
        if name != _SUM:
            values = (int(number.replace(",", "")) for number in numbers)
            names = (field.name for field in dataclasses.fields(Counts))
            found[name.strip("`")] = Counts(**dict(zip(names, values, strict=True)))
    return found


def _parts(page: Path) -> tuple[str, str, str]:
    """What stands before the table, its rows, and what stands behind it."""
    before, _, rest = page.read_text().partition(_HEAD)
    rows, blank, after = rest.removeprefix(_LINE).partition("\n\n")
    return before, rows + "\n" if rows else "", blank[1:] + after


def _row(name: str, counts: Counts) -> str:
    return f"| {name} | {' | '.join(f'{each:,}' for each in dataclasses.astuple(counts))} |\n"
