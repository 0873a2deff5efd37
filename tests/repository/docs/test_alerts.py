"""Alerts name metrics that there are, each has cases and a page, and the pages name no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import promexpressions

ROOT = Path(__file__).resolve().parents[3]
GROUPS = yaml.load(
    (ROOT / "charts/duepoint/files/alerts.yaml").read_text(), Loader=yaml.CSafeLoader
)["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
CASES = ROOT / "tests/integration/alerts/alerts_test.yaml"
PAGES = ROOT / "docs/runbooks"


@pytest.mark.parametrize("alert", ALERTS)
def test_the_expression_of_an_alert_names_what_is_served(alert: str) -> None:
    assert promexpressions.problems(ALERTS[alert]["expr"]) == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("duepoint_leadr < 1", "no metric duepoint_leadr"),
        ("up == 0", "no metric of ours"),
        ('duepoint_slots_total{result="Missed"}', "duepoint_slots_total has no label result"),
        ("sum by (shard) (duepoint_leader)", "no series in it has the label shard"),
        (
            'kube_duepoint_schedule_status_active{type="Ready"}',
            "kube_duepoint_schedule_status_active has no label type",
        ),
    ],
)
def test_an_expression_that_selects_nothing_is_noticed(expression: str, problem: str) -> None:
    assert promexpressions.problems(expression) == [problem]


@pytest.mark.parametrize("alert", ALERTS)
def test_texts_of_an_alert_use_labels_that_its_expression_keeps(alert: str) -> None:
    rule: dict[str, Any] = ALERTS[alert]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"].keys() == {"summary", "description"}
    kept = set(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", rule["expr"]))))
    used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["description"]))
    assert used <= kept


def test_every_alert_has_cases_in_which_it_fires_and_in_which_it_does_not() -> None:
    fires, rests = set(), set()
    for case in yaml.load(CASES.read_text(), Loader=yaml.CSafeLoader)["tests"]:
        for look in case["alert_rule_test"]:
            (fires if look["exp_alerts"] else rests).add(look["alertname"])
    assert fires == set(ALERTS)
    # a check of Redis that fails has nothing to wait for
    assert rests >= set(ALERTS) - {"DuepointQueueMisconfigured", "DuepointClockSkew"}


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert sorted(page.stem for page in PAGES.glob("*.md")) == sorted([*ALERTS, "README"])


@pytest.mark.parametrize("alert", ALERTS)
def test_a_page_says_what_it_is_how_to_see_it_and_what_to_do(alert: str) -> None:
    text = (PAGES / f"{alert}.md").read_text()
    title, see, do = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    assert (title, see, do) == (alert, "How to see it", "What to do")
    assert "```\n" in text
    assert f"[{alert}]({alert}.md)" in (PAGES / "README.md").read_text()


def test_the_page_lists_every_series_of_kube_state_metrics_with_its_labels() -> None:
    text = (ROOT / "docs/howto/alert-on-schedules.md").read_text()
    rows = dict(re.findall(r"^\| `(kube_duepoint_\w+)` \| ([^|]*)\|", text, re.MULTILINE))
    usual = promexpressions.TARGET_LABELS | {"schedule", "scheduleset"}
    served = {
        name: labels - usual
        for name, labels in promexpressions.known().items()
        if name.startswith("kube_")
    }
    assert {name: set(re.findall(r"`([a-z]+)`", row)[:2]) for name, row in rows.items()} == {
        name: {*labels, *({"started"} if "result" in labels else ())}
        for name, labels in served.items()
    }


def test_kube_state_metrics_reads_fields_that_the_crds_have() -> None:
    configured = yaml.load(promexpressions.STATE_METRICS.read_text(), Loader=yaml.CSafeLoader)[
        "spec"
    ]["resources"]
    for resource in configured:
        plural = f"{resource['groupVersionKind']['kind'].lower()}s"
        crd = yaml.load(
            (ROOT / f"crds/duepoint.dev_{plural}.yaml").read_text(), Loader=yaml.CSafeLoader
        )
        (version,) = crd["spec"]["versions"]
        fields = version["schema"]["openAPIV3Schema"]["properties"]
        for metric in resource["metrics"]:
            first, *path = metric["each"]["gauge"]["path"]
            place = fields[first]
            for name in path if first != "metadata" else ():
                assert name in place["properties"], metric["name"]
                place = place["properties"][name]
