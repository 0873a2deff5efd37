"""A restarted operator beside 100,000 Schedules and 30,000 Jobs, several times.

The objects are written to etcd (``stock``). An operator that finds an empty Redis comes first, then
restarts: while no operator runs, a hundredth of the Schedules is deleted and twice as many are
created. Armed means that Redis holds just the points that it should; settled, that our processes
write no more. One Schedule is edited as the operator's term begins, while everything is still being
compared; until the queue has the edit counts from there. ``COUNT=`` and ``TIMES=`` change the size.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from benchmarks import report
from benchmarks.kube import audit, loads, scale, stock
from benchmarks.kube import scene as scenes
from benchmarks.kube.scene import QUIET_SECONDS, TEMPLATE, Scene
from benchmarks.report import Figure
from benchmarks.scene import Use
from duepoint.kube import errors, jobbuilder, port
from tests.support.stack import JOBS, SCHEDULES, Process

COUNT = int(report.number("COUNT", 100_000, 2_000))
TIMES = int(report.number("TIMES", 3, 1))
#: Distinct Schedules, how many of them have Jobs, and how many Jobs each.
_SHAPES, _WITH_JOBS, _JOBS_EACH = 50, 5, 3
_CHANGED = 100
_LIMIT_SECONDS = 1_200.0
_FINISHED = {
    "status": {
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z",
        "succeeded": 1, "uncountedTerminatedPods": {},
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z",
             "lastProbeTime": "2026-01-01T00:00:01Z"}
            for kind in ("SuccessCriteriaMet", "Complete")
        ],
    }
}  # fmt: skip


async def run() -> AsyncIterator[Figure]:
    async with scenes.opened() as scene:
        operator, worker = await scene.stack.running()
        shapes = await _shapes(scene, operator)
        await operator.drain()
        here = COUNT // _SHAPES * _SHAPES
        jobs = COUNT // _SHAPES * _WITH_JOBS * _JOBS_EACH
        report.say(f"{here} Schedules and {jobs} Jobs into etcd")
        copies = COUNT // _SHAPES - 1
        await stock.lay(scene.stack.plane.etcd, scene.stack.namespace, shapes, copies)
        await _until_listed(scene, here)
        report.say("starting an operator with an empty Redis")
        with scene.stack.redis.client() as client:
            await asyncio.to_thread(client.flushall)
        operator, figures = await _measured(scene, here, "Redis empty", "operator-0", worker)
        for turn in range(1, TIMES + 1):
            for figure in figures:
                yield figure
            changed = here // _CHANGED
            report.say(f"restart {turn}; meanwhile {changed} are deleted, {2 * changed} created")
            await operator.drain()
            await _change(scene, changed, f"new-{turn}-")
            here += changed
            who = f"restart {turn}"
            operator, figures = await _measured(scene, here, who, f"operator-{turn}", worker)
        for figure in figures:
            yield figure
        bench = report.Bench("kube-restart", f"{here} Schedules after restarts")
        async for figure in scale.idling(bench, operator, worker):
            yield figure


async def _shapes(scene: Scene, operator: Process) -> list[stock.Shape]:
    """Create the Schedules to copy, with finished Jobs, and let the operator settle them."""
    names = [stock.copy_name(place, 0) for place in range(_SHAPES)]
    path = SCHEDULES.format(ns=scene.stack.namespace)
    uids: dict[str, str] = {}
    for place, name in enumerate(names):
        # On many days of a far month, so that nothing is due during the measurement.
        spec = {"schedule": f"{place} 3 {place % 28 + 1} 1 *", "jobTemplate": TEMPLATE}
        thing = {
            "apiVersion": "duepoint.dev/v1alpha1", "kind": "Schedule",
            "metadata": {"name": name, "namespace": scene.stack.namespace}, "spec": spec,
        }  # fmt: skip
        created = await scene.stack.api.request("POST", path, thing)
        uids[name] = msgspec.json.decode(created, type=scenes.Listed).metadata.uid
    with_jobs = [(name, uids[name]) for name in names[:_WITH_JOBS]]
    for number in range(_JOBS_EACH):
        await _lay_jobs(scene, with_jobs, number)
    await scene.until_settled(operator)
    jobs = {(name, uid) for name, uid in await scene.uids(JOBS)}
    return [
        stock.Shape(
            schedule=stock.Named(name=name, uid=uids[name]),
            jobs=tuple(
                stock.Named(name=job, uid=uid) for job, uid in sorted(jobs)
                if job.startswith(f"{name}-")
            ),
        )
        for name in names
    ]  # fmt: skip


async def _lay_jobs(scene: Scene, owners: list[tuple[str, str]], number: int) -> None:
    """Create one finished Job for each of these Schedules."""
    namespace, plane = scene.stack.namespace, scene.stack.plane
    facts = jobbuilder.SlotFacts(
        namespace=namespace, name="@NAME@", uid="@UID@",
        slot_us=(1_767_225_600 + number * 86_400) * 1_000_000, previous_us=None,
        trigger="Schedule", time_zone="Etc/UTC",
    )  # fmt: skip
    thing = jobbuilder.job_for(TEMPLATE, facts)
    path = JOBS.format(ns=namespace)
    await loads.send(plane, path, thing, owners=owners)
    path = f"{path}/{thing['metadata']['name']}/status"
    merge = "application/merge-patch+json"
    await loads.send(plane, path, _FINISHED, owners=owners, verb="PATCH", content_type=merge)


async def _until_listed(scene: Scene, count: int) -> None:
    """Wait until the API server lists so many Schedules: its caches follow etcd late."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(errors.ApiError):  # refuses while its cache is behind
            if len(await scene.uids()) >= count:
                return
        await asyncio.sleep(1)
    raise RuntimeError("the API server does not list the objects that were written to etcd")


async def _change(scene: Scene, changed: int, prefix: str) -> None:
    """Delete some Schedules, and create twice as many."""
    path = f"{SCHEDULES.format(ns=scene.stack.namespace)}/@NAME@"
    gone = [one for one in await scene.uids() if one[0] > stock.copy_name(_WITH_JOBS, 1)]
    going = gone[:: max(1, len(gone) // changed)][:changed]
    while left := sorted(set(going) & set(await scene.uids())):
        with contextlib.suppress(RuntimeError):  # a deletion that took too long may have happened
            await loads.send(scene.stack.plane, path, {}, owners=left, verb="DELETE")
    await scene.create(prefix, changed * 2)


async def _measured(
    scene: Scene, here: int, who: str, name: str, worker: Process
) -> tuple[Process, list[Figure]]:
    """Start an operator, and measure it until it rests."""
    bench = report.Bench("kube-restart", f"{here} Schedules, {who}")
    scene.audit.skip()
    started = time.monotonic()
    operator = scene.stack.operator(name)
    async with scene.metered(operator, worker) as uses, asyncio.TaskGroup() as tasks:
        editing = tasks.create_task(_edited(scene, operator))
        armed = await scene.until_armed(here, operator, stays=True) - started
        edited = await editing
        requests = await scene.until_settled(operator)
        settled = time.monotonic() - started - QUIET_SECONDS
    asked = audit.counted(requests)
    return operator, list(_figures(bench, armed, edited, settled, asked, uses))


def _figures(  # noqa: PLR0917 - called once
    bench: report.Bench, armed: float, edited: float, settled: float, asked: str,
    uses: dict[str, Use],
) -> Iterator[Figure]:  # fmt: skip
    yield bench.one("armed, deleted ones removed", round(armed, 1), "s", "<= 30")
    yield bench.one("an edit in the queue after the term began", round(edited, 1), "s", "<= 10")
    yield bench.one("settled", round(settled, 1), "s", "<= 75", beside=asked)
    yield from scale.used(bench, uses, "meanwhile")


async def _edited(scene: Scene, operator: Process) -> float:
    """Edit a Schedule as the term begins; return the seconds until the queue has the edit."""
    path = f"{SCHEDULES.format(ns=scene.stack.namespace)}/{stock.copy_name(0, 0)}"

    async def at(schedule: str) -> None:
        patch = {"spec": {"schedule": schedule}}
        await scene.stack.api.request("PATCH", path, patch, content_type=port.MERGE_PATCH)

    holder = ""
    while not holder.startswith(f"{operator.name}_"):
        await asyncio.sleep(0.05)
        holder = (await scene.stack.lease()).get("holderIdentity", "")
    began = time.monotonic()
    slot = dt.datetime.now(dt.UTC).replace(second=0, microsecond=0) + dt.timedelta(hours=2)
    await at(f"{slot.minute} {slot.hour} {slot.day} {slot.month} *")
    with scene.stack.redis.client() as client:
        while not await asyncio.to_thread(_has_slot, client, slot):
            if operator.has_ended:
                raise RuntimeError(f"{operator.name} has ended; see {operator.log}")
            await asyncio.sleep(0.05)
    return time.monotonic() - began


def _has_slot(client: Any, slot: dt.datetime) -> bool:
    """Whether any Schedule is due at this slot."""
    due_us = int(slot.timestamp()) * 1_000_000
    pipeline = client.pipeline(transaction=False)
    for key in client.scan_iter(match="dp:*:points:*", count=1000):
        pipeline.zcount(key, due_us, due_us)
    return any(pipeline.execute())
