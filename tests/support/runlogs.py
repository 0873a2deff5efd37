"""An API server with a run's Job and its Pods, and a fake kubectl, for tests of `logs`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support import scriptedapi

NAMESPACE = "shop"
SCHEDULE = {
    "metadata": {"name": "nightly", "namespace": NAMESPACE, "uid": "u", "generation": 1},
    "spec": {"schedule": "0 2 * * *", "jobTemplate": {}},
}
_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_RUNS = f"/apis/duepoint.dev/v1alpha1/namespaces/{NAMESPACE}/scheduleruns"
_SCHEDULE = f"/apis/duepoint.dev/v1alpha1/namespaces/{NAMESPACE}/schedules/nightly"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
OVER = [{"type": "Complete", "status": "True"}]

#: Notes its arguments, prints a line, and fails if there is a file `fails`.
_KUBECTL = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
words = sys.argv[1:]
with (folder / "asked").open("a") as asked:
    asked.write(json.dumps(words) + "\\n")
print("[pod/p/main] said")
sys.exit((folder / "fails").exists())
"""


class Kubectl:
    """The fake program, in a folder that tests put first on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "kubectl"
        program.write_text(_KUBECTL.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)

    def asked(self) -> list[list[str]]:
        """Return the arguments of each call."""
        noted = self.folder / "asked"
        lines = noted.read_text().splitlines() if noted.exists() else []
        return [json.loads(line) for line in lines]


def waiting(container: str, reason: str = "ContainerCreating", message: str = "") -> Any:
    return {"name": container, "state": {"waiting": {"reason": reason, "message": message}}}


def running(container: str) -> Any:
    return {"name": container, "state": {"running": {}}}


class RunServer:
    """The API server; an entry of ``refusals`` replaces the answer for its path."""

    def __init__(self) -> None:
        self.url = ""
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.refusals: dict[str, scriptedapi.Handler] = {}
        self.lists = 0

    def set_job(
        self,
        *,
        name: str = "j",
        conditions: list[dict[str, str]] | None = None,
        created: str = "2026-11-28T10:00:00Z",
    ) -> None:
        self.jobs[name] = {
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "ownerReferences": [{"controller": True, "uid": "u"}],
                "creationTimestamp": created,
            },
            "status": {"conditions": conditions or []},
        }

    def set_run(self, name: str, created: str, **spec: Any) -> None:
        """Store a ScheduleRun of the Schedule."""
        self.runs[name] = {
            "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": created},
            "spec": {"scheduleName": "nightly", **spec},
        }

    def set_pod(
        self,
        *statuses: dict[str, Any],
        name: str = "p",
        phase: str = "Running",
        containers: tuple[str, ...] = ("main",),
    ) -> None:
        self.pods[name] = {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"containers": [{"name": each} for each in containers]},
            "status": {"phase": phase, "containerStatuses": list(statuses)},
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if (refusal := self.refusals.get(request.path)) is not None:
            return await refusal(request)
        if request.path == PODS:
            self.lists += 1
        found = self._objects().get(request.path)
        return web.json_response(found or {}, status=200 if found else 404)

    def _objects(self) -> dict[str, dict[str, Any]]:
        """Return the objects by path."""
        listed = {_JOBS: self.jobs, _RUNS: self.runs, PODS: self.pods}
        found = {
            path: {"items": list(items.values()), "metadata": {"resourceVersion": "1"}}
            for path, items in listed.items()
        }
        for path in (_JOBS, _RUNS):
            found |= {f"{path}/{name}": item for name, item in listed[path].items()}
        return found | {_SCHEDULE: SCHEDULE}


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[RunServer]:
    found = RunServer()
    async with scriptedapi.serving(found.answer) as server:
        found.url = server.url
        yield found
