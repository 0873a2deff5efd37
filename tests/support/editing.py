"""Random edits of Schedules that fire every second, and a check that no stale spec fires.

The editor changes each Schedule again and again: its timing, target, payload, suspension. Once
Ready has been *seen* for a generation, no older one may run a slot after that moment. The runs are
read from the receiver's own record and from the Jobs of the API server.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import copy
import dataclasses
import json
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from duepoint.kube import errors, port
from tests.e2e.test_firing import slot_us
from tests.support.builders import JOB_TEMPLATE
from tests.support.stack import JOBS, Object, Stack, _Any

#: An edit becomes Ready within this time.
_READY_SECONDS = 120.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A slot that ran."""

    schedule: str
    slot_us: int
    edit: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The outcome of the edits.

    Attributes:
        runs: slots that ran.
        judged: how many of these came after a generation that had been seen Ready.
        stale: runs of a generation older than the newest one that was Ready before their slot.
        ready_seconds: the time from each apply to its Ready.
    """

    edits: int
    runs: int
    judged: int
    stale: tuple[Run, ...]
    ready_seconds: tuple[float, ...]


class _Job(msgspec.Struct, frozen=True):
    metadata: port.Metadata
    spec: dict[str, Any]


class Editor:
    """Edits several Schedules side by side."""

    def __init__(self, stack: Stack, *, schedules: int, jobs: int, seed: int) -> None:
        self._stack = stack
        self._names = [f"edited-{number}" for number in range(schedules)]
        self._with_jobs = set(self._names[:jobs])
        self._dice = random.Random(seed)
        self._waiting: dict[tuple[str, int], asyncio.Future[int]] = {}
        self._ready: dict[str, list[tuple[int, int]]] = {name: [] for name in self._names}
        self._took: list[float] = []
        self._on_seen: Callable[[int], None] = lambda _: None

    async def run(self, edits: int, *, on_seen: Callable[[int], None] = lambda _: None) -> Found:
        """Make this many edits in all, then judge the runs.

        Args:
            edits: how many.
            on_seen: called with the number of edits seen Ready so far, each time.
        """
        self._on_seen = on_seen
        left = iter(range(edits))
        async with asyncio.TaskGroup() as group:  # if the watch ends, so do the edits
            watching = group.create_task(self._watch())
            editing = (self._edit_again_and_again(name, left) for name in self._names)
            await asyncio.gather(*editing)
            await asyncio.sleep(2.5)  # slots of the last generations
            watching.cancel()
        runs = [*self._delivered(), *await self._created()]
        judged = [(run, newest) for run in runs if (newest := self._newest(run)) > 0]
        return Found(
            edits=len(self._took),
            runs=len(runs),
            judged=len(judged),
            stale=tuple(run for run, newest in judged if run.edit < newest),
            ready_seconds=tuple(self._took),
        )

    async def _edit_again_and_again(self, name: str, left: Iterable[int]) -> None:
        for number, _ in enumerate(left, start=1):
            began = time.monotonic()
            applied = await self._applied(name, self._spec(name, number))
            generation = applied["metadata"]["generation"]
            assert generation == number
            seen_us = await self._seen(name, generation)
            self._took.append(time.monotonic() - began)
            self._ready[name].append((seen_us, number))
            self._on_seen(len(self._took))
            await asyncio.sleep(self._dice.uniform(0, 1.5))

    async def _applied(self, name: str, spec: Object) -> Object:
        """Apply a spec; repeat that if a busy API server does not answer, which is harmless."""
        async with asyncio.timeout(_READY_SECONDS):
            while True:
                with contextlib.suppress(errors.Unavailable):
                    return await self._stack.apply(name, spec)
                await asyncio.sleep(1)

    def _spec(self, name: str, number: int) -> Object:
        dice = self._dice
        spec: Object = {
            "schedule": dice.choice(("@every 1s", "@every 2s", "* * * * * *", "*/2 * * * * *")),
            "timeZone": dice.choice(("Etc/UTC", "Europe/Rome", "Asia/Kathmandu")),
            "catchUpPolicy": dice.choice(("Latest", "All")),
            "payload": {"edit": number},
        }
        if dice.random() < 0.2:
            spec["jitter"] = "300ms"
        if dice.random() < 0.15:
            spec["suspend"] = True
        if name in self._with_jobs and dice.random() < 0.5:
            template = copy.deepcopy(JOB_TEMPLATE)
            template["spec"]["suspend"] = True  # its Pods need not run
            return spec | {"jobTemplate": template}
        return spec | {"webhook": self._stack.webhook(f"/{dice.randrange(4)}")}

    # -- what is seen --------------------------------------------------------------------------

    async def _seen(self, name: str, generation: int) -> int:
        waiting = self._waiting.setdefault(
            (name, generation), asyncio.get_running_loop().create_future()
        )
        return await asyncio.wait_for(waiting, _READY_SECONDS)

    async def _watch(self) -> None:
        path = self._stack._schedules
        listed = json.loads(await self._stack.api.request("GET", path))
        version = listed["metadata"]["resourceVersion"]
        async for change in self._stack.api.watch(path, _Any, version):
            seen_us = time.time_ns() // 1000
            if (generation := _ready_generation(change.item.status)) > 0:
                waiting = self._waiting.setdefault(
                    (change.item.metadata.name, generation),
                    asyncio.get_running_loop().create_future(),
                )
                if not waiting.done():
                    waiting.set_result(seen_us)

    # -- what was run --------------------------------------------------------------------------

    def _delivered(self) -> list[Run]:
        return [
            Run(
                schedule=one.schedule,
                slot_us=slot_us(one.slot),
                edit=one.body["data"]["payload"]["edit"],
            )
            for one in self._stack.deliveries
            if one.schedule in self._ready
        ]

    async def _created(self) -> list[Run]:
        runs = []
        path = JOBS.format(ns=self._stack.namespace)
        async for page in self._stack.api.list_pages(path, _Job):
            for job in page.items:
                annotations = job.spec["template"]["metadata"]["annotations"]
                runs.append(
                    Run(
                        schedule=(job.metadata.labels or {})["duepoint.dev/schedule"],
                        slot_us=slot_us(annotations["duepoint.dev/scheduled-time"]),
                        edit=json.loads(annotations["duepoint.dev/payload"])["edit"],
                    )
                )
        return runs

    def _newest(self, run: Run) -> int:
        """Return the newest edit that had been seen Ready when the slot was due; 0 = none."""
        ready = self._ready[run.schedule]
        before = bisect.bisect_left(ready, (run.slot_us, 0))
        return ready[before - 1][1] if before else 0


def _ready_generation(status: Object) -> int:
    """Return the generation for which Ready is True; 0 = none."""
    for one in status.get("conditions", ()):
        if one["type"] == "Ready" and one["status"] == "True":
            observed = status.get("observedGeneration", 0)
            return int(observed) if one["observedGeneration"] == observed else 0
    return 0
