"""kube-state-metrics itself makes the documented series of objects on a real API server."""

from __future__ import annotations

import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.crds import kubeapi
from tests.integration.crds.conftest import ROOT
from tests.integration.crds.manifests import a_schedule, a_schedule_set
from tests.support import gotools
from tests.support.redisserver import free_port

CONFIGURATION = ROOT / "charts" / "duepoint" / "files" / "kube-state-metrics.yaml"
#: Of all series, and always the same.
COMMON = {"customresource_group", "customresource_version", "customresource_kind"}
NOON, EVENING = "2026-12-24T12:00:00Z", "2026-12-24T18:00:00Z"
NOON_SECONDS, EVENING_SECONDS = 1_798_113_600, 1_798_135_200

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def _write_status(api: kubeapi.KubeApi, thing: dict[str, Any], **status: Any) -> None:
    patch = [{"op": "add", "path": "/status", "value": {"observedGeneration": 1, **status}}]
    path = kubeapi.location(thing) + "/status"
    answer = api.request("PATCH", path, patch, content_type="application/json-patch+json")
    assert answer.ok, answer.body


def _condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": NOON}


@pytest.fixture
def objects(api: kubeapi.KubeApi, kube_namespace: str) -> None:
    """A Schedule and a ScheduleSet with every field that is read, and two new ones."""
    made = a_schedule("nightly", namespace=kube_namespace)
    made["metadata"]["annotations"] = {"duepoint.dev/expected-success-seconds": "93600"}
    full = api.create(made).body
    _write_status(
        api,
        full,
        conditions=[_condition("Ready", "True", "Armed"), _condition("Overdue", "True", "Network")],
        nextScheduleTime=EVENING,
        lastScheduleTime=NOON,
        lastSuccessfulTime=NOON,
        lastFailureTime=NOON,
        activeCount=2,
        runs={"started": 9, "succeeded": 4, "failed": 3, "missed": 1, "skipped": 0},
    )
    assert api.create(a_schedule("new", namespace=kube_namespace, suspend=True)).ok
    many = api.create(a_schedule_set("customers", namespace=kube_namespace)).body
    _write_status(
        api,
        many,
        conditions=[_condition("Ready", "False", "Stalled")],
        members=1_000,
        inFlight=3,
        lagSeconds=1.5,
        nextDueTime=EVENING,
        lastScheduleTime=NOON,
        lost={"members": 1_200, "time": NOON, "generation": 1},
        runs={
            "started": 1,
            "succeeded": 2,
            "failed": 3,
            "missed": 4,
            "skipped": 5,
            "since": NOON,
        },
    )
    assert api.create(a_schedule_set("new", namespace=kube_namespace)).ok


@pytest.fixture
def page(kubeconfig: Path, objects: None, kube_namespace: str) -> Iterator[str]:
    """What kube-state-metrics serves, once it has seen the objects."""
    port, own = free_port(), free_port()
    command = [
        str(gotools.program("kube-state-metrics")),
        f"--kubeconfig={kubeconfig}",
        "--custom-resource-state-only",
        f"--custom-resource-state-config-file={CONFIGURATION}",
        f"--namespaces={kube_namespace}",
        "--host=127.0.0.1",
        f"--port={port}",
        "--telemetry-host=127.0.0.1",
        f"--telemetry-port={own}",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        try:
            yield _text(port)
        finally:
            running.terminate()


def _text(port: int) -> str:
    until = time.monotonic() + 60
    text = ""
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            text = ""
        if text.count("spec_suspend{") == 4:
            return text
        time.sleep(0.2)
    raise AssertionError(f"the objects were not seen: {text[-2000:]}")


def _samples(page: str, namespace: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name not in COMMON}
            assert labels.pop("namespace") == namespace
            found[sample.name, frozenset(labels.items())] = sample.value
    return found


def test_every_series_of_a_schedule_and_of_a_set(page: str, kube_namespace: str) -> None:
    found = _samples(page, kube_namespace)
    created = {key: found.pop(key) for key in list(found) if key[0].endswith("_created")}
    assert len(created) == 4
    assert all(abs(value - time.time()) < 600 for value in created.values())
    expected: Samples = {}

    def put(prefix: str, name: str, value: float, *, of: str, **labels: str) -> None:
        owner = {prefix: of, **labels}
        expected[f"kube_duepoint_{prefix}_{name}", frozenset(owner.items())] = value

    put("schedule", "spec_suspend", 0, of="nightly")
    put("schedule", "spec_suspend", 1, of="new")
    put("schedule", "expected_success_seconds", 93_600, of="nightly")
    put("schedule", "status_condition", 1, of="nightly", type="Ready", reason="Armed")
    put("schedule", "status_condition", 1, of="nightly", type="Overdue", reason="Network")
    put("schedule", "status_next_schedule_time", EVENING_SECONDS, of="nightly")
    for name in ("schedule", "successful", "failure"):
        put("schedule", f"status_last_{name}_time", NOON_SECONDS, of="nightly")
    put("schedule", "status_active", 2, of="nightly")
    for result, count in {
        "started": 9,
        "succeeded": 4,
        "failed": 3,
        "missed": 1,
        "skipped": 0,
    }.items():
        put("schedule", "status_runs", count, of="nightly", result=result)
    put("scheduleset", "spec_suspend", 0, of="customers")
    put("scheduleset", "spec_suspend", 0, of="new")
    put("scheduleset", "status_condition", 0, of="customers", type="Ready", reason="Stalled")
    put("scheduleset", "status_members", 1_000, of="customers")
    put("scheduleset", "status_in_flight", 3, of="customers")
    put("scheduleset", "status_lag_seconds", 1.5, of="customers")
    put("scheduleset", "status_next_due_time", EVENING_SECONDS, of="customers")
    put("scheduleset", "status_last_schedule_time", NOON_SECONDS, of="customers")
    put("scheduleset", "status_lost_members", 1_200, of="customers")
    for count, result in enumerate(("started", "succeeded", "failed", "missed", "skipped"), 1):
        put("scheduleset", f"status_runs_{result}", count, of="customers")
    assert found == expected
    configured = re.findall(r"^        - name: (\w+)$", CONFIGURATION.read_text(), re.MULTILINE)
    assert len(configured) == len({name for name, _ in {**found, **created}})
