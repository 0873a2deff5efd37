"""A load as a picture: events a second, and how late they were. Pure; an SVG is text.

Two panels share the axis of time. Above: what was due and what arrived, in steps of the time.
Below: lateness, a dot for each event where they are few; where they are many, for each step the
middle of its events as a line, the span from p10 to p99 as a band, and the greatest as a dot.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax import saxutils

from duepoint.cli.load.lateness import LoadReport, percentile

_WIDTH, _HEIGHT = 860, 470
_LEFT, _RIGHT = 70, 24
_UPPER = (78, 190)
_LOWER = (246, 412)
#: Most steps of the time; few events are shown in fewer, so that each has several.
_STEPS = 60
#: More events than this are drawn as a band.
_MOST_DOTS = 1_000
_DUE, _ARRIVED, _BAND, _GREY = "#9aa5b1", "#2f6fab", "#bcd6ec", "#52606d"


def picture(report: LoadReport, due_us: Sequence[int], first_us: Sequence[int]) -> str:
    """The SVG of a load; ``first_us`` 0 = did not arrive."""
    start_us = due_us[0]
    ends = [due_us[-1], *(arrived for arrived in first_us if arrived)]
    span_us = max(max(ends) - start_us, 1_000)
    step_us = span_us / min(_STEPS, max(len(due_us) // 4, 10))
    events = [
        (_x((due - start_us) / span_us), due - start_us, (arrived - due) / 1_000)
        for due, arrived in zip(due_us, first_us, strict=True)
        if arrived
    ]
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
            f' width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
        *_heading(report),
        *_rates(due_us, first_us, start_us, span_us, step_us),
        *_latenesses(events, span_us),
        *_times(span_us / 1e6),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _heading(report: LoadReport) -> Iterator[str]:
    title = f"{report.count:,} one-offs of {report.set_name} within {report.within_seconds:g} s"
    yield _text(_LEFT, 24, title, 'font-weight="bold" font-size="15"')
    late = report.row()["latenessMs"]
    shown = ", ".join(f"{name} {value:,.1f}" for name, value in late.items() if value is not None)
    figures = (
        f"lost {report.lost:,}, doubled {report.doubled:,}, early {report.early:,};"
        f" lateness in ms: {shown or 'nothing arrived'}"
    )
    yield _text(_LEFT, 44, figures, f'fill="{_GREY}"')


def _rates(
    due_us: Sequence[int], first_us: Sequence[int], start_us: int, span_us: int, step_us: float
) -> Iterator[str]:
    """Due and arrived, in events a second."""
    top, bottom = _UPPER
    seconds = step_us / 1e6
    steps = round(span_us / step_us)
    due = _counts(due_us, start_us, step_us, steps)
    arrived = _counts([each for each in first_us if each], start_us, step_us, steps)
    rates = [(one / seconds, other / seconds) for one, other in zip(due, arrived, strict=True)]
    most = _nice(max(max(pair) for pair in rates))
    yield _text(_LEFT, top - 8, "events a second", f'fill="{_GREY}"')
    yield _box(_LEFT + 110, top - 17, 10, 10, _DUE)
    yield _text(_LEFT + 125, top - 8, "due", f'fill="{_GREY}"')
    yield _box(_LEFT + 160, top - 17, 10, 10, _ARRIVED)
    yield _text(_LEFT + 175, top - 8, "arrived", f'fill="{_GREY}"')
    yield from _grid(top, bottom, most)
    width = (_WIDTH - _LEFT - _RIGHT) / len(rates)
    for number, (one, other) in enumerate(rates):
        left = _LEFT + number * width
        for offset, value, colour in ((0.0, one, _DUE), (0.5, other, _ARRIVED)):
            if value:
                height = value / most * (bottom - top)
                x = left + width * (0.08 + 0.84 * offset)
                yield _box(x, bottom - height, width * 0.42, height, colour)


def _counts(instants_us: Sequence[int], start_us: int, step_us: float, steps: int) -> list[int]:
    counts = [0] * steps
    for instant in instants_us:
        counts[min(max(int((instant - start_us) / step_us), 0), steps - 1)] += 1
    return counts


def _latenesses(events: list[tuple[float, int, float]], span_us: int) -> Iterator[str]:
    """Dots, or a band with a line and the greatest; milliseconds from 0 up."""
    top, bottom = _LOWER
    most = _nice(max((late for _, _, late in events), default=1.0))
    what = "lateness in ms"
    if len(events) > _MOST_DOTS:
        what += ": median as a line, p10 to p99 as a band, the greatest as dots"
    yield _text(_LEFT, top - 8, what, f'fill="{_GREY}"')
    yield from _grid(top, bottom, most)

    def y(late: float) -> float:
        return bottom - min(max(late, 0.0), most) / most * (bottom - top)

    if len(events) <= _MOST_DOTS:
        for x, _, late in events:
            yield _dot(x, y(late), 2.5)
        return
    steps: dict[int, list[float]] = {}
    for _, offset_us, late in events:
        steps.setdefault(min(offset_us * _STEPS // span_us, _STEPS - 1), []).append(late)
    columns = []
    for number, latenesses in sorted(steps.items()):
        ascending = sorted(round(late * 1_000) for late in latenesses)
        shares = [percentile(ascending, share) / 1_000 for share in (0.1, 0.5, 0.99, 1.0)]
        columns.append((_x((number + 0.5) / _STEPS), *map(y, shares)))
    band = [(x, low) for x, low, *_ in columns] + [(x, high) for x, _, _, high, _ in columns[::-1]]
    yield f'<polygon points="{_points(band)}" fill="{_BAND}"/>'
    middle = _points([(x, median) for x, _, median, *_ in columns])
    yield f'<polyline points="{middle}" fill="none" stroke="{_ARRIVED}" stroke-width="1.5"/>'
    for x, *_, greatest in columns:
        yield _dot(x, greatest, 2)


def _grid(top: int, bottom: int, most: float) -> Iterator[str]:
    """Lines at four heights, with their values."""
    for part in range(5):
        y = bottom - part / 4 * (bottom - top)
        yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#e4e7eb"/>'
        yield _text(
            _LEFT - 6, y + 4, f"{most * part / 4:,.10g}", f'fill="{_GREY}" text-anchor="end"'
        )


def _times(span_seconds: float) -> Iterator[str]:
    """The axis of time, below both panels."""
    step = _nice(span_seconds / 5)
    for number in range(int(span_seconds / step + 1e-9) + 1):
        x = _x(number * step / span_seconds)
        for _, bottom in (_UPPER, _LOWER):
            yield f'<path d="M{x:.1f} {bottom}v5" stroke="{_GREY}"/>'
        label = f"{number * step:.4g} s"
        yield _text(x, _LOWER[1] + 19, label, f'fill="{_GREY}" text-anchor="middle"')
    below = "time since the first due time"
    yield _text(_WIDTH - _RIGHT, _LOWER[1] + 38, below, f'fill="{_GREY}" text-anchor="end"')


def _nice(value: float) -> float:
    """The value or a little more, as 1, 2, 2.5, 4, 5 or 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(each * power for each in (1, 2, 2.5, 4, 5, 8, 10) if each * power >= value * 0.9999)


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _points(pairs: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
    )


def _dot(x: float, y: float, radius: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{_ARRIVED}"/>'


def _text(x: float, y: float, text: str, attributes: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{saxutils.escape(text)}</text>'
