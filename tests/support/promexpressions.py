"""A check that our PromQL expressions name only metrics and labels that exist."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from duepoint import telemetry

ROOT = Path(__file__).resolve().parents[2]
STATE_METRICS = ROOT / "charts" / "duepoint" / "files" / "kube-state-metrics.yaml"
#: Labels that every series gets from the scrape that the chart's monitors configure.
TARGET_LABELS = frozenset({"namespace", "pod", "component", "job", "instance", "container"})
_METRIC = re.compile(r"\b(?:kube_)?duepoint_\w+")
_SELECTOR = re.compile(r"\b((?:kube_)?duepoint_\w+)\s*\{([^}]*)\}")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")


@functools.cache
def known() -> dict[str, frozenset[str]]:
    """Return the labels of each series that our processes or kube-state-metrics serve."""
    return dict(_of_processes()) | dict(_of_state_metrics())


def problems(expression: str) -> list[str]:
    """Return the metrics and labels in the expression that nothing serves."""
    series = known()
    named = _METRIC.findall(expression)
    found = [f"no metric {name}" for name in named if name not in series]
    usable = frozenset().union(*(series.get(name, frozenset()) for name in named))
    for name, matchers in _SELECTOR.findall(expression):
        labels = re.findall(r"(\w+)\s*(?:=|!)", re.sub(r'"[^"]*"', '""', matchers))
        wrong = [label for label in labels if label not in series.get(name, frozenset())]
        found += [f"{name} has no label {label}" for label in wrong]
    for labels in _GROUPING.findall(expression):
        wrong = [label for label in re.findall(r"\w+", labels) if label not in usable]
        found += [f"no series in it has the label {label}" for label in wrong]
    if not named:
        found.append("no metric of ours")
    return found


def _of_processes() -> Iterator[tuple[str, frozenset[str]]]:
    for collector in vars(telemetry).values():
        if isinstance(collector, type | CollectorRegistry) or not hasattr(collector, "collect"):
            continue
        labels = frozenset(getattr(collector, "_labelnames", ())) | TARGET_LABELS
        for family in collector.collect():
            if not family.name.startswith("duepoint_"):
                continue
            if family.type == "counter":
                yield f"{family.name}_total", labels
            elif family.type == "histogram":
                yield f"{family.name}_bucket", labels | {"le"}
                yield f"{family.name}_sum", labels
                yield f"{family.name}_count", labels
            else:
                yield family.name, labels


def _of_state_metrics() -> Iterator[tuple[str, frozenset[str]]]:
    for resource in yaml.load(STATE_METRICS.read_text(), Loader=yaml.CSafeLoader)["spec"][
        "resources"
    ]:
        owner = frozenset(resource["labelsFromPath"])
        for metric in resource["metrics"]:
            gauge = metric["each"]["gauge"]
            own = {*gauge.get("labelsFromPath", ()), gauge.get("labelFromKey", "namespace")}
            yield f"{resource['metricNamePrefix']}_{metric['name']}", owner | own | TARGET_LABELS
