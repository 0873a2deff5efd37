"""N Jobs due at one slot: a bare loop of POSTs, Duepoint, and the CronJob controller.

One after the other on one API server whose audit log shows when each POST was answered; lateness is
that less the slot. No Job controller runs, so Jobs of all three stay as they were created.
``COUNT=`` chooses N. ``BESIDE=raised,default`` names the CronJob controllers: one with limits that
delay nothing, and one as it is installed; an empty value leaves both out.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import os
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from benchmarks import report
from benchmarks.kube import audit, loads
from benchmarks.kube import scene as scenes
from benchmarks.kube.audit import Request
from benchmarks.kube.scene import TEMPLATE, Scene
from benchmarks.report import Figure
from benchmarks.scene import Use
from duepoint.kube import jobbuilder
from tests.support.stack import JOBS, SCHEDULES, Process

COUNTS = [int(number) for number in (os.environ.get("COUNT") or "").split(",") if number] or (
    [100] if report.IS_SMALL else [200, 2_000, 5_000]
)
CRONJOBS = "/apis/batch/v1/namespaces/{ns}/cronjobs"
#: Limits of the CronJob controller. With the default ones 1,000 Jobs take two minutes, and 5,000
#: would take ten.
LIMITS = {
    "raised": {
        "kube_api_qps": "2000", "kube_api_burst": "4000", "concurrent_cron_job_syncs": "50",
    },
    "default": {"kube_api_qps": "20", "kube_api_burst": "30", "concurrent_cron_job_syncs": "5"},
}  # fmt: skip
MOST_BY_DEFAULT = 200 if report.IS_SMALL else 2_000
BESIDE = os.environ.get("BESIDE", "raised,default").split(",")
#: Objects of a burst are created at least this fast, and armed this long before their slot.
_SLOWEST_RATE, _BEFORE_SECONDS = 150, 15
#: A status may be as old as this when many are due.
STATUS_SECONDS = 60
_QUIET_SECONDS = 3
#: A Job may exist although its answer never came: stop this long after the last request.
_SILENCE_SECONDS = 20


@dataclass(slots=True)
class Burst:
    """The Jobs that one actor created of N due at once, and what that cost."""

    late_ms: list[float]
    uses: dict[str, Use]
    requests: list[Request] = dataclasses.field(default_factory=list)
    namespace: str = ""

    @property
    def last_ms(self) -> float:
        return self.late_ms[-1] if self.late_ms else float("inf")


async def run() -> AsyncIterator[Figure]:
    async with scenes.opened() as scene:
        operator, worker = await scene.stack.running()
        second = scene.stack.worker("worker-2")
        await second.wait_until_ready()
        for count in COUNTS:
            bench = report.Bench("kube-burst", f"{count} Jobs")
            loop = await _bare(scene, count)
            for figure in _figures(bench, count, "bare loop", loop):
                yield figure
            ours = await _ours(scene, [operator, worker, second], count)
            for figure in _figures(bench, count, "Duepoint", ours):
                yield figure
            ratio = round(ours.last_ms / loop.last_ms, 2)
            yield bench.one("last POST, of the bare loop's", ratio, "ratio", "<= 1.3")
            for kind in BESIDE:
                if kind not in LIMITS or (kind == "default" and count > MOST_BY_DEFAULT):
                    continue
                theirs = await _cronjobs(scene, count, kind)
                for figure in _figures(bench, count, f"CronJob, limits {kind}", theirs):
                    yield figure
                ratio = round(theirs.last_ms / ours.last_ms, 2)
                bar = ">= 1" if kind == "raised" else ">= 50"
                yield bench.one(
                    f"last POST of CronJob, limits {kind}, of ours", ratio, "ratio", bar
                )


# -- the actors ------------------------------------------------------------------------------


async def _bare(scene: Scene, count: int) -> Burst:
    """Create the Jobs by a loop that does nothing but POST."""
    report.say(f"{count} Jobs by a bare loop")
    namespace = scene.namespaces["bare"]
    slot_us = int(time.time()) * 1_000_000
    facts = jobbuilder.SlotFacts(
        namespace=namespace, name="@NAME@", uid=str(uuid.uuid4()),
        slot_us=slot_us, previous_us=slot_us - 60_000_000, trigger="Schedule",
        time_zone="Etc/UTC",
    )  # fmt: skip
    thing = jobbuilder.job_for(TEMPLATE, facts)
    scene.audit.skip()
    async with scene.metered() as uses:
        path = JOBS.format(ns=namespace)
        sent = await loads.send(scene.stack.plane, path, thing, count=count, prefix="burst-")
    uses["loop"] = Use(cpu_seconds=sent.cpu_seconds)
    await asyncio.sleep(1)
    requests = scene.audit.new()
    begun_us = min(one.received_us for one in requests if one.is_job)
    await scene.clear(JOBS, namespace)
    return Burst(_late(requests, namespace, begun_us), uses)


async def _ours(scene: Scene, processes: list[Process], count: int) -> Burst:
    report.say(f"{count} Schedules at one slot")
    namespace = scene.stack.namespace
    slot_us, text = _slot(count)
    await scene.create(f"burst-{count}-", count, text)
    await scene.until_armed(count, processes[0])
    if time.time() * 1e6 > slot_us:
        raise RuntimeError(f"{count} Schedules were not armed before their slot")
    report.say("  armed; waiting for the slot")
    await asyncio.sleep(slot_us / 1e6 - 2 - time.time())
    scene.audit.skip()
    async with scene.metered(*processes) as uses:
        requests = await _gathered(scene, namespace, count)
    started = time.monotonic()
    while time.monotonic() - started < STATUS_SECONDS + 15:
        await asyncio.sleep(_QUIET_SECONDS)
        more = scene.audit.new()
        requests += more
        written = sum(one.resource == "schedules/status" and one.code == 200 for one in requests)
        if written >= count and not any(one.is_ours for one in more):
            break
    for collection in (SCHEDULES, JOBS):
        await scene.clear(collection)
    return Burst(_late(requests, namespace, slot_us), uses, requests, namespace)


async def _cronjobs(scene: Scene, count: int, kind: str) -> Burst:
    report.say(f"{count} CronJobs at one slot, limits: {kind}")
    namespace = scene.namespaces[kind]
    slot_us, text = _slot(count)
    thing = {
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "@NAME@", "namespace": namespace},
        "spec": {"schedule": text, "timeZone": "Etc/UTC", "jobTemplate": TEMPLATE},
    }  # fmt: skip
    path = CRONJOBS.format(ns=namespace)
    await loads.send(scene.stack.plane, path, thing, count=count, prefix=f"burst-{count}-")
    async with scene.plane.cronjobs(**LIMITS[kind]):
        await asyncio.sleep(slot_us / 1e6 - 2 - time.time())
        scene.audit.skip()
        async with scene.metered() as uses:
            requests = await _gathered(scene, namespace, count)
    for collection in (CRONJOBS, JOBS):
        await scene.clear(collection, namespace)
    return Burst(_late(requests, namespace, slot_us), uses)


async def _gathered(scene: Scene, namespace: str, count: int) -> list[Request]:
    """Collect the requests until all Jobs exist, or no more arrive."""
    requests: list[Request] = []
    created, asked = 0, time.monotonic()
    while created < count:
        await asyncio.sleep(0.5)
        new = scene.audit.new()
        requests += new
        created += len(audit.jobs_created(new, namespace))
        asked = time.monotonic() if any(one.is_job for one in new) else asked
        if time.monotonic() - asked > _SILENCE_SECONDS:
            report.say(f"  {created} of {count} Jobs were answered with 201")
            break
    return requests


def _slot(count: int) -> tuple[int, str]:
    """Return a minute that leaves time to create and arm, and the expression for it alone."""
    ready = time.time() + count / _SLOWEST_RATE + _BEFORE_SECONDS
    at = dt.datetime.fromtimestamp(ready // 60 * 60 + 60, dt.UTC)
    return int(at.timestamp()) * 1_000_000, f"{at.minute} {at.hour} {at.day} {at.month} *"


# -- figures ---------------------------------------------------------------------------------


def _late(requests: list[Request], namespace: str, since_us: int) -> list[float]:
    return [(at - since_us) / 1000 for at in audit.jobs_created(requests, namespace)]


def _figures(bench: report.Bench, count: int, who: str, burst: Burst) -> Iterator[Figure]:
    if not burst.late_ms:
        yield bench.one(f"{who}: Jobs", 0, "Jobs", f"= {count}")
        return
    for share in (0.5, 0.99):
        yield bench.share(f"{who}: late", share, burst.late_ms)
    yield bench.one(f"{who}: last POST answered", round(burst.last_ms), "ms")
    if burst.requests:
        writes = sum(one.is_ours and one.is_write for one in burst.requests)
        yield bench.one(f"{who}: writes", round(writes / count, 3), "a run", "<= 2.2",
                        beside=audit.counted(burst.requests))  # fmt: skip
        behind = _status_behind(burst.requests, burst.namespace)
        yield bench.one(f"{who}: status behind the Job, at most", round(max(behind), 1), "s",
                        f"<= {STATUS_SECONDS}", runs=len(behind))  # fmt: skip
    for name, use in burst.uses.items():
        cpu = round(use.cpu_seconds, 2)
        yield bench.one(f"{who}: CPU of {name}", cpu, "s", beside=f"{use.most_megabytes:.0f} MB")
        if use.stalls_ms:
            stall = round(use.worst_stall_ms)
            yield bench.one(f"{who}: longest stall of {name}", stall, "ms", "<= 500")


def _status_behind(requests: list[Request], namespace: str) -> list[float]:
    """Return the seconds from the creation of each Job to the next status of its Schedule."""
    created = {
        one.name.rpartition("-")[0] or one.name: one.answered_us
        for one in requests
        if one.is_job and one.namespace == namespace
    }
    first: dict[str, int] = {}
    for one in requests:
        is_status = one.resource == "schedules/status" and one.code == 200
        if is_status and one.answered_us >= created.get(one.name, 1 << 62):
            first.setdefault(one.name, one.answered_us)
    return [(at - created[name]) / 1e6 for name, at in first.items()] or [float("inf")]
