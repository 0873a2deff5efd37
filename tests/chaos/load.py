"""The users of a run: they make Schedules of each target and policy, edits, and one-offs.

Every spec carries the number of the user's edit in its payload, so each effect names its edit.
Recurring Schedules all end at one instant before the end of the run, so the required outcome of
each slot is known by then.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import hashlib
import json
import random
from collections.abc import Iterator
from typing import Any

from duepoint.kube import errors as kube_errors
from tests.chaos.history import NEVER_READY, Wish, instant_us
from tests.chaos.recorder import Recorder, now_us
from tests.support.builders import JOB_TEMPLATE
from tests.support.stack import Stack

Spec = dict[str, Any]
#: A request that got no answer is repeated unchanged after this time.
_RETRY_SECONDS = 0.3
STREAMS = ("ticks", "tocks")
SET = "members"
_RETRY = {"maxAttempts": 100, "initialBackoff": "300ms", "maxBackoff": "2s"}
_ALL = {"catchUpPolicy": "All", "catchUpLimit": 1000}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """The numbers of Schedules of the plain kinds."""

    webhooks: int
    streams: int
    jobs: int
    edited: int
    members: int


class Load:
    """Attributes:
    ends: the instant after which no recurring Schedule has a slot.
    """

    def __init__(self, stack: Stack, recorder: Recorder, ends: dt.datetime) -> None:
        self._stack = stack
        self._recorder = recorder
        self.ends = ends
        self._edits: dict[str, int] = {}
        self._last: dict[str, Wish] = {}
        self._specs: dict[str, Spec] = {}

    async def apply_all(self, amounts: Amounts) -> None:
        """Apply everything that exists from the beginning."""
        specs = dict(self._of_plain_kinds(amounts)) | self._of_policies()
        gate = asyncio.Semaphore(8)

        async def one(name: str, spec: Spec) -> None:
            async with gate:
                await self.apply(name, spec)

        await asyncio.gather(*(one(name, spec) for name, spec in specs.items()))
        await self.apply_set(amounts.members)

    async def edit(self, chance: random.Random, edited: int, seconds: float) -> None:
        """Edit objects every second or so until this many seconds have passed."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        number = 0
        while loop.time() < until:
            await asyncio.sleep(chance.uniform(0.5, 1.5))
            name = f"edited-{chance.randrange(edited)}"
            number += 1
            await self._change(name, chance)
            if number % 3 == 0:
                at = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(
                    seconds=chance.randrange(2, 6)
                )
                await self.apply(f"once-{number}", self._once(at, chance))
            if number % 4 == 0:
                await self.run_by_hand(f"hand-{number}", chance.choice(("hook-0", "job-0")))

    async def apply(self, name: str, spec: Spec) -> None:
        """Write an object; repeat the request until there is an answer."""
        edit = self._edits[name] = self._edits.get(name, 0) + 1
        wanted = {**spec, "payload": {"edit": edit}}
        at_us = now_us()
        while True:
            try:
                applied = await self._stack.apply(name, wanted)
                break
            except (kube_errors.Unavailable, TimeoutError):
                await asyncio.sleep(_RETRY_SECONDS)
        metadata = applied["metadata"]
        created_us = instant_us(metadata["creationTimestamp"])
        text = spec["schedule"]
        if text.startswith("@at "):  # even if past by now, it runs within its deadline
            created_us = min(created_us, instant_us(text[4:]) - 1)
        self._specs[name] = spec
        wish = Wish(
            name=name, uid=metadata["uid"], target=_target(spec), spec=wanted, edit=edit,
            created_us=created_us,
            at_us=at_us, returned_us=now_us(), of=(metadata["uid"], metadata["generation"]),
        )  # fmt: skip
        self._record(wish)

    async def delete(self, name: str) -> None:
        """Delete an object; repeat the request until it is gone."""
        at_us = now_us()
        while True:
            try:
                await self._stack.delete(name)
                break
            except kube_errors.NotFound:
                break
            except (kube_errors.Unavailable, TimeoutError):
                await asyncio.sleep(_RETRY_SECONDS)
        edit = self._edits[name] = self._edits[name] + 1
        del self._specs[name]
        self._record(
            dataclasses.replace(
                self._last[name], spec=None, edit=edit, at_us=at_us, returned_us=now_us(),
                of=NEVER_READY,
            )
        )  # fmt: skip

    async def run_by_hand(self, name: str, schedule: str) -> None:
        """Create a ScheduleRun, whose slot is its own creation."""
        path = f"/apis/duepoint.dev/v1alpha1/namespaces/{self._stack.namespace}/scheduleruns"
        body = {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": "ScheduleRun",
            "metadata": {"name": name},
            "spec": {"scheduleName": schedule, "trigger": {}},
        }
        at_us = now_us()
        while True:
            try:
                made = await self._stack.api.request("POST", path, body)
                break
            except kube_errors.Conflict:  # an answer was lost
                made = await self._stack.api.request("GET", f"{path}/{name}")
                break
            except (kube_errors.Unavailable, TimeoutError):
                await asyncio.sleep(_RETRY_SECONDS)
        metadata = json.loads(made)["metadata"]
        mark = hashlib.sha256(metadata["uid"].encode()).hexdigest()[:10]
        created_us = instant_us(metadata["creationTimestamp"])
        spec = {"schedule": f"@at {metadata['creationTimestamp']}", "catchUpPolicy": "All"}
        wish = Wish(
            name=name, uid=f"run/{mark}", target=_target(self._specs[schedule]), spec=spec, edit=1,
            created_us=created_us - 1, at_us=at_us, returned_us=now_us(),
        )  # fmt: skip
        self._record(wish)

    async def apply_set(self, members: int, *, suspend: bool = False) -> None:
        """Write a set with rows as members, each due every second until the set is suspended."""
        rows = [
            {"id": f"m-{number}", "schedule": "* * * * * *", "payload": {"edit": 1}}
            for number in range(members)
        ]
        spec = {
            "webhook": self._webhook(),
            "defaults": _ALL,
            "rows": {"inline": rows},
            **({"suspend": True} if suspend else {}),
        }
        at_us = now_us()
        metadata = (await self._write_set(SET, spec))["metadata"]
        off = {"schedule": "* * * * * *", **_ALL, **({"suspend": True} if suspend else {})}
        for row in rows:
            wish = Wish(
                name=f"{SET}/{row['id']}", uid=f"{SET}/{row['id']}", target="webhook", spec=off,
                edit=2 if suspend else 1, created_us=at_us, at_us=at_us, returned_us=now_us(),
                of=(metadata["uid"], metadata["generation"]),
            )  # fmt: skip
            self._record(wish)

    async def _write_set(self, name: str, spec: Spec) -> Any:
        """Write a set and return the object."""
        body = {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": "ScheduleSet",
            "metadata": {"name": name, "namespace": self._stack.namespace},
            "spec": spec,
        }
        path = f"/apis/duepoint.dev/v1alpha1/namespaces/{self._stack.namespace}/schedulesets/{name}"
        query = {"fieldManager": "chaos", "force": "true"}
        return json.loads(
            await self._stack.api.request(
                "PATCH", path, body, query=query, content_type="application/apply-patch+yaml"
            )
        )

    def _record(self, wish: Wish) -> None:
        """Record a wish at once, so that even an aborted run can be read."""
        self._last[wish.name] = wish
        self._recorder.add(wish)

    def present(self) -> list[str]:
        """Return the names of the objects that exist."""
        return list(self._specs)

    def has_timing_that_ended(self, name: str) -> bool:
        """Whether its last slot has passed, and it is not suspended."""
        return not self._specs[name].get("suspend")

    # -- specs -----------------------------------------------------------------------------------

    def _of_plain_kinds(self, amounts: Amounts) -> Iterator[tuple[str, Spec]]:
        for number in range(amounts.webhooks):
            yield f"hook-{number}", {**self._every("1s"), **_ALL, "webhook": self._webhook()}
        for number in range(amounts.streams):
            stream = {"name": STREAMS[number % len(STREAMS)], "maxLength": 1_000_000}
            yield f"stream-{number}", {**self._every("1s"), **_ALL, "stream": stream}
        for number in range(amounts.jobs):
            yield f"job-{number}", {**self._every("3s"), **_ALL, **self._job()}
        for number in range(amounts.edited):
            yield f"edited-{number}", {**self._every("1s"), **_ALL, "webhook": self._webhook()}

    def _of_policies(self) -> dict[str, Spec]:
        hook = {"webhook": self._webhook()}
        alone = {**self._every("2s"), **_ALL, **self._job(seconds=3)}
        return {
            "latest": {**self._every("2s"), "catchUpPolicy": "Latest", **hook},
            "none": {**self._every("2s"), "catchUpPolicy": "None", **hook},
            "deadline": {**self._every("2s"), **_ALL, "startingDeadlineSeconds": 6, **hook},
            "jitter": {**self._every("2s"), **_ALL, "jitter": "900ms", **hook},
            "cron": {**self._until(), "schedule": "*/2 * * * * *", **_ALL, **hook},
            "job-latest": {**self._every("3s"), "catchUpPolicy": "Latest", **self._job()},
            "job-forbid": {**alone, "concurrencyPolicy": "Forbid"},
            "job-replace": {**alone, "concurrencyPolicy": "Replace"},
            "job-queue": {**alone, "concurrencyPolicy": "Queue", "queueLimit": 5},
        }

    async def _change(self, name: str, chance: random.Random) -> None:
        """Edit an object, or replace it by another one with the same name."""
        spec = self._specs.get(name)
        if spec is None:
            await self.apply(name, {**self._every("1s"), **_ALL, "webhook": self._webhook()})
            return
        match chance.randrange(5):
            case 0:  # the payload alone
                await self.apply(name, spec)
            case 1:
                period = chance.choice(("1s", "2s", "700ms", "1500ms"))
                await self.apply(name, {**spec, "schedule": f"@every {period}"})
            case 2 | 3:
                kept = {key: value for key, value in spec.items() if key != "suspend"}
                await self.apply(name, kept if spec.get("suspend") else {**kept, "suspend": True})
            case _:
                await self.delete(name)

    def _once(self, at: dt.datetime, chance: random.Random) -> Spec:
        target = chance.choice(({"webhook": self._webhook()}, self._job()))
        text = at.isoformat().replace("+00:00", "Z")
        return {"schedule": f"@at {text}", "startingDeadlineSeconds": 600, **target}

    def _every(self, period: str) -> Spec:
        return {"schedule": f"@every {period}", **self._until()}

    def _until(self) -> Spec:
        return {"endTime": self.ends.isoformat().replace("+00:00", "Z")}

    def _webhook(self) -> Spec:
        return self._stack.webhook(retry=_RETRY, timeoutSeconds=3)

    def _job(self, seconds: float = 0.5) -> Spec:
        template: Any = {
            "metadata": {"annotations": {"simulate.duepoint.dev/duration": f"{seconds}s"}}
        }
        template |= JOB_TEMPLATE["spec"]["template"]
        return {
            "jobTemplate": {"spec": {"template": template}},
            "successfulJobsHistoryLimit": 2,
        }


def _target(spec: Spec) -> str:
    if "jobTemplate" in spec:
        return "job"
    return "stream" if "stream" in spec else "webhook"
