"""Schedules of the real API server for tests of the dashboard, with statuses like an operator's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from tests.support import apiscene
from tests.support.chartroles import wait_until_may
from tests.support.controlplane import ControlPlane
from tests.support.redisserver import RedisServer

API = "/apis/duepoint.dev/v1alpha1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"

READY = {
    "type": "Ready", "status": "True", "reason": "Armed", "message": "armed",
    "observedGeneration": 1, "lastTransitionTime": "2026-03-01T00:00:00Z",
}  # fmt: skip
FAILING = {**READY, "type": "Failing", "reason": "Rejected", "message": "answered 503"}
FAILED = {
    "scheduledTime": "2026-03-02T03:30:00Z", "startTime": "2026-03-02T03:30:00.021Z",
    "finishTime": "2026-03-02T03:30:02Z", "outcome": "Failed", "reason": "Rejected",
    "message": "answered 503", "httpStatus": 503, "attempts": 3,
}  # fmt: skip
UPCOMING = [f"2026-03-0{day}T03:30:00Z" for day in range(3, 8)]
SUCCEEDED = {
    "scheduledTime": "2026-03-01T03:30:00Z", "startTime": "2026-03-01T03:30:00.012Z",
    "finishTime": "2026-03-01T03:30:01Z", "outcome": "Succeeded",
}  # fmt: skip


@contextlib.asynccontextmanager
async def open_scene(
    plane: ControlPlane, namespace: str, server: RedisServer, folder: Path
) -> AsyncIterator[apiscene.Scene]:
    """Yield an API process that serves the dashboard."""
    async with apiscene.open_scene(plane, namespace, server, folder, api_dashboard="true") as scene:
        yield scene


def a_schedule(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": name},
        "spec": {
            "schedule": "30 4 * * *", "timeZone": "Europe/Berlin",
            "webhook": {"url": "https://a.example/"}, **spec,
        },
    }  # fmt: skip


def make(scene: apiscene.Scene, *objects: dict[str, Any]) -> dict[str, str]:
    """Create the objects as an admin, and return their uids by name."""
    path = f"{API}/namespaces/{scene.namespace}/schedules"
    made = [scene.plane.admin().post(path, each) for each in objects]
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in made}


def publish(scene: apiscene.Scene, name: str, **status: Any) -> None:
    """Write a Schedule's status, as an operator does."""
    merge = "application/merge-patch+json"
    body = {"status": {"observedGeneration": 1, "conditions": [READY], **status}}
    scene.plane.admin().request("PATCH", f"{path_of(scene, name)}/status", body, merge)


def stored(scene: apiscene.Scene, name: str) -> dict[str, Any]:
    """Return the current object."""
    return dict(scene.plane.admin().get(path_of(scene, name)))


def path_of(scene: apiscene.Scene, name: str) -> str:
    return f"{API}/namespaces/{scene.namespace}/schedules/{name}"


def runs(scene: apiscene.Scene) -> list[dict[str, Any]]:
    """Return the ScheduleRuns of the namespace."""
    path = f"{API}/namespaces/{scene.namespace}/scheduleruns"
    return list(scene.plane.admin().get(path)["items"])


@contextlib.contextmanager
def an_overseer(scene: apiscene.Scene) -> Iterator[str]:
    """Yield an account that may list Schedules of all namespaces, and nothing else."""
    account = "overseer"
    name = f"{scene.namespace}-{account}"
    admin = scene.plane.admin()
    scene.tokens[account] = scene.plane.service_account_token(scene.namespace, account)
    rule = {"apiGroups": ["duepoint.dev"], "resources": ["schedules"], "verbs": ["list"]}
    admin.post(f"{_RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": scene.namespace}],
    }
    admin.post(f"{_RBAC}/clusterrolebindings", binding)
    wait_until_may(scene.plane, scene.namespace, account, "list", resource="schedules")
    try:
        yield account
    finally:
        for kind in ("clusterrolebindings", "clusterroles"):
            admin.delete(f"{_RBAC}/{kind}/{name}")
