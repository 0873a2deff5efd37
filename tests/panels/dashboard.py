"""The dashboard that the chart ships: rows of panels, and their queries as Grafana asks them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / "charts" / "duepoint" / "files" / "dashboard.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """``legend``: the name of a series, with ``{{label}}`` for a label; "" = none."""

    expression: str
    legend: str

    def name_of(self, labels: Mapping[str, str]) -> str:
        name = self.legend
        for label, value in labels.items():
            name = name.replace("{{" + label + "}}", value)
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """``kind``: ``stat``, ``timeseries`` or ``table``; ``x`` and ``width`` in 24ths of a row."""

    title: str
    description: str
    kind: str
    unit: str
    x: int
    y: int
    width: int
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    title: str
    panels: tuple[Panel, ...]

    @property
    def name(self) -> str:
        """As a file is called: ``Queue and workers`` is ``queue-and-workers``."""
        words = self.title.partition(" (")[0].lower().split()
        return "-".join(words)


def rows(variables: Mapping[str, str], file: Path = FILE) -> list[Row]:
    """The rows in their order; ``variables`` are the values of the dashboard's own."""
    found: list[tuple[str, list[Panel]]] = []
    for panel in json.loads(file.read_text())["panels"]:
        if panel["type"] == "row":
            found.append((panel["title"], []))
        else:
            found[-1][1].append(_panel(panel, variables))
    return [Row(title=title, panels=tuple(panels)) for title, panels in found]


def _panel(panel: dict[str, Any], variables: Mapping[str, str]) -> Panel:
    place = panel["gridPos"]
    return Panel(
        title=panel["title"],
        description=panel.get("description", ""),
        kind=panel["type"],
        unit=panel["fieldConfig"]["defaults"].get("unit", "short"),
        x=place["x"],
        y=place["y"],
        width=place["w"],
        queries=tuple(
            Query(expression=_filled(each["expr"], variables), legend=each["legendFormat"])
            for each in panel["targets"]
        ),
    )


def _filled(expression: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        expression = expression.replace(f"${name}", value)
    return expression
