"""A field that was fine once may stay as it is, whatever later versions of the schema say of it.

The tests use copies of the CRDs under a group of their own: first with next to no rules, then with
ours, so that nobody who shares the API server sees a schema change under them.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.crds import kubeapi
from tests.integration.crds.conftest import CRDS, DEFINITIONS, definition, install
from tests.integration.crds.manifests import JOB, a_schedule
from tests.support.controlplane import wait_until

# One worker: the set-up takes seconds.
pytestmark = pytest.mark.xdist_group("ratcheting")

STORED = {
    "expression": {"schedule": "61 * * * *"},
    "zone": {"timeZone": "Europe/Atlantis"},
    "zone-prefix": {"schedule": "TZ=UTC 0 0 * * *"},
    "jitter": {"jitter": "soon"},
    "policy": {"catchUpPolicy": "Newest"},
    "window": {"startTime": "2030-01-01T00:00:00Z", "endTime": "2029-01-01T00:00:00Z"},
    "webhook": {"webhook": {"url": "ftp://example.com", "method": "FETCH"}},
    "header": {
        "webhook": {"url": "https://example.com", "headers": [{"name": "Host", "value": "x"}]}
    },
    "selector": {"jobTemplate": {"spec": {**JOB["spec"], "manualSelector": True}}},
    "name-that-is-much-longer-than-any-that-we-would-take-today": {},
}


@pytest.fixture(scope="module")
def old_objects(api: kubeapi.KubeApi, namespace: str) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Objects stored under a loose schema that has since become ours; read by name."""
    group = f"r{uuid.uuid4().hex[:8]}.duepoint.test"
    schedules = next(path for path in CRDS if path.stem.endswith("schedules"))
    strict = _in_group(definition(schedules), group)
    install(api, _loosened(strict))
    for name, fields in STORED.items():
        made = api.create(_moved(a_schedule(name, namespace=namespace, **fields), group))
        assert made.ok, made.body
    install(api, strict)
    bad = _moved(a_schedule("new", namespace=namespace, schedule="61 * * * *"), group)
    wait_until(lambda: not api.create(bad, dry_run=True).ok, "the strict schema is in force")
    yield lambda name: api.get(f"/apis/{group}/v1alpha1/namespaces/{namespace}/schedules/{name}")
    api.request("DELETE", f"{DEFINITIONS}/{strict['metadata']['name']}")


@pytest.mark.parametrize("name", STORED)
def test_an_old_object_takes_labels_and_status(
    api: kubeapi.KubeApi, old_objects: Callable[[str], dict[str, Any]], name: str
) -> None:
    old = old_objects(name)
    labelled = api.merge(kubeapi.location(old), {"metadata": {"labels": {"seen": "yes"}}})
    assert labelled.ok, labelled.body["message"]
    status = {"status": {"observedGeneration": 1, "nextScheduleTime": "2030-01-01T00:00:00Z"}}
    written = api.merge(kubeapi.location(old) + "/status", status)
    assert written.ok, written.body["message"]


@pytest.mark.parametrize("name", [name for name in STORED if name != "window"])
def test_an_old_object_takes_an_edit_of_another_field(
    api: kubeapi.KubeApi, old_objects: Callable[[str], dict[str, Any]], name: str
) -> None:
    edited = api.merge(kubeapi.location(old_objects(name)), {"spec": {"suspend": True}})
    assert edited.ok, edited.body["message"]


def test_an_old_bad_value_may_not_become_another_bad_value(
    api: kubeapi.KubeApi, old_objects: Callable[[str], dict[str, Any]]
) -> None:
    old = kubeapi.location(old_objects("expression"))
    assert not api.merge(old, {"spec": {"schedule": "62 * * * *"}}).ok
    assert not api.merge(
        kubeapi.location(old_objects("zone")), {"spec": {"timeZone": "Europe/Avalon"}}
    ).ok


def _in_group(crd: dict[str, Any], group: str) -> dict[str, Any]:
    moved = copy.deepcopy(crd)
    moved["spec"]["group"] = group
    moved["metadata"]["name"] = f"schedules.{group}"
    # Short names belong to the real CRD.
    for taken in ("shortNames", "categories"):
        moved["spec"]["names"].pop(taken)
    return moved


def _loosened(crd: dict[str, Any]) -> dict[str, Any]:
    """The same fields without any rule."""
    loose = copy.deepcopy(crd)
    for version in loose["spec"]["versions"]:
        _drop_rules(version["schema"]["openAPIV3Schema"])
    return loose


def _drop_rules(node: Any) -> None:
    if isinstance(node, list):
        for item in node:
            _drop_rules(item)
    if isinstance(node, dict):
        node.pop("x-kubernetes-validations", None)
        for value in node.values():
            _drop_rules(value)


def _moved(thing: dict[str, Any], group: str) -> dict[str, Any]:
    return {**thing, "apiVersion": f"{group}/v1alpha1"}
