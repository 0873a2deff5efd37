"""A forecast as a heat map in the terminal.

It has a row for each day and a cell for each hour, as dark as the worst minute of the hour, because
a sum of an hour hides peaks. Shades follow the square root of the load, so that ordinary hours
differ beside a great peak. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duepoint.schedules.load import Hour

if TYPE_CHECKING:
    from rich.text import Text

_DAY_HOURS = 24
#: Hours that a cell may stand for.
_CELL_HOURS = (1, 2, 3, 4, 6, 8, 12)
_SHADES = "·░▒▓█"
_STYLES = ("bright_black", "cyan", "green", "yellow", "bold red")
#: Of a line, for the day: ``Sat 2026-11-28``, or ``Sat 28``.
_LEFT_COLUMNS, _LEFT_NARROW = 16, 7


def number(slots: float) -> str:
    """Slots of a minute: whole where there are many."""
    return f"{slots:,.1f}" if 0 < slots < 10 and slots != int(slots) else f"{slots:,.0f}"


@dataclass(frozen=True, slots=True)
class Scale:
    """Shades from the least load to the most; 0 is for none.

    By the square root of what is above the least: ordinary hours differ beside a great peak.
    """

    least: float
    most: float
    levels: int

    def level(self, value: float) -> int:
        if value <= 0:
            return 0
        span = self.most - self.least
        share = math.sqrt(max(0.0, value - self.least) / span) if span else 1.0
        return 1 + min(self.levels - 2, int(share * (self.levels - 1)))

    def used(self) -> Sequence[int]:
        """The shades that a load may have; where all are alike, the darkest is theirs."""
        if self.most > self.least:
            return range(self.levels)
        return (0, self.levels - 1) if self.most else (0,)

    def begins(self, level: int) -> float:
        """The least load of a shade."""
        share = (level - 1) / (self.levels - 1)
        return self.least + (self.most - self.least) * share**2


def scale(cells: Sequence[Hour], levels: int) -> Scale:
    """Of the worst minutes of these hours.

    Hours that differ by less than half look alike: 82 beside 81 is no peak.
    """
    peaks = [cell.peak for cell in cells if cell.peak > 0] or [0.0]
    least, most = min(peaks), max(peaks)
    return Scale(least if least == most else min(least, most / 2), most, levels)


def terminal(cells: Sequence[Hour], zone: str, most_columns: int) -> Iterator[Text]:
    """The heat map in lines.

    On a narrow terminal days are written short, and then a cell stands for several hours.
    """
    from rich.text import Text  # noqa: PLC0415 - only where it is shown

    shades = scale(cells, len(_SHADES))
    left = _LEFT_COLUMNS if most_columns >= _LEFT_COLUMNS + 3 * _DAY_HOURS - 1 else _LEFT_NARROW
    room = (most_columns - left + 1) // 3
    hours = next((hours for hours in _CELL_HOURS if _DAY_HOURS // hours <= room), _DAY_HOURS)
    begins = range(0, _DAY_HOURS, hours)
    yield Text(_note(shades, zone, hours))
    yield Text(" " * left + " ".join(f"{hour:02}" for hour in begins))
    for day, row in _days(cells):
        shown = day if left == _LEFT_COLUMNS else f"{day[:3]} {day[-2:]}"
        line = Text(f"{shown:{left}}")
        for begin in begins:
            peaks = [row[hour].peak for hour in range(begin, begin + hours) if hour in row]
            level = shades.level(max(peaks, default=0))
            line.append(_SHADES[level] * 2 + " " if peaks else "   ", style=_STYLES[level])
        line.rstrip()
        yield line
    legend = [f"{_SHADES[level]} {_from(shades, level)}" for level in shades.used()]
    yield Text(" " * left + "  ".join(legend))


def _note(shades: Scale, zone: str, hours: int = 1) -> str:
    each = "each hour" if hours == 1 else f"each {hours} hours"
    return f"slots in the worst minute of {each} ({zone}); the most are {number(shades.most)}"


def _from(shades: Scale, level: int) -> str:
    """What a shade stands for."""
    return "none" if level == 0 else f"from {number(shades.begins(level))}"


def _days(cells: Sequence[Hour]) -> Iterator[tuple[str, dict[int, Hour]]]:
    found: dict[str, dict[int, Hour]] = {}
    for cell in cells:
        found.setdefault(cell.day, {})[cell.hour] = cell
    yield from found.items()


# -- SVG -----------------------------------------------------------------------------------------
