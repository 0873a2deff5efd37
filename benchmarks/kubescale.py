"""Many Schedules applied: how soon they are armed, and when their statuses are written.

The API server's own create rate is taken without an operator, once before and once after the same
objects are created while it runs: an API server gets slower with what it has done before. Armed
means that Redis holds the points that it should and no others, which is asked from when the last
was created; settled, that nothing is written any more and the operator rests. CPU time of every
server tells what an applied Schedule costs whom, on a busy machine too.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from benchmarks import kubeaudit, kubeburst, kubeloads, kubemeter, report, scene
from benchmarks.kubeaudit import Request
from benchmarks.kubeburst import TEMPLATE, Scene
from benchmarks.kubemeter import Use
from benchmarks.report import Figure
from duepoint.kube import port
from tests.support.stack import SCHEDULES, Process

NAME = "kube-scale"
_BASELINE_COUNT = 10_000
_IDLE_SECONDS = 20
QUIET_SECONDS = 5
_BUSY_PERCENT = 10.0
LIMIT_SECONDS = 1_200.0
#: Schedules for which a bar of the time to the first status exists.
_STATUS_BAR_COUNT = 10_000
FINISHED = {
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


class Listed(msgspec.Struct, frozen=True):
    metadata: port.Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """Seconds since the first object was sent, and milliseconds of CPU an object by process."""

    created: float
    armed: float
    settled: float
    costs: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bare:
    """Creation alone: objects a second, and what each cost whom, in milliseconds of CPU."""

    rate: float
    spent: dict[str, float]


class _Spent:
    """CPU time of processes from now on."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._before = {name: scene.cpu_seconds(pid) for name, pid in pids.items()}

    def milliseconds(self, count: int) -> dict[str, float]:
        """Of each process, for each of so many objects."""
        return {
            name: round((scene.cpu_seconds(pid) - self._before[name]) / count * 1000, 3)
            for name, pid in self._pids.items()
        }


def _servers(made: Scene) -> dict[str, int]:
    return {
        "API server": made.plane.api_server.pid,
        "etcd": made.plane.etcd_pid,
        "Redis": made.stack.redis.pid,
    }


async def run(made: Scene, count: int) -> list[Figure]:
    before = await _baseline(made, min(count, _BASELINE_COUNT))
    operator, worker = await made.stack.running()
    course, requests, uses = await _applied(made, count, operator, worker)
    figures = await idle(count, "after applying", operator, worker)
    for process in (operator, worker):
        await process.drain()
    await kubeburst.clear(made, SCHEDULES, made.stack.namespace)
    after = await _baseline(made, min(count, _BASELINE_COUNT))
    course.costs.update(
        {
            "creation, no operator, before": before.spent,
            "creation, no operator, after": after.spent,
        }
    )
    rates = before.rate, after.rate
    return [*_figures_of_applied(count, rates, course, requests, uses), *figures]


async def _baseline(made: Scene, count: int) -> _Bare:
    report.say(f"{count} Schedules without an operator")
    spent = _Spent(_servers(made))
    seconds = await create(made, "bare-", count)
    bare = _Bare(rate=count / seconds, spent=spent.milliseconds(count))
    await kubeburst.clear(made, SCHEDULES, made.stack.namespace)
    return bare


async def _applied(
    made: Scene, count: int, operator: Process, worker: Process
) -> tuple[_Course, list[Request], dict[str, Use]]:
    report.say(f"{count} Schedules while it runs")
    made.audit.skip()
    pids = {operator.name: operator.pid, worker.name: worker.pid}
    probed = {process.name: f"{process.http}/healthz" for process in (operator, worker)}
    spent = _Spent({**_servers(made), "operator": operator.pid, "worker": worker.pid})
    started = time.monotonic()
    async with kubemeter.metered(pids, probed) as uses:
        created = await create(made, "many-", count)
        armed = await until_armed(made, count, operator) - started
        until_armed_ms = spent.milliseconds(count)
        requests = await until_settled(made, operator)
        settled = time.monotonic() - started
    costs = {"until armed": until_armed_ms, "until settled": spent.milliseconds(count)}
    course = _Course(created=created, armed=armed, settled=settled, costs=costs)
    return course, requests, uses


async def idle(count: int, when: str, *processes: Process) -> list[Figure]:
    before = {process: scene.cpu_seconds(process.pid) for process in processes}
    await asyncio.sleep(_IDLE_SECONDS)
    return [
        Figure(benchmark=NAME, figure=f"{count} Schedules, idle {when}: CPU of {process.role}",
               value=round((scene.cpu_seconds(process.pid) - used) / _IDLE_SECONDS * 100, 2),
               unit="% of a core")
        for process, used in before.items()
    ]  # fmt: skip


# -- steps -----------------------------------------------------------------------------------


async def create(made: Scene, prefix: str, count: int) -> float:
    thing = {
        "apiVersion": "duepoint.dev/v1alpha1", "kind": "Schedule",
        "metadata": {"name": "@NAME@", "namespace": made.stack.namespace},
        # Spread over a month that is far away: nothing is due while this goes on.
        "spec": {"schedule": "H H 1 1 *", "jobTemplate": TEMPLATE},
    }  # fmt: skip
    path = SCHEDULES.format(ns=made.stack.namespace)
    sent = await kubeloads.send(made.stack.plane, path, thing, count=count, prefix=prefix)
    return sent.seconds


async def uids(made: Scene, collection: str = SCHEDULES) -> list[tuple[str, str]]:
    """Name and uid of each object that the operator looks after."""
    path = collection.format(ns=made.stack.namespace)
    pages = made.stack.api.list_pages(path, Listed, query={"resourceVersion": "0"})
    return [(one.metadata.name, one.metadata.uid) async for page in pages for one in page.items]


async def until_armed(made: Scene, count: int, operator: Process, *, stays: bool = False) -> float:
    """When Redis first held just so many points; with ``stays``, and went on doing so."""
    first, deadline = 0.0, time.monotonic() + LIMIT_SECONDS
    with made.stack.redis.client() as client:
        while time.monotonic() < deadline:
            if await asyncio.to_thread(kubeburst.armed_in, client) != count:
                first = 0.0
            elif not first:
                first = time.monotonic()
            if first and (not stays or time.monotonic() - first > QUIET_SECONDS):
                return first
            if operator.has_ended:
                raise RuntimeError(f"{operator.name} has ended; see {operator.log}")
            await asyncio.sleep(0.1)
    raise RuntimeError(f"{count} points were not armed within {LIMIT_SECONDS:g} s")


async def until_settled(made: Scene, operator: Process) -> list[Request]:
    """All requests until none of our clients writes any more and the operator rests."""
    requests: list[Request] = []
    quiet, deadline = 0.0, time.monotonic() + LIMIT_SECONDS
    while quiet < QUIET_SECONDS and time.monotonic() < deadline:
        used = scene.cpu_seconds(operator.pid)
        await asyncio.sleep(1)
        new = made.audit.new()
        requests += new
        busy = (scene.cpu_seconds(operator.pid) - used) * 100 > _BUSY_PERCENT
        writes = any(kubeburst.is_ours(one) and one.is_write for one in new)
        quiet = 0.0 if busy or writes else quiet + 1
    return requests


# -- what it comes to ------------------------------------------------------------------------


def _figures_of_applied(
    count: int,
    rates: tuple[float, float],
    course: _Course,
    requests: list[Request],
    uses: dict[str, Use],
) -> Iterator[Figure]:
    rate = statistics.fmean(rates)
    yield Figure(benchmark=NAME,
                 figure=f"{count} Schedules, create rate of the API server, no operator",
                 value=round(rate), unit="objects/s", spread=(round(min(rates)), round(max(rates))),
                 runs=2, compared_with=f"before {rates[0]:.0f}, after {rates[1]:.0f}")  # fmt: skip
    yield _figure(count, "created while it runs", round(count / course.created), "objects/s")
    yield _figure(count, "armed, of the API server's own rate",
                  round(count / course.armed / rate * 100), "%", ">= 55")  # fmt: skip
    yield _figure(
        count, "armed after the last was created", round(course.armed - course.created, 2), "s"
    )
    yield _figure(count, "settled after the first was created",
                  round(course.settled - QUIET_SECONDS, 1), "s")  # fmt: skip
    behind = _first_status(requests)
    if behind:
        bar = "<= 60" if count <= _STATUS_BAR_COUNT else ""
        yield _figure(count, "status behind the creation, at most", round(behind[-1], 1), "s", bar,
                      runs=len(behind))  # fmt: skip
    for when, spent in course.costs.items():
        for who, milliseconds in spent.items():
            yield _figure(count, f"{when}: CPU of {who} for each", milliseconds, "ms")
    yield from _uses(count, "applying", uses)


@dataclass(frozen=True, kw_only=True)
class Restarted:
    """Seconds from an operator's start until all are armed, the queue has an edit, and it rests."""

    armed: float
    edited: float
    settled: float


def figures_of_restart(
    count: int,
    who: str,
    times: Restarted,
    requests: list[Request],
    uses: dict[str, Use],
) -> Iterator[Figure]:
    yield _figure(count, f"{who}: armed, ghosts removed", round(times.armed, 1), "s", "<= 30")
    yield _figure(count, f"{who}: an edit was in the queue", round(times.edited, 1), "s", "<= 75")
    yield _figure(count, f"{who}: settled", round(times.settled, 1), "s", "<= 120")
    ours = kubeaudit.by_agent(requests, kubeburst.is_ours)
    for agent, asked in sorted(ours.items()):
        yield Figure(benchmark=NAME, figure=f"{count} Schedules, {who}: requests of {agent}",
                     value=sum(asked.values()), unit="requests",
                     compared_with=kubeburst.listed(asked))  # fmt: skip
    yield from _uses(count, who, uses)


def _uses(count: int, when: str, uses: dict[str, Use]) -> Iterator[Figure]:
    for name, use in uses.items():
        role = name.partition("-")[0]
        bar = {"operator": "<= 600", "worker": "<= 250"}[role]
        yield _figure(count, f"{when}: CPU of {role}", round(use.cpu_seconds, 1), "s")
        yield _figure(count, f"{when}: most memory of {role}", round(use.most_megabytes), "MB", bar)
        if use.stalls_ms:
            yield _figure(count, f"{when}: longest stall of {role}", round(use.worst_stall_ms),
                          "ms", "<= 500", runs=len(use.stalls_ms))  # fmt: skip


def _figure(
    count: int, what: str, value: float, unit: str, bar: str = "", *, runs: int = 1
) -> Figure:
    text = f"{count} Schedules, {what}"
    return Figure(benchmark=NAME, figure=text, value=value, unit=unit, bar=bar, runs=runs)


def _first_status(requests: list[Request]) -> list[float]:
    """Seconds from the creation of each Schedule to its first status."""
    created = {
        one.name: one.answered_us
        for one in requests
        if one.verb == "create" and one.resource == "schedules" and one.code == 201
    }
    first: dict[str, int] = {}
    for one in requests:
        if one.resource == "schedules/status" and one.code == 200 and one.name in created:
            first.setdefault(one.name, one.answered_us)
    return sorted((at - created[name]) / 1e6 for name, at in first.items())
