"""What must get in: examples, ported CronJobs, nulls everywhere, each form of an expression."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.crds import kubeapi
from tests.integration.crds.manifests import (
    a_job,
    a_schedule,
    a_schedule_run,
    a_webhook,
)

ROOT = Path(__file__).resolve().parents[3]

# What `kubectl create cronjob nightly --image=busybox --schedule="30 2 * * *" --dry-run=client
# -o yaml -- date` prints, in the words of kubectl 1.36 and of older ones, which wrote the nulls.
CRONJOB = """
apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly
spec:
  jobTemplate:
    metadata:
      name: nightly
    spec:
      template:
        metadata: {}
        spec:
          containers:
          - command: [date]
            image: busybox
            name: nightly
            resources: {}
          restartPolicy: OnFailure
  schedule: 30 2 * * *
status: {}
"""
CRONJOB_WITH_NULLS = CRONJOB.replace(
    "name: nightly\n", "creationTimestamp: null\n  name: nightly\n", 1
)
CRONJOB_WITH_NULLS = CRONJOB_WITH_NULLS.replace(
    "metadata: {}", "metadata: {creationTimestamp: null}"
)
CRONJOB_WITH_NULLS = CRONJOB_WITH_NULLS.replace(
    "  schedule:", "  suspend: null\n  startingDeadlineSeconds: null\n  timeZone: null\n  schedule:"
)

EXPRESSIONS = [
    "* * * * *",
    "*/5 * * * *",
    "0,30 9-17 * * MON-FRI",
    "05 02 * * *",
    "10-50/5 */2 1,15 */3 ?",
    "5/15 0 ? * *",
    "0 0 L * *",
    "0 0 LW * *",
    "0 0 15W * *",
    "0 0 * * 5L",
    "0 0 * * 1#2",
    "0 0 * * 7",
    "0 0 * * fri-mon",
    "0 0 1 nov-feb *",
    "H * * * *",
    "H(0-29)/10 H(1-5) H * *",
    "H/15 H H H(1-6) H",
    "*/10 * * * * *",
    "0 30 2 * * *",
    "0 0 12 * * * 2030",
    "0 0 12 24 DEC * 2026-2030/2",
    "0\t2 * *   *",
    " 0 2 * * * ",
    "0 2 * * *\n",
    "\r\n0 2\n* *\v*\f",
    "00 007 * * *",
    "+5 +1-+3/+2 * * *",
    "1,,2 ,0 1, * *",
    "h(00-29)/+5 h * * *",
    "0 0 lw,09W,l * *",
    "0 0 * * FRIl,1#05,sat-1",
    "0 0 1 nov-2 *",
    "@daily\n",
    "@every 5m\n",
    "@hourly",
    "@daily",
    "@midnight",
    "@weekly",
    "@monthly",
    "@yearly",
    "@annually",
    "@every 1h30m",
    "@every 100ms",
    "@every 1.5h",
    "@every 2d12h",
    "@every 90s",
    "@at 2026-12-24T18:00:00Z",
    "@at 2026-12-24T19:00:00.5+01:00",
    "@at 1798135200",
]


@pytest.mark.parametrize("manifest", [CRONJOB, CRONJOB_WITH_NULLS], ids=["new", "with nulls"])
def test_a_cronjob_becomes_a_schedule_by_its_kind_alone(
    api: kubeapi.KubeApi, manifest: str
) -> None:
    ported = yaml.safe_load(manifest)
    ported.update(apiVersion="duepoint.dev/v1alpha1", kind="Schedule")
    ported["metadata"]["namespace"] = "default"
    assert api.create(ported, dry_run=True).ok
    ported["metadata"].pop("creationTimestamp", None)  # apply refuses it for every kind
    applied = api.apply(ported, dry_run=True)
    assert applied.ok, applied.body["message"]
    assert applied.body["status"] == {"observedGeneration": -1}


def test_null_means_absent_in_every_field_that_is_not_required(api: kubeapi.KubeApi) -> None:
    things = list(_all_null(api))
    assert things
    for thing in things:
        for answer in (api.create(thing, dry_run=True), api.apply(thing, dry_run=True)):
            assert answer.ok, answer.body["message"]


def test_defaults_stand_only_where_cronjob_has_them_and_for_zone_dst_catch_up_and_method(
    api: kubeapi.KubeApi,
) -> None:
    hook = a_webhook(headers=[{"name": "X-A", "value": "1"}], retry={})
    created = api.create(a_schedule("good", webhook=hook), dry_run=True).body
    assert created["spec"] == {
        "schedule": "*/5 * * * *",
        "timeZone": "Etc/UTC",
        "dst": {"gap": "RunOnce", "overlap": "First"},
        "suspend": False,
        "catchUpPolicy": "Latest",
        "concurrencyPolicy": "Allow",
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
        "webhook": {**hook, "method": "POST"},
    }


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com",
        "http://hooks.example.com:8080/a?b=%23&c=d@e",
        "https://[2001:db8::1]:8443/x",
        "http://10.1.2.3/",
        "https://xn--mller-kva.example/",
        "https://example.com?x=1",
        "https://example.com:65535/a:65536/",
    ],
)
def test_a_url_is_accepted(api: kubeapi.KubeApi, url: str) -> None:
    answer = api.create(a_schedule("good", webhook={"url": url}), dry_run=True)
    assert answer.ok, answer.body["message"]


@pytest.mark.parametrize(
    "quantity", [1, 0.5, "1", "0.5", ".5", "1.", "+1", "500m", "64Mi", "1e3", "1E", "2k", "1E3"]
)
def test_a_quantity_is_accepted_as_a_job_has_it(api: kubeapi.KubeApi, quantity: Any) -> None:
    container = {"name": "main", "image": "busybox", "resources": {"limits": {"cpu": quantity}}}
    thing = a_schedule("good", jobTemplate=a_job(containers=[container]))
    answer = api.create(thing, dry_run=True)
    assert answer.ok, answer.body["message"]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "good", "namespace": "default"},
        **a_job(containers=[container]),
    }
    assert api.create(job, dry_run=True).ok


def test_a_template_of_a_newer_kubernetes_keeps_the_fields_we_do_not_know(
    api: kubeapi.KubeApi,
) -> None:
    template = a_job(
        containers=[
            {
                "name": "main",
                "image": "busybox",
                "teleport": {"to": "mars"},
                "resources": {"limits": {"cpu": 0.5, "memory": "1Gi"}},
                "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
                "livenessProbe": {"httpGet": {"port": "http", "path": "/"}},
            }
        ],
        warpFactor=9,
    )
    template["metadata"] = {"name": "x", "finalizers": ["a/b"], "labels": {"tier": "x"}}
    thing = a_schedule("good", jobTemplate=template)
    for answer in (api.create(thing, dry_run=True), api.apply(thing, dry_run=True)):
        assert answer.ok, answer.body["message"]
        assert answer.body["spec"]["jobTemplate"] == template


def _documents() -> list[Any]:
    """Every Schedule and ScheduleRun in examples/, README.md and docs/."""
    texts = [(path, path.read_text()) for path in sorted((ROOT / "examples").rglob("*.yaml"))]
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if page.exists():
            blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
            texts += [(page, block) for block in blocks]
    found = []
    for path, text in texts:
        for number, thing in enumerate(yaml.safe_load_all(text)):
            if isinstance(thing, dict) and str(thing.get("apiVersion", "")).startswith(
                "duepoint.dev/"
            ):
                name = f"{path.relative_to(ROOT)}#{thing['metadata'].get('name', number)}"
                found.append(pytest.param(thing, id=name))
    return found


@pytest.mark.parametrize("thing", _documents())
def test_every_manifest_we_show_is_accepted(api: kubeapi.KubeApi, thing: dict[str, Any]) -> None:
    thing["metadata"]["namespace"] = "default"
    answer = api.create(thing, dry_run=True)
    assert answer.ok, answer.body["message"]


def _all_null(api: kubeapi.KubeApi) -> list[dict[str, Any]]:
    """For each target a Schedule, and a ScheduleRun, with null in every optional field."""
    fields = _spec_schema(api, "schedules")
    things = []
    for target in ("jobTemplate", "webhook", "stream"):
        spec = _nulls(fields, kept={"schedule": "0 0 * * *"}, whole={target})
        things.append({**a_schedule("good"), "spec": spec})
    run = _nulls(_spec_schema(api, "scheduleruns"), kept={"scheduleName": "x"}, whole={"trigger"})
    return [*things, {**a_schedule_run("good"), "spec": run}]


def _spec_schema(api: kubeapi.KubeApi, plural: str) -> Any:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definition = api.get(f"{path}/{plural}.duepoint.dev")
    version = definition["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]["properties"]["spec"]


def _nulls(schema: Any, *, kept: dict[str, Any], whole: set[str]) -> dict[str, Any]:
    """Null in each field, but for some values given and some objects filled in turn."""
    filled: dict[str, Any] = {}
    for name, field in schema["properties"].items():
        if name in kept:
            filled[name] = kept[name]
        elif name in whole or name in schema.get("required", []):
            filled[name] = _filled(name, field)
        else:
            filled[name] = None
    return filled


def _filled(name: str, schema: Any) -> Any:
    known = {
        "url": "https://example.com/",
        "restartPolicy": "Never",
        "name": "main",
        "containers": None,
    }
    if name == "containers":
        kept = {"name": "main", "image": "busybox"}
        return [_nulls(schema["items"], kept=kept, whole=set())]
    if schema.get("type") == "object":
        return _nulls(
            schema,
            kept={
                one: known[one] for one in ("url", "restartPolicy") if one in schema["properties"]
            },
            whole=set(),
        )
    return known[name]
