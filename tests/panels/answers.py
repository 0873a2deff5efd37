"""What the panels of the dashboard show for a time: the answers to their queries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.panels import dashboard
from tests.panels.dashboard import Panel, Query, Row
from tests.panels.prometheus import Prometheus, Series

#: How many points a line has.
_POINTS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A series with its name and labels; ``points``: (seconds since 1970, value)."""

    name: str
    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A panel with what its queries gave.

    Attributes:
        empty: expressions that gave no number.
    """

    panel: Panel
    lines: Sequence[Line]
    empty: Sequence[str]


async def of_rows(
    server: Prometheus, variables: Mapping[str, str], began: float, ended: float
) -> list[tuple[Row, list[Shown]]]:
    """Each row of the dashboard with its panels, from ``began`` to ``ended`` (seconds since 1970).

    Raises:
        ValueError: Prometheus refuses a query.
    """
    return [
        (row, [await _of_panel(server, panel, began, ended) for panel in row.panels])
        for row in dashboard.rows(variables)
    ]


async def _of_panel(server: Prometheus, panel: Panel, began: float, ended: float) -> Shown:
    lines: list[Line] = []
    empty: list[str] = []
    for query in panel.queries:
        found = await _asked(server, panel, query, began, ended)
        if not any(math.isfinite(value) for series in found for _, value in series.points):
            empty.append(query.expression)
        named = [
            Line(name=query.name_of(each.labels), labels=each.labels, points=each.points)
            for each in found
        ]
        # Queries stand in the order of the dashboard, the series of each by their size.
        lines += sorted(named, key=_largest_first)
    return Shown(panel=panel, lines=lines, empty=empty)


async def _asked(
    server: Prometheus, panel: Panel, query: Query, began: float, ended: float
) -> list[Series]:
    if panel.kind == "timeseries":
        step = max(1.0, (ended - began) / _POINTS)
        return await server.range_of(query.expression, began, ended, step)
    return await server.now(query.expression, ended)


def _largest_first(line: Line) -> tuple[float, str]:
    finite = [value for _, value in line.points if math.isfinite(value)]
    return -max(finite, default=-math.inf), line.name
