"""An API server with the Job of a run, its Pods, and their logs: what no development cluster has.

It speaks what ``duepoint logs`` asks for: lists, watches, and the log of a container in pieces,
cut, silent or refused, in the kubelet's words.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections import defaultdict
from collections.abc import AsyncIterator
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
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
OVER = [{"type": "Complete", "status": "True"}]


def waiting(container: str, reason: str = "ContainerCreating", message: str = "") -> Any:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"name": container, "state": state}


def running(container: str) -> Any:
    return {"name": container, "state": {"running": {}}}


def ended(container: str, code: int = 0, restarts: int = 0) -> Any:
    state = {"terminated": {"exitCode": code}}
    return {"name": container, "state": state, "restartCount": restarts}


def line(second: int, text: str) -> bytes:
    return f"2026-11-28T10:00:{second:02d}.000000000Z {text}\n".encode()


def refused(container: str, pod: str = "p") -> scriptedapi.Handler:
    message = f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating'
    return scriptedapi.answers(400, {"kind": "Status", "code": 400, "message": message})


class RunServer:
    """The cluster; change it in its own loop."""

    def __init__(self) -> None:
        self.url = ""
        self.job: dict[str, Any] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        #: Answers for the log of (Pod, container), in turn, the last one for ever.
        self.logs: dict[tuple[str, str], list[scriptedapi.Handler]] = {}
        self.asked: list[dict[str, str]] = []
        self.refusals: dict[str, scriptedapi.Handler] = {}
        self._version = 10
        self._history: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._changed = asyncio.Condition()

    async def set_job(
        self, *, name: str = "j", conditions: list[dict[str, str]] | None = None, created: str = ""
    ) -> None:
        known = self.job
        self.job = {
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "ownerReferences": [{"controller": True, "uid": "u"}],
                "creationTimestamp": created
                or (known.get("metadata") or {}).get("creationTimestamp", "2026-11-28T10:00:00Z"),
            },
            "status": {"conditions": conditions or []},
        }
        await self._note(_JOBS, "MODIFIED" if known else "ADDED", self.job)

    def set_run(self, name: str, created: str, **spec: Any) -> None:
        """A ScheduleRun of the Schedule."""
        self.runs[name] = {
            "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": created},
            "spec": {"scheduleName": "nightly", **spec},
        }

    async def delete_job(self) -> None:
        gone, self.job = self.job, {}
        await self._note(_JOBS, "DELETED", gone)

    async def set_pod(
        self,
        *statuses: dict[str, Any],
        name: str = "p",
        phase: str = "Running",
        restart_policy: str = "Never",
        containers: tuple[str, ...] = ("main",),
    ) -> None:
        known = name in self.pods
        self.pods[name] = {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "restartPolicy": restart_policy,
                "containers": [{"name": each} for each in containers],
            },
            "status": {"phase": phase, "containerStatuses": list(statuses)},
        }
        await self._note(_PODS, "MODIFIED" if known else "ADDED", self.pods[name])

    async def delete_pod(self, name: str = "p") -> None:
        await self._note(_PODS, "DELETED", self.pods.pop(name))

    async def _note(self, path: str, change: str, item: dict[str, Any]) -> None:
        async with self._changed:
            self._version += 1
            item["metadata"]["resourceVersion"] = str(self._version)
            self._history[path].append({"type": change, "object": copy.deepcopy(item)})
            self._changed.notify_all()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ConnectionResetError:  # the command has ended; the server must not speak of it
            return web.Response()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        for path, refusal in self.refusals.items():
            watches = path.endswith("?watch") and "watch" in request.query
            if request.path == path or (watches and request.path == path.removesuffix("?watch")):
                return await refusal(request)
        if request.path.startswith(f"{_PODS}/"):
            return await self._log(request)
        if request.path in (_JOBS, _PODS):
            if "watch" in request.query:
                return await self._watch(request)
            listed = list(self.pods.values()) if request.path == _PODS else [self.job]
            items = [one for one in listed if one]
            metadata = {"resourceVersion": str(self._version)}
            return web.json_response({"items": items, "metadata": metadata})
        found = self._objects().get(request.path)
        return web.json_response(found or {}, status=200 if found else 404)

    def _objects(self) -> dict[str, dict[str, Any]]:
        """What is read by itself, and the list of ScheduleRuns."""
        found = {f"{_RUNS}/{name}": run for name, run in self.runs.items()}
        if self.job:
            found[f"{_JOBS}/{self.job['metadata']['name']}"] = self.job
        schedule = _RUNS.replace("scheduleruns", "schedules/nightly")
        return found | {_RUNS: {"items": list(self.runs.values())}, schedule: SCHEDULE}

    async def _log(self, request: web.Request) -> web.StreamResponse:
        pod = request.path.removeprefix(f"{_PODS}/").partition("/")[0]
        self.asked.append({"pod": pod, **request.query})
        script = self.logs.get((pod, request.query["container"]))
        if script is None or pod not in self.pods:
            return await scriptedapi.answers(404, {"message": f'pods "{pod}" not found'})(request)
        return await (script.pop(0) if len(script) > 1 else script[0])(request)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        after, history = int(request.query["resourceVersion"]), self._history[request.path]
        while True:
            for event in list(history):
                version = int(event["object"]["metadata"]["resourceVersion"])
                if version > after:
                    after = version
                    await response.write(json.dumps(event).encode() + b"\n")
            async with self._changed:
                if (
                    not history
                    or int(history[-1]["object"]["metadata"]["resourceVersion"]) <= after
                ):
                    await self._changed.wait()


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[RunServer]:
    found = RunServer()
    async with scriptedapi.serving(found.answer) as server:
        found.url = server.url
        yield found
