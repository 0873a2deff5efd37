"""An installation with ScheduleSets in it, on real servers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from duepoint.delayqueue.members import values
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules
from duepoint.schedules import rule as rules
from duepoint.schedules.sets.setrecord import SetRecord
from tests.integration.controller.conftest import Installation, condition

NAME = "customers"
YEARLY = rules.Rule(timing=rules.Timing(schedules=("0 0 1 1 *",)))


class SetScene:
    """What users do with sets, and what they see."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.user = installation.user
        self.namespace = installation.namespace
        self.queue = installation.queue

    async def create(self, name: str = NAME, **fields: Any) -> dict[str, Any]:
        spec = dict(fields)
        if not {"webhook", "jobTemplate", "stream"} & spec.keys():
            spec["webhook"] = {"url": "https://hooks.example.com/x"}
        body = {
            "apiVersion": schedules.API_VERSION,
            "kind": schedules.SET_KIND,
            "metadata": {"name": name},
            "spec": spec,
        }
        path = schedules.set_collection(self.namespace)
        return json.loads(await self.user.request("POST", path, body))

    def path(self, name: str = NAME) -> str:
        return schedules.path(self.namespace, name, plural=schedules.SET_PLURAL)

    async def edit(self, name: str = NAME, **fields: Any) -> None:
        await self.user.request(
            "PATCH", self.path(name), {"spec": fields}, content_type="application/merge-patch+json"
        )

    async def delete(self, name: str = NAME) -> None:
        await self.user.request("DELETE", self.path(name))

    async def object(self, name: str = NAME) -> dict[str, Any] | None:
        try:
            return json.loads(await self.user.request("GET", self.path(name)))
        except kube_errors.NotFound:
            return None

    async def record(self, name: str = NAME) -> SetRecord | None:
        await self.queue.layouts.read()
        return await self.queue.sets.read(self.namespace, name)

    async def put(self, count: int, name: str = NAME) -> None:
        """Members as the HTTP API writes them."""
        record = await self.record(name)
        assert record is not None
        for first in range(0, count, 2_000):
            rows = [
                values.MemberWrite(id=f"m{number}", rule=YEARLY)
                for number in range(first, min(first + 2_000, count))
            ]
            answers = await self.queue.members.put(record, rows)
            assert {answer.outcome for answer in answers} == {values.Outcome.CREATED}

    async def counted(self, name: str = NAME) -> int:
        record = await self.record(name)
        return 0 if record is None else (await self.queue.sets.counts(record)).members

    async def until(
        self, holds: Callable[[dict[str, Any]], bool], name: str = NAME, seconds: float = 60
    ) -> dict[str, Any]:
        """The status once it holds."""
        deadline = time.monotonic() + seconds
        while True:
            found = await self.object(name)
            status = (found or {}).get("status", {})
            if holds(status):
                return status
            assert time.monotonic() < deadline, f"the status is still {status}"
            await asyncio.sleep(0.02)

    async def until_ready(self, generation: int, name: str = NAME) -> dict[str, Any]:
        def holds(status: dict[str, Any]) -> bool:
            ready = condition(status, "Ready") or {}
            return status.get("observedGeneration") == generation and ready.get("status") == "True"

        return await self.until(holds, name)
