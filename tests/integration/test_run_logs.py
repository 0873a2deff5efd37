"""``duepoint logs --follow`` through a real API server, to a kubelet of the test's own.

The kubelet of the development cluster runs no container and has no logs. A node of the test names
a server of the test as its kubelet, and the API server hands the request for a log on to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from duepoint.kube import jobbuilder
from tests.support import background, certificates, pagereader, scriptedapi
from tests.support.controlplane import OUTCOME, ControlPlane
from tests.support.servedcrds import duepoint_plane

__all__ = ["duepoint_plane"]

NODE = "node-with-logs"


class Kubelet:
    """Answers ``/containerLogs/NAMESPACE/POD/CONTAINER`` by script."""

    def __init__(self) -> None:
        self.port = 0
        self.script: list[scriptedapi.Handler] = []
        self.asked: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.path.startswith("/containerLogs/")
        self.asked.append(dict(request.query))
        return await self.script.pop(0)(request)


@contextlib.asynccontextmanager
async def kubelet_in(folder: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", kubelet.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    tls = certificates.Authority("ca").signs("127.0.0.1").serving(folder)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    kubelet.port = runner.addresses[0][1]
    try:
        yield kubelet
    finally:
        await runner.cleanup()


@pytest.fixture
def kubelet(duepoint_plane: ControlPlane, tmp_path: Path) -> Iterator[Kubelet]:
    """A node that takes no Pods but those that name it, with its kubelet."""
    admin = duepoint_plane.admin()
    with background.living(lambda: kubelet_in(tmp_path)) as (server, _):
        labels = {"type": "kwok"}
        node = {"metadata": {"name": NODE, "labels": labels}, "spec": {"unschedulable": True}}
        admin.post("/api/v1/nodes", node)
        try:
            endpoint = {"daemonEndpoints": {"kubeletEndpoint": {"Port": server.port}}}
            merge(duepoint_plane, f"/api/v1/nodes/{NODE}/status", {"status": endpoint})
            yield server
        finally:
            admin.delete(f"/api/v1/nodes/{NODE}")


def merge(plane: ControlPlane, path: str, change: Any) -> None:
    plane.admin().request("PATCH", path, change, "application/merge-patch+json")


def start_run(plane: ControlPlane, namespace: str) -> None:
    """A Schedule, and a Job of it whose Pod is on the node and ends when the test says so."""
    admin = plane.admin()
    pod = {
        "restartPolicy": "Never",
        "nodeName": NODE,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "a.example/a"}],
    }
    template = {"metadata": {"annotations": {OUTCOME: "hang"}}, "spec": pod}
    made = admin.post(
        f"/apis/duepoint.dev/v1alpha1/namespaces/{namespace}/schedules",
        {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": "Schedule",
            "metadata": {"name": "nightly"},
            "spec": {"schedule": "0 2 * * *", "jobTemplate": {"spec": {"template": template}}},
        },
    )
    owner = {
        "apiVersion": "duepoint.dev/v1alpha1", "kind": "Schedule", "name": "nightly",
        "uid": made["metadata"]["uid"], "controller": True,
    }  # fmt: skip
    admin.post(
        f"/apis/batch/v1/namespaces/{namespace}/jobs",
        {
            "metadata": {
                "name": "nightly-1",
                "labels": {jobbuilder.SCHEDULE_LABEL: "nightly"},
                "ownerReferences": [owner],
            },
            "spec": {"template": template},
        },
    )


def set_pod(plane: ControlPlane, namespace: str, phase: str, state: Any) -> None:
    """What the kubelet says of the container."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    deadline = time.monotonic() + 60
    while not (found := plane.admin().get(pods)["items"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    [pod] = found
    known = {"name": "main", "image": "a", "imageID": "a", "ready": False, "restartCount": 0}
    status = {"phase": phase, "containerStatuses": [{**known, "state": state}]}
    merge(plane, f"{pods}/{pod['metadata']['name']}/status", {"status": status})


def test_a_log_is_followed_by_kubectl_from_waiting_to_its_end(
    duepoint_plane: ControlPlane, kube_namespace: str, kubelet: Kubelet
) -> None:
    async def ends(_request: web.Request) -> web.StreamResponse:
        ended = {"terminated": {"exitCode": 0}}
        await asyncio.to_thread(set_pod, duepoint_plane, kube_namespace, "Succeeded", ended)
        return web.Response()

    kubelet.script = [scriptedapi.streams(b"a\n", b"b\n", then=ends)]
    start_run(duepoint_plane, kube_namespace)
    words = ["logs", "nightly", "-n", kube_namespace, "-f", "--tail", "50", "--timeout", "60s"]
    with subprocess.Popen(
        [pagereader.BIN / "kubectl-duepoint", *words, "--kubeconfig", duepoint_plane.kubeconfig],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        runs = {"running": {"startedAt": "2026-11-28T10:00:00Z"}}
        set_pod(duepoint_plane, kube_namespace, "Running", runs)
        out, err = process.communicate(timeout=60)

    assert process.returncode == 0, err
    assert [shown.rpartition(" ")[2] for shown in out.splitlines()] == ["a", "b"]
    assert kubelet.asked == [{"follow": "true", "tailLines": "50"}]
