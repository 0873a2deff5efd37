"""N Jobs due at one slot: a bare loop, Duepoint, the CronJob controller as it is and unthrottled.

One after the other on one API server whose audit log says when each POST was answered. Lateness is
that less the slot. No Job controller runs, so Jobs stay as they were created, for all alike; what
ends of runs cost is counted by ``tests/scenarios/test_writes_per_run.py``.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime as dt
import time
import uuid
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks import kubeaudit, kubeloads, kubemeter, kubeplane, report
from benchmarks.kubeaudit import Audit, Request
from benchmarks.kubemeter import Use
from benchmarks.report import Figure
from duepoint.kube import jobbuilder
from tests.support.stack import JOBS, SCHEDULES, Process, Stack

NAME = "kube-burst"
CRONJOBS = "/apis/batch/v1/namespaces/{ns}/cronjobs"
TEMPLATE = {
    "spec": {
        "backoffLimit": 0,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "busybox", "command": ["true"]}],
            }
        },
    }
}
#: The limits that a controller manager has unless set otherwise.
DEFAULT = {"kube_api_qps": "20", "kube_api_burst": "30", "concurrent_cron_job_syncs": "5"}
#: ... and those of one that nothing holds back.
RAISED = {"kube_api_qps": "2000", "kube_api_burst": "4000", "concurrent_cron_job_syncs": "50"}
#: Objects of a burst are created at least this fast, and armed this long before their slot.
_SLOWEST_RATE, _BEFORE_SECONDS = 150, 15
#: A status may be as old as this when many are due.
STATUS_SECONDS = 60
_QUIET_SECONDS = 3
#: An answer that never came, though the Job was made: after the last request, that is all.
_SILENCE_SECONDS = 20


@dataclass(slots=True)
class Burst:
    """What one actor made of N due at once.

    Attributes:
        late_ms: of every Job, in order.
        under_way: creations of Jobs that the API server worked on at a time, on average.
        writes: agent -> ``verb resource`` -> how often.
        uses: what each process used.
    """

    late_ms: list[float]
    under_way: float = 0.0
    requests: dict[str, collections.Counter[str]] = field(default_factory=dict)
    writes: dict[str, collections.Counter[str]] = field(default_factory=dict)
    uses: dict[str, Use] = field(default_factory=dict)
    stale_seconds: list[float] = field(default_factory=list)

    @property
    def last_ms(self) -> float:
        return self.late_ms[-1] if self.late_ms else float("inf")


class Scene:
    """Everything that the actors share; ``beside``: the CronJob controllers of a burst."""

    def __init__(self, stack: Stack, plane: kubeplane.Plane, namespaces: dict[str, str],
                 beside: Collection[str] = ()) -> None:  # fmt: skip
        self.stack = stack
        self.beside = beside
        self.plane = plane
        self.namespaces = namespaces
        self.audit = Audit(plane.audit_log)


async def run(scene: Scene, workers: list[Process], operator: Process, counts: tuple[int, ...],
              default_limit_seconds: float) -> list[Figure]:  # fmt: skip
    """All actors, for each number of Jobs."""
    figures: list[Figure] = []
    for count in counts:
        loop = await bare(scene, count)
        ours = await _ours(scene, workers, operator, count)
        figures += _figures_of_burst(count, "bare loop", loop)
        figures += _figures_of_burst(count, "Duepoint", ours)
        figures.append(_against_bare(count, ours, loop))
        if "raised" in scene.beside:
            raised = await _cronjobs(scene, count, "raised", 120 + count * 0.05, **RAISED)
            figures += _figures_of_burst(count, "CronJob, limits raised", raised)
            figures.append(_against_raised(count, ours, raised))
        if "default" in scene.beside and count * 0.125 <= default_limit_seconds:
            default = await _cronjobs(scene, count, "default", default_limit_seconds, **DEFAULT)
            figures += _figures_of_burst(count, "CronJob, default limits", default)
            figures.append(
                Figure(benchmark=NAME, figure=f"{count} Jobs: sooner than CronJob by default",
                       value=round(default.last_ms / ours.last_ms, 1), unit="times", bar=">= 50"),
            )  # fmt: skip
    return figures


# -- the actors ------------------------------------------------------------------------------


async def bare(scene: Scene, count: int) -> Burst:
    """As many POSTs as a loop can send that does nothing else."""
    report.say(f"{count} Jobs by a bare loop")
    namespace = scene.namespaces["bare"]
    slot_us = _now_us() - _now_us() % 1_000_000
    facts = jobbuilder.SlotFacts(
        namespace=namespace, schedule_name="@NAME@", schedule_uid=str(uuid.uuid4()),
        slot_us=slot_us, previous_us=slot_us - 60_000_000, trigger="Schedule", payload=None,
        time_zone="Etc/UTC",
    )  # fmt: skip
    thing = jobbuilder.job_for(TEMPLATE, facts)
    scene.audit.skip()
    async with _metered(scene, {}) as uses:
        path = JOBS.format(ns=namespace)
        sent = await kubeloads.send(scene.stack.plane, path, thing, count=count, prefix="burst-")
    uses["loop"] = Use(cpu_seconds=sent.cpu_seconds)
    await asyncio.sleep(1)
    requests = scene.audit.new()
    begun = min(one.received_us for one in requests if one.resource == "jobs")
    await clear(scene, JOBS, namespace)
    under_way = kubeaudit.jobs_under_way(requests, namespace)
    late = _late(kubeaudit.jobs_created(requests, namespace), begun)
    return Burst(late, under_way, uses=uses)


async def _ours(scene: Scene, workers: list[Process], operator: Process, count: int) -> Burst:
    report.say(f"{count} Schedules at one slot")
    stack = scene.stack
    slot_us = await armed(stack, count)
    report.say("  armed; waiting for the slot")
    probed = {process.name: f"{process.http}/healthz" for process in (operator, *workers)}
    pids = {process.name: process.pid for process in (operator, *workers)}
    await asyncio.sleep(slot_us / 1e6 - 2 - time.time())
    scene.audit.skip()
    async with _metered(scene, pids, probed) as uses:
        requests = await _gathered(scene, stack.namespace, count, 120 + count * 0.05)
    async with _metered(scene, pids, probed) as afterwards:
        started = time.monotonic()
        while time.monotonic() - started < STATUS_SECONDS + 15:
            await asyncio.sleep(_QUIET_SECONDS)
            more = scene.audit.new()
            requests += more
            if len(_status_writes(requests)) >= count and not any(is_ours(one) for one in more):
                break
    jobs = kubeaudit.jobs_created(requests, stack.namespace)
    under_way = kubeaudit.jobs_under_way(requests, stack.namespace)
    uses |= {f"{name} afterwards": use for name, use in afterwards.items()}
    burst = Burst(_late(jobs, slot_us), under_way, uses=uses)
    burst.requests = kubeaudit.by_agent(requests, is_ours)
    burst.writes = kubeaudit.by_agent(requests, lambda one: is_ours(one) and one.is_write)
    burst.stale_seconds = _staleness(requests, stack.namespace)
    await clear(scene, SCHEDULES, stack.namespace)
    await clear(scene, JOBS, stack.namespace)
    return burst


async def _cronjobs(
    scene: Scene, count: int, kind: str, limit_seconds: float, **flags: str
) -> Burst:
    report.say(f"{count} CronJobs at one slot, limits: {kind}")
    namespace = scene.namespaces[kind]
    slot_us, text = _slot(count)
    thing = {
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "@NAME@", "namespace": namespace},
        "spec": {"schedule": text, "timeZone": "Etc/UTC", "jobTemplate": TEMPLATE},
    }  # fmt: skip
    path = CRONJOBS.format(ns=namespace)
    prefix = f"burst-{count}-"
    await kubeloads.send(scene.stack.plane, path, thing, count=count, prefix=prefix)
    async with scene.plane.cronjobs(**flags) as pid:
        await asyncio.sleep(slot_us / 1e6 - 2 - time.time())
        scene.audit.skip()
        async with _metered(scene, {"controller": pid}) as uses:
            requests = await _gathered(scene, namespace, count, limit_seconds)
        await asyncio.sleep(_QUIET_SECONDS)
        requests += scene.audit.new()
    under_way = kubeaudit.jobs_under_way(requests, namespace)
    late = _late(kubeaudit.jobs_created(requests, namespace), slot_us)
    burst = Burst(late, under_way, uses=uses)
    burst.requests = kubeaudit.by_agent(requests, _is_theirs)
    burst.writes = kubeaudit.by_agent(requests, lambda one: _is_theirs(one) and one.is_write)
    await clear(scene, CRONJOBS, namespace)
    await clear(scene, JOBS, namespace)
    return burst


# -- waiting ---------------------------------------------------------------------------------


async def armed(stack: Stack, count: int) -> int:
    """So many Schedules of Jobs at one slot, which is returned, each in the queue."""
    slot_us, text = _slot(count)
    thing = {
        "apiVersion": "duepoint.dev/v1alpha1", "kind": "Schedule",
        "metadata": {"name": "@NAME@", "namespace": stack.namespace},
        "spec": {"schedule": text, "jobTemplate": TEMPLATE},
    }  # fmt: skip
    path = SCHEDULES.format(ns=stack.namespace)
    await kubeloads.send(stack.plane, path, thing, count=count, prefix=f"burst-{count}-")
    await until_armed(stack, count, slot_us)
    return slot_us


async def until_armed(stack: Stack, count: int, before_us: int) -> None:
    """Until Redis holds so many points; fails when the slot comes first."""
    with stack.redis.client() as client:
        while armed_in(client) < count:
            if _now_us() > before_us:
                raise RuntimeError(f"only {armed_in(client)} of {count} armed before their slot")
            await asyncio.sleep(0.1)


def armed_in(client: Any) -> int:
    """Schedules whose next slot stands in Redis."""
    pipeline = client.pipeline(transaction=False)
    for key in client.scan_iter(match="dp:*:points:*", count=1000):
        pipeline.zcount(key, "-inf", "(+inf")  # a sentinel keeps an empty lane alive
    return sum(pipeline.execute())


async def _gathered(
    scene: Scene, namespace: str, count: int, limit_seconds: float
) -> list[Request]:
    """Requests until all Jobs are there, or the limit is over."""
    requests: list[Request] = []
    created, asked, started = 0, time.monotonic(), time.monotonic()
    while created < count and time.monotonic() - started < limit_seconds:
        await asyncio.sleep(0.5)
        new = scene.audit.new()
        requests += new
        created += len(kubeaudit.jobs_created(new, namespace))
        asked = time.monotonic() if any(one.resource == "jobs" for one in new) else asked
        if created and time.monotonic() - asked > _SILENCE_SECONDS:
            break
    if created < count:
        report.say(f"  {created} of {count} Jobs were answered with 201")
    return requests


@contextlib.asynccontextmanager
async def _metered(
    scene: Scene, pids: dict[str, int], probed: dict[str, str] | None = None
) -> AsyncIterator[dict[str, Use]]:
    everyone = {"API server": scene.plane.api_server.pid, "etcd": scene.plane.etcd_pid, **pids}
    async with kubemeter.metered(everyone, probed) as uses:
        yield uses


async def clear(scene: Scene, collection: str, namespace: str) -> None:
    path = collection.format(ns=namespace)
    query = {"propagationPolicy": "Background"}
    await scene.stack.api.request("DELETE", path, query=query, timeout_seconds=300)


def _slot(count: int) -> tuple[int, str]:
    """A whole minute that leaves time to create and arm, and the expression of only that one."""
    ready = time.time() + count / _SLOWEST_RATE + _BEFORE_SECONDS
    at = dt.datetime.fromtimestamp(ready // 60 * 60 + 60, dt.UTC)
    return int(at.timestamp()) * 1_000_000, f"{at.minute} {at.hour} {at.day} {at.month} *"


# -- what it comes to ------------------------------------------------------------------------


def _status_writes(requests: list[Request]) -> list[Request]:
    return [one for one in requests if one.resource == "schedules/status" and one.code == 200]


def _staleness(requests: list[Request], namespace: str) -> list[float]:
    """Seconds from the creation of each Job to the first status written after it."""
    created = {
        one.name.rpartition("-")[0] or one.name: one.answered_us
        for one in requests
        if one.verb == "create" and one.resource == "jobs" and one.namespace == namespace
    }
    first: dict[str, int] = {}
    for one in _status_writes(requests):
        if one.answered_us >= created.get(one.name, 1 << 62):
            first.setdefault(one.name, one.answered_us)
    return sorted((at - created[name]) / 1e6 for name, at in first.items())


def is_ours(one: Request) -> bool:
    return one.agent.startswith(("duepoint", "kopf"))


def _is_theirs(one: Request) -> bool:
    return one.agent == "kube-controller-manager"


def _late(answered: list[int], since_us: int) -> list[float]:
    return [(one - since_us) / 1000 for one in answered]


def _figures_of_burst(count: int, who: str, burst: Burst) -> Iterator[Figure]:
    late = burst.late_ms or [float("inf")]
    for share in (0.5, 0.99):
        yield Figure(benchmark=NAME, figure=f"{count} Jobs, {who}: late p{share * 100:g}",
                     value=round(report.percentile(late, share)), unit="ms",
                     spread=(round(late[0]), round(late[-1])), runs=len(burst.late_ms))  # fmt: skip
    yield Figure(benchmark=NAME, figure=f"{count} Jobs, {who}: last POST answered",
                 value=round(burst.last_ms), unit="ms", runs=len(burst.late_ms))  # fmt: skip
    yield Figure(benchmark=NAME, figure=f"{count} Jobs, {who}: POSTs under way at the API server",
                 value=round(burst.under_way, 1), unit="at a time")  # fmt: skip
    for agent, requests in sorted(burst.requests.items()):
        yield Figure(benchmark=NAME, figure=f"{count} Jobs, {who}: requests of {agent}",
                     value=round(sum(requests.values()) / count, 3), unit="a run",
                     compared_with=listed(requests))  # fmt: skip
    if burst.writes:
        writes = sum(sum(each.values()) for each in burst.writes.values())
        yield Figure(benchmark=NAME, figure=f"{count} Jobs, {who}: writes",
                     value=round(writes / count, 3), unit="a run",
                     bar="<= 2.2" if who == "Duepoint" else "")  # fmt: skip
    if burst.stale_seconds:
        yield Figure(benchmark=NAME, figure=f"{count} Jobs, {who}: status behind the Job, at most",
                     value=round(burst.stale_seconds[-1], 1), unit="s", bar="<= 60",
                     runs=len(burst.stale_seconds))  # fmt: skip
    for name, use in burst.uses.items():
        yield Figure(benchmark=NAME, figure=f"{count} Jobs, {who}: CPU of {name}",
                     value=round(use.cpu_seconds, 2), unit="s")  # fmt: skip
        if use.most_megabytes:
            yield Figure(benchmark=NAME, figure=f"{count} Jobs, {who}: memory of {name}",
                         value=round(use.most_megabytes), unit="MB")  # fmt: skip
        if use.stalls_ms:
            yield Figure(benchmark=NAME, figure=f"{count} Jobs, {who}: longest stall of {name}",
                         value=round(use.worst_stall_ms), unit="ms", bar="<= 500",
                         runs=len(use.stalls_ms))  # fmt: skip


def _against_bare(count: int, ours: Burst, bare: Burst) -> Figure:
    return Figure(benchmark=NAME, figure=f"{count} Jobs: last POST against the bare loop's",
                  value=round(ours.last_ms / bare.last_ms, 2), unit="times", bar="<= 1.2",
                  compared_with=f"bare loop {bare.last_ms:.0f} ms")  # fmt: skip


def _against_raised(count: int, ours: Burst, raised: Burst) -> Figure:
    return Figure(benchmark=NAME, figure=f"{count} Jobs: sooner than CronJob with raised limits",
                  value=round(raised.last_ms / ours.last_ms, 2), unit="times", bar=">= 1",
                  compared_with=f"raised limits {raised.last_ms:.0f} ms")  # fmt: skip


def listed(requests: collections.Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in requests.most_common())


def _now_us() -> int:
    return time.time_ns() // 1000
