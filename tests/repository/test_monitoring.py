"""Alerts and the dashboard ask for series that there are, and every alert has a runbook."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import promexpressions

ROOT = Path(__file__).resolve().parents[2]


def read(path: Path) -> Any:
    return yaml.load(path.read_text(), Loader=yaml.CSafeLoader)


GROUPS = read(ROOT / "charts/duepoint/files/alerts.yaml")["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
DASHBOARD = json.loads((ROOT / "charts/duepoint/files/dashboard.json").read_text())
RUNBOOKS = ROOT / "docs/howto/runbooks.md"
PANELS = [
    (panel["title"], target["expr"], target["legendFormat"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]


def kept(expression: str) -> set[str]:
    """Labels that an expression groups by."""
    return set(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", expression))))


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_names_what_is_served_and_labels_that_it_keeps(alert: str) -> None:
    rule = ALERTS[alert]
    assert promexpressions.problems(rule["expr"]) == []
    used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["description"]))
    assert used <= kept(rule["expr"])
    assert rule["labels"]["severity"] in {"warning", "critical"}


@pytest.mark.parametrize(("title", "expression", "legend"), PANELS)
def test_a_panel_asks_for_what_is_served(title: str, expression: str, legend: str) -> None:
    assert promexpressions.problems(expression) == [], title
    assert set(re.findall(r"{{(\w+)}}", legend)) <= kept(expression)


def test_every_alert_has_a_runbook_and_cases_in_which_it_fires_and_does_not() -> None:
    assert set(re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)) == set(ALERTS)
    fires, rests = set(), set()
    for case in read(ROOT / "tests/integration/alerts/alerts_test.yaml")["tests"]:
        for look in case["alert_rule_test"]:
            (fires if look["exp_alerts"] else rests).add(look["alertname"])
    assert fires == set(ALERTS)
    # a check of Redis that fails has nothing to wait for
    assert rests >= set(ALERTS) - {"DuepointQueueMisconfigured", "DuepointClockSkew"}
