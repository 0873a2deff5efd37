"""The dashboard asks for series that there are, and shows each panel in a place of its own."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import promexpressions

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = json.loads((ROOT / "charts/duepoint/files/dashboard.json").read_text())
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
EXPRESSIONS = [
    (title, target["expr"], target["legendFormat"])
    for title, panel in PANELS.items()
    for target in panel.get("targets", ())
]


@pytest.mark.parametrize(("title", "expression", "legend"), EXPRESSIONS)
def test_a_panel_asks_for_what_is_served(title: str, expression: str, legend: str) -> None:
    assert promexpressions.problems(expression) == []
    grouped = set(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", expression))))
    assert set(re.findall(r"{{(\w+)}}", legend)) <= grouped


def test_variables_are_asked_from_what_is_served_and_all_that_are_used_exist() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    asked = [each["query"]["query"] for each in variables.values() if each["type"] == "query"]
    for query in asked:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()
        assert label in promexpressions.known()[metric]
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD["panels"])))
    assert used == set(variables)


def test_every_panel_has_a_title_an_id_and_a_place_of_its_own() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len(PANELS) == len(panels) == len({panel["id"] for panel in panels})
    for one, other in itertools.combinations(panels, 2):
        a, b = one["gridPos"], other["gridPos"]
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or below, (one["title"], other["title"])
        assert a["x"] + a["w"] <= 24


def test_every_metric_of_the_installation_that_an_alert_uses_is_on_it_or_is_a_yes_or_no() -> None:
    alerts = (ROOT / "charts/duepoint/files/alerts.yaml").read_text()
    named = set(re.findall(r"\bduepoint_\w+", alerts))
    shown = set(re.findall(r"\bduepoint_\w+", json.dumps(DASHBOARD["panels"])))
    assert named - shown == {
        "duepoint_leader_transitions_total",
        "duepoint_queue_problems",
        "duepoint_outcomes_dropped_total",
        "duepoint_other_installs",
    }
