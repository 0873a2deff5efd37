"""Schedules out of Git, applied again and again: nobody fights over a field with the operator.

kubectl is the applier, in both of its ways; Argo CD's and Flux's checks are run on the objects that
a real operator has written.
"""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack import Stack

KUBECTL = str(Path(sys.executable).with_name("kubectl"))
OURS = "duepoint"
WAYS = {
    "server-side": ("--server-side", "--field-manager=argocd-controller"),
    "client-side": (),
}

# What people write: defaults left out, nulls, quantities as numbers, a field of each kind.
SPEC: dict[str, Any] = {
    "schedule": "30 2 * * *",
    "timeZone": "Europe/Rome",
    "startTime": "2026-01-01T00:00:00+01:00",
    "jitter": "30s",
    "suspend": None,
    "payload": {"report": "daily", "n": 1.0, "empty": {}},
    "jobTemplate": {
        "metadata": {"labels": {"app": "reports"}},
        "spec": {
            "backoffLimit": 2,
            "template": {
                "metadata": {"creationTimestamp": None},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "main",
                            "image": "busybox",
                            "resources": {"limits": {"cpu": 1, "memory": "64Mi"}},
                            "env": [{"name": "A", "value": "b"}],
                        }
                    ],
                },
            },
        },
    },
}


def a_manifest(stack: Stack, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {
            "name": name,
            "namespace": stack.namespace,
            "labels": {"app.kubernetes.io/instance": "reports"},
        },
        "spec": spec or copy.deepcopy(SPEC),
    }


async def kubectl(stack: Stack, *arguments: str, given: object = None) -> str:
    def run() -> str:
        done = subprocess.run(
            [KUBECTL, "--kubeconfig", str(stack.plane.kubeconfig), *arguments],
            input=json.dumps(given), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "conflict" not in done.stderr.lower(), done.stderr
        return done.stdout

    return await asyncio.to_thread(run)


async def apply(stack: Stack, manifest: dict[str, Any], way: str) -> str:
    return await kubectl(stack, "apply", *WAYS[way], "-f", "-", given=manifest)


async def settled(stack: Stack, name: str) -> dict[str, Any]:
    """The Schedule once Ready, with its managed fields."""
    await stack.wait_until_ready(name)
    return await stack.schedule(name)


def written(found: dict[str, Any]) -> dict[str, Any]:
    """All that is not the operator's: the object without status and what every write changes."""
    kept = copy.deepcopy(found)
    kept.pop("status", None)
    kept["metadata"].pop("resourceVersion")
    kept["metadata"]["managedFields"] = [
        entry for entry in kept["metadata"]["managedFields"] if entry.get("subresource") != "status"
    ]
    return kept


@pytest.mark.parametrize("way", WAYS)
async def test_the_operator_owns_status_and_nothing_else(stack: Stack, way: str) -> None:
    await stack.running()
    manifest = a_manifest(stack, "owned", schedule="@every 1s", webhook=stack.webhook())
    await apply(stack, manifest, way)
    await stack.wait_for_deliveries(2, "owned")
    found = await stack.wait_for_schedule(
        "owned", lambda found: found["status"].get("runs", {}).get("started", 0) >= 1, "a run"
    )
    for entry in found["metadata"]["managedFields"]:
        fields = set(entry["fieldsV1"])
        if entry.get("subresource") == "status":
            assert fields == {"f:status"}
            assert OURS in entry["manager"]
        else:
            assert "f:status" not in fields
            assert OURS not in entry["manager"]
