"""Rows of panels as SVG: lines over time, single values, tables; no library, an SVG is text.

What a row shows is what Prometheus answered, and a grey line for each fault with its name above the
first row of lines. Colours are told apart by people who see few (Okabe and Ito).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax import saxutils

from tests.panels.answers import Line, Shown
from tests.panels.dashboard import Row

_WIDTH, _LINES_HEIGHT, _STAT_HEIGHT, _GAP, _HEAD = 1200, 256, 106, 12, 40
_LEFT, _RIGHT, _TOP, _LEGEND_ROW = 62, 22, 50, 16
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a7a00", "#444444")
#: Lines in the legend of a panel; the others are counted.
_MOST_NAMED = 6
#: Of a table, with its head.
_MOST_ROWS = 11
#: In a line below a single value.
_STAT_LETTERS = 30
NO_DATA = "No data"
_Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done to the installation; ``at`` in seconds since 1970."""

    at: float
    what: str


def picture(
    row: Row, panels: Sequence[Shown], began: float, ended: float, events: Sequence[Event]
) -> str:
    """A row of the dashboard."""
    tops: dict[int, float] = {}
    heights: dict[int, float] = {}
    top = float(_HEAD)
    for y in sorted({each.panel.y for each in panels}):
        tops[y], heights[y] = top, max(_height(each) for each in panels if each.panel.y == y)
        top += _GAP + heights[y]
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top:.0f}" '
            'font-family="sans-serif" font-size="12" fill="#24292f">'
        ),
        f"<title>{_text(row.title)}</title>",
        '<rect width="100%" height="100%" fill="#f6f8fa"/>',
        f'<text x="12" y="26" font-size="16" font-weight="bold">{_text(row.title)}</text>',
    ]
    for shown in panels:
        place = (tops[shown.panel.y], heights[shown.panel.y])
        lines += _panel(shown, place, began, ended, events)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _height(shown: Shown) -> float:
    if shown.panel.kind == "stat":
        return _STAT_HEIGHT
    named = min(len(shown.lines), _MOST_NAMED) + (len(shown.lines) > _MOST_NAMED)
    return _LINES_HEIGHT + _LEGEND_ROW * math.ceil(named / 2)


def _panel(
    shown: Shown, place: tuple[float, float], began: float, ended: float, events: Sequence[Event]
) -> Iterator[str]:
    panel, (top, height) = shown.panel, place
    left = _GAP + panel.x * (_WIDTH - _GAP) / 24
    width = panel.width * (_WIDTH - _GAP) / 24 - _GAP
    yield f'<g transform="translate({left:.1f} {top:.1f})">'
    yield (
        f'<rect width="{width:.1f}" height="{height:.1f}" rx="3" fill="white" stroke="#d0d7de"/>'
    )
    yield f'<text x="10" y="19" font-weight="bold">{_text(panel.title)}</text>'
    if panel.kind == "stat":
        yield from _stat(shown)
    else:
        yield f'<text x="10" y="35" font-size="11" fill="#57606a">{_text(panel.description)}</text>'
        yield from (_table if panel.kind == "table" else _graph)(shown, width, began, ended, events)
        if not shown.lines:
            yield (
                f'<text x="{width / 2:.1f}" y="{_LINES_HEIGHT / 2}" text-anchor="middle" '
                f'font-size="16" fill="#57606a">{NO_DATA}</text>'
            )
    yield "</g>"


def _stat(shown: Shown) -> Iterator[str]:
    values = [line.points[-1][1] for line in shown.lines]
    value = written(values[0], shown.panel.unit) if values else NO_DATA
    yield f'<text x="10" y="66" font-size="34" fill="{_COLOURS[0]}">{_text(value)}</text>'
    for number, words in enumerate(textwrap.wrap(shown.panel.description, _STAT_LETTERS)):
        y = 84 + 13 * number
        yield f'<text x="10" y="{y}" font-size="10.5" fill="#57606a">{_text(words)}</text>'


def _table(
    shown: Shown, width: float, _began: float, _ended: float, _events: Sequence[Event]
) -> Iterator[str]:
    """The labels that differ, a column each, and as many rows as there is space for."""
    names = list(shown.lines[0].labels) if shown.lines else []
    column = (width - 20) / max(1, len(names))
    rows = [names, *([line.labels.get(name, "") for name in names] for line in shown.lines)]
    if len(rows) > _MOST_ROWS:
        rows = [*rows[:_MOST_ROWS], [f"and {len(rows) - _MOST_ROWS} more"]]
    for number, row in enumerate(rows):
        y = _TOP + 12 + 18 * number
        style = 'fill="#57606a" font-size="11"' if number == 0 else ""
        for place, words in enumerate(row):
            yield f'<text x="{10 + place * column:.1f}" y="{y}" {style}>{_text(words)}</text>'
        yield f'<path d="M10 {y + 5}H{width - 10:.1f}" stroke="#eaeef2"/>'


def _graph(
    shown: Shown, width: float, began: float, ended: float, events: Sequence[Event]
) -> Iterator[str]:
    right, bottom = width - _RIGHT, _LINES_HEIGHT - 36.0
    values = [value for line in shown.lines for _, value in line.points if math.isfinite(value)]
    low, high = min([0.0, *values]), max([0.0, *values]) or 1.0
    step = _round_step((high - low) / 4)
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step

    def across(at: float) -> float:
        return _LEFT + (right - _LEFT) * (at - began) / (ended - began)

    def down(value: float) -> float:
        return bottom - (bottom - _TOP) * (value - low) / (high - low)

    for number in range(round((high - low) / step) + 1):
        value = low + number * step
        y = down(value)
        yield f'<path d="M{_LEFT} {y:.1f}H{right:.1f}" stroke="#eaeef2"/>'
        label = written(value, shown.panel.unit)
        x = _LEFT - 6
        yield f'<text x="{x}" y="{y + 4:.1f}" text-anchor="end" font-size="11">{label}</text>'
    for minute in range(int((ended - began) / 60) + 1):
        yield (
            f'<text x="{across(began + minute * 60):.1f}" y="{bottom + 15:.1f}" '
            f'text-anchor="middle" font-size="11" fill="#57606a">{minute} min</text>'
        )
    for number, event in enumerate(events, 1):
        x = across(event.at)
        yield f'<path d="M{x:.1f} {_TOP}V{bottom:.1f}" stroke="#8c959f" stroke-dasharray="3 3"/>'
        yield (
            f'<text x="{x + 3:.1f}" y="{_TOP + 9}" font-size="10" fill="#57606a">{number}'
            f"<title>{_text(event.what)}</title></text>"
        )
    for number, line in enumerate(shown.lines):
        colour = _COLOURS[number % len(_COLOURS)]
        path = _path(line, across, down)
        yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    yield from _legend(shown, width)


def _path(line: Line, across: _Scale, down: _Scale) -> str:
    """Pieces of a line: a value that is no number, and a time without values, are gaps."""
    words: list[str] = []
    gap = 3 * min(
        (b[0] - a[0] for a, b in zip(line.points, line.points[1:], strict=False)), default=1
    )
    before = -math.inf
    for at, value in line.points:
        if not math.isfinite(value):
            continue
        words.append(f"{'L' if at - before <= gap else 'M'}{across(at):.1f} {down(value):.1f}")
        before = at
    return "".join(words)


def _legend(shown: Shown, width: float) -> Iterator[str]:
    names = [line.name or shown.panel.title for line in shown.lines]
    if len(names) > _MOST_NAMED:
        names = [*names[:_MOST_NAMED], f"and {len(names) - _MOST_NAMED} more"]
    for number, name in enumerate(names):
        x = 12 + (number % 2) * width / 2
        y = _LINES_HEIGHT + _LEGEND_ROW * (number // 2)
        if number < _MOST_NAMED:
            colour = _COLOURS[number % len(_COLOURS)]
            yield f'<path d="M{x:.1f} {y - 4}h14" stroke="{colour}" stroke-width="3"/>'
        yield f'<text x="{x + 20:.1f}" y="{y}" font-size="11">{_text(name)}</text>'


def _round_step(least: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not below it."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(each * power for each in (1, 2, 5, 10) if each * power >= least * 0.999999)


def written(value: float, unit: str) -> str:
    """A value with its unit, as short as Grafana writes it."""
    if not math.isfinite(value):
        return "no value"
    if unit == "s":
        if value == 0:
            return "0 s"
        if abs(value) < 0.001:
            return f"{value * 1e6:.3g} µs"
        return f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    if unit == "percentunit":
        return f"{value * 100:.4g} %"
    endings = {"ops": "/s", "reqps": "/s"}
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{number}{endings.get(unit, '')}"


def _text(words: str) -> str:
    return saxutils.escape(words)
