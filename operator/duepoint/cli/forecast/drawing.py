"""A forecast as a picture: in the terminal, and as an SVG.

A heat map has a row for each day and a cell for each hour, as dark as the worst minute of the hour;
below it stand the sixty minutes of the worst hour, where peaks show that a sum of an hour hides.
Shades follow the square root of the load, so that ordinary hours differ beside a great peak. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax import saxutils

from duepoint.schedules.load import Forecast, Hour

if TYPE_CHECKING:
    from rich.text import Text

_DAY_HOURS = 24
#: Hours that a cell may stand for.
_CELL_HOURS = (1, 2, 3, 4, 6, 8, 12)
_SHADES = "·░▒▓█"
_STYLES = ("bright_black", "cyan", "green", "yellow", "bold red")
_COLOURS = ("#edf2f7", "#c9dcf0", "#8db8e0", "#4a8ac7", "#1f5c9c", "#b3261e")
_GREY = "#52606d"
_CELL, _LEFT, _TOP = 30, 120, 96
#: Of a line, for the day: ``Sat 2026-11-28``, or ``Sat 28``.
_LEFT_COLUMNS, _LEFT_NARROW = 16, 7
_BARS = 140


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


# -- the terminal --------------------------------------------------------------------------------


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


def svg(known: Forecast, cells: Sequence[Hour], zone: str, after: Sequence[float] | None) -> str:
    """The picture; ``after``: the minutes with all proposals, drawn beside the worst hour."""
    days = list(_days(cells))
    shades = scale(cells, len(_COLOURS))
    below = _TOP + len(days) * _CELL
    width, height = _LEFT + _DAY_HOURS * _CELL + 30, below + _BARS + 150
    worst = max(cells, key=lambda cell: cell.peak)
    title = f"{known.schedules:,} Schedules, {known.runs:,.0f} runs"
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
        _text(20, 28, title, 'font-weight="bold" font-size="15"'),
        _text(20, 50, _note(shades, zone), f'fill="{_GREY}"'),
        *_map(days, shades),
        *_legend(shades, below + 18),
        *_worst_hour(known, worst, after, below + 76),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _map(days: Sequence[tuple[str, dict[int, Hour]]], shades: Scale) -> Iterator[str]:
    for hour in range(_DAY_HOURS):
        middle = _LEFT + hour * _CELL + _CELL / 2
        yield _text(middle, _TOP - 8, f"{hour:02}", f'text-anchor="middle" fill="{_GREY}"')
    for row, (day, by_hour) in enumerate(days):
        y = _TOP + row * _CELL
        yield _text(_LEFT - 10, y + 19, day, f'text-anchor="end" fill="{_GREY}"')
        for hour, cell in by_hour.items():
            said = f"{day} {hour:02}:00: {number(cell.peak)} in the worst minute,"
            said += f" {cell.runs:,.0f} in the hour"
            x, colour = _LEFT + hour * _CELL, _COLOURS[shades.level(cell.peak)]
            yield (
                f'<rect x="{x + 1}" y="{y + 1}" width="{_CELL - 2}" height="{_CELL - 2}" rx="3"'
                f' fill="{colour}"><title>{saxutils.escape(said)}</title></rect>'
            )


def _legend(shades: Scale, y: int) -> Iterator[str]:
    for place, level in enumerate(shades.used()):
        x = _LEFT + place * 110
        yield f'<rect x="{x}" y="{y}" width="12" height="12" rx="2" fill="{_COLOURS[level]}"/>'
        yield _text(x + 18, y + 10, _from(shades, level), f'fill="{_GREY}"')


def _worst_hour(
    known: Forecast, worst: Hour, after: Sequence[float] | None, top: int
) -> Iterator[str]:
    """Sixty bars; where there are proposals, those minutes with them in front."""
    last = min(worst.first + 60, len(known.minutes))
    minutes = known.minutes[worst.first : last]
    said = f"slots in the minutes of the worst hour, {worst.day} {worst.hour:02}:00"
    yield _text(20, top, said, f'fill="{_GREY}"')
    bottom, step = top + 16 + _BARS, _DAY_HOURS * _CELL / 60
    most = max(minutes)
    yield from _bars(minutes, most, bottom, inset=2, colour=_COLOURS[2])
    if after is not None:
        yield from _bars(after[worst.first : last], most, bottom, inset=6, colour=_COLOURS[-2])
        for x, colour, word in ((430, _COLOURS[2], "as it is"), (520, _COLOURS[-2], "as proposed")):
            yield f'<rect x="{x}" y="{top - 10}" width="12" height="12" rx="2" fill="{colour}"/>'
            yield _text(x + 18, top, word, f'fill="{_GREY}"')
    yield f'<path d="M{_LEFT} {bottom}h{_DAY_HOURS * _CELL}" stroke="{_GREY}"/>'
    yield _text(_LEFT - 10, bottom - _BARS + 10, number(most), f'text-anchor="end" fill="{_GREY}"')
    yield _text(_LEFT - 10, bottom, "0", f'text-anchor="end" fill="{_GREY}"')
    for minute in range(0, 60, 5):
        middle = _LEFT + minute * step + step / 2
        yield _text(middle, bottom + 16, f":{minute:02}", f'text-anchor="middle" fill="{_GREY}"')


def _bars(
    minutes: Sequence[float], most: float, bottom: int, *, inset: int, colour: str
) -> Iterator[str]:
    step = _DAY_HOURS * _CELL / 60
    width = step - inset
    for place, slots in enumerate(minutes):
        height = _BARS * slots / most if most else 0
        if slots:
            x = _LEFT + place * step + (step - width) / 2
            yield (
                f'<rect x="{x:.1f}" y="{bottom - height:.1f}" width="{width:.1f}"'
                f' height="{height:.1f}" fill="{colour}"><title>{number(slots)}</title></rect>'
            )


def _text(x: float, y: float, said: str, style: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{saxutils.escape(said)}</text>'
