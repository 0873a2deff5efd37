"""The world of the controller with ScheduleRuns in it, and workers that act on them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from duepoint.kube import jobs, schedules
from duepoint.targets import jobtarget
from duepoint.targets.target import EntryTarget
from tests.fakes.recordingtarget import RecordingTarget
from tests.unit.controller.world import NAMESPACE, World

DAY = ("2026-02-01T00:00:00Z", "2026-02-02T00:00:00Z")


class RunWorld(World):
    """One API server, one queue, at most one leader, and workers when asked for.

    Attributes:
        target: records what webhooks and streams are handed; Jobs are created in the API server.
        streams: takes what streams are handed; ``target`` unless a test wants entries.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.target = RecordingTarget(self.clock)
        self.streams: EntryTarget = self.target

    def working(
        self, name: str = "worker-a"
    ) -> contextlib.AbstractAsyncContextManager[asyncio.Task[None]]:
        """A worker at work; killed without a word at the end."""
        job = jobtarget.JobTarget(self.api, self.clock)
        targets = {"job": job, "webhook": self.target, "stream": self.streams}
        return self.worker(targets, self.streams, name)

    # -- what tests do -----------------------------------------------------------------------

    async def run_schedule(self, name: str = "again", **spec: Any) -> dict[str, Any]:
        """Create a ScheduleRun; it triggers ``nightly`` unless told otherwise."""
        metadata = {"namespace": NAMESPACE, "name": name, **spec.pop("metadata", {})}
        spec = {"scheduleName": "nightly", **spec}
        if "backfill" not in spec:
            spec.setdefault("trigger", {})
        made = await self.api.apply("scheduleruns", {"metadata": metadata, "spec": spec})
        await self.clock.settle()
        return made

    async def backfill(self, name: str = "again", **fields: Any) -> dict[str, Any]:
        begin, end = DAY
        return await self.run_schedule(name, backfill={"from": begin, "to": end, **fields})

    async def delete_run(self, name: str = "again") -> None:
        path = schedules.path(NAMESPACE, name, plural=schedules.RUN_PLURAL)
        await self.api.request("DELETE", path)
        await self.clock.settle()

    async def finish_jobs(self, *, succeeded: bool = True, names: tuple[str, ...] = ()) -> int:
        """Every Job that runs ends, or those named; how many."""
        ended = 0
        for job in self.jobs():
            name = job["metadata"]["name"]
            if job.get("status") or (names and name not in names):
                continue
            condition = {
                "type": "Complete" if succeeded else "Failed",
                "status": "True",
                "reason": "" if succeeded else "BackoffLimitExceeded",
                "message": "" if succeeded else "the Pod failed",
                "lastTransitionTime": "2026-03-01T12:00:01Z",
            }
            status = {"conditions": [condition]}
            await self.api.request(
                "PATCH",
                f"{jobs.path(NAMESPACE, name)}/status",
                {"status": status},
                content_type="application/merge-patch+json",
            )
            ended += 1
        await self.clock.settle()
        return ended

    # -- what tests see ------------------------------------------------------------------------

    def jobs(self) -> list[dict[str, Any]]:
        return self.api.all_stored("jobs")

    def slots_of_jobs(self) -> list[str]:
        return sorted(
            job["metadata"]["annotations"]["duepoint.dev/scheduled-time"] for job in self.jobs()
        )

    def run_object(self, name: str = "again") -> dict[str, Any] | None:
        return self.api.stored("scheduleruns", NAMESPACE, name)

    def run_status(self, name: str = "again") -> dict[str, Any]:
        found = self.run_object(name)
        assert found is not None
        return found["status"]

    def run_condition(self, type_: str, name: str = "again") -> dict[str, Any] | None:
        listed = self.run_status(name).get("conditions", [])
        return next((one for one in listed if one["type"] == type_), None)

    def counts(self, name: str = "again") -> tuple[int, ...]:
        """planned, started, succeeded, failed, skipped"""
        runs = self.run_status(name)["runs"]
        return tuple(
            runs[each] for each in ("planned", "started", "succeeded", "failed", "skipped")
        )
