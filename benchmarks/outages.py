"""One process or server away at a time: what comes late, twice or never because of it.

``PARTS=`` chooses among ``leader`` (it stands still for 30 s), ``killed`` (a worker with requests
under way, by kill -9, at a lease of ``LEASE=`` seconds), ``ended`` (a worker that is asked to end)
and ``api`` (no API server for ``SECONDS=``, while ``COUNT=`` Jobs come due). Beside the first, the
third and the last, 20 Schedules call a receiver every second, as in ``lateness``.
"""

from __future__ import annotations

import asyncio
import collections
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from benchmarks import kubeaudit, kubeburst, kubeplane, lateness, report, scene
from benchmarks.report import Figure
from tests.e2e.test_crashes import in_seconds
from tests.e2e.test_firing import slot_us
from tests.support import receiver
from tests.support.stack import SCHEDULES, Delivery, Stack
from tests.support.waiting import eventually

NAME = "outages"
COUNT = int(os.environ.get("COUNT", "10000"))
SECONDS = float(os.environ.get("SECONDS", "600"))
LEASE_SECONDS = float(os.environ.get("LEASE", "10"))
PAUSE_SECONDS = 30
#: Requests that a worker has under way when it is killed; it sends 32 to one receiver at a time.
UNDER_WAY = 30
#: Between a change and the window after it. A slot that has not come so late is lost.
_REST_SECONDS = 5
_SECOND_US = 1_000_000


async def run() -> list[Figure]:
    figures: list[Figure] = []
    for part in os.environ.get("PARTS", ",".join(PARTS)).split(","):
        found = await PARTS[part]()
        for figure in found:
            report.say(f"  {figure.figure}: {figure.value:g} {figure.unit}")
        figures += found
    return figures


# -- the leader stands still -----------------------------------------------------------------------


async def _leader() -> list[Figure]:
    report.say(f"the leader stands still for {PAUSE_SECONDS} s")
    async with scene.stack() as stack, lateness.sink() as sink:
        leader, _ = await stack.running()
        others = stack.operator("operator-2"), stack.worker("worker-2")
        for other in others:
            await other.wait_until_ready()
        await lateness.tick(stack, sink.port)
        await asyncio.sleep(_REST_SECONDS)
        before = await _window(PAUSE_SECONDS)
        leader.send(signal.SIGSTOP)
        meanwhile = await _window(PAUSE_SECONDS)
        leader.send(signal.SIGCONT)
        await asyncio.sleep(_REST_SECONDS)
        arrived = await sink.stop()
    return [
        *_counts("leader still", arrived, before, meanwhile),
        _moved("leader still: lateness p99 moves by", arrived, before, meanwhile, bar="<= 1"),
    ]


# -- a worker is killed ----------------------------------------------------------------------------


async def _killed() -> list[Figure]:
    report.say(f"kill -9 of a worker with {UNDER_WAY} requests under way")
    async with scene.stack() as stack:
        lease = str(LEASE_SECONDS)
        operator = stack.operator()
        doomed = stack.worker("doomed", lease_seconds=lease)
        for process in (operator, doomed):
            await process.wait_until_ready()
        hanging = [receiver.hang] * UNDER_WAY
        stack.answer = receiver.in_turn(*hanging, receiver.status(204))
        spec = {"schedule": in_seconds(5), "startingDeadlineSeconds": 300}
        for number in range(UNDER_WAY):
            webhook = stack.webhook(timeoutSeconds=60)
            await stack.apply(f"call-{number}", {**spec, "webhook": webhook})
        await stack.wait_for_deliveries(UNDER_WAY)
        heir = stack.worker("heir", lease_seconds=lease)
        await heir.wait_until_ready()
        await asyncio.sleep(LEASE_SECONDS)  # the leases are extended by now
        killed_us = time.time_ns() // 1000
        await doomed.kill()
        deliveries = await stack.wait_for_deliveries(2 * UNDER_WAY)
    again = deliveries[UNDER_WAY:]
    after = [(one.arrived_us - killed_us) / 1e6 for one in again]
    lost = UNDER_WAY - len({one.webhook_id for one in again})
    return [
        Figure(benchmark=NAME, figure="killed: points that are not fired again", value=lost,
               unit="points", bar="= 0", runs=UNDER_WAY),
        Figure(benchmark=NAME, figure=f"killed at a lease of {LEASE_SECONDS:g} s: all fired again",
               value=round(max(after), 2), unit="s", bar=f"<= {LEASE_SECONDS + 0.5:g}",
               spread=(round(min(after), 2), round(max(after), 2)), runs=len(after)),
    ]  # fmt: skip


# -- a worker is asked to end ----------------------------------------------------------------------


async def _ended() -> list[Figure]:
    report.say("SIGTERM to a worker")
    async with scene.stack() as stack, lateness.sink() as sink:
        _, leaving = await stack.running()
        await stack.worker("worker-2").wait_until_ready()
        await lateness.tick(stack, sink.port)
        await asyncio.sleep(_REST_SECONDS)
        asked = time.monotonic()
        window = asyncio.create_task(_window(PAUSE_SECONDS))
        await leaving.drain()
        seconds = time.monotonic() - asked
        asked_for = await window
        await asyncio.sleep(_REST_SECONDS)
        arrived = await sink.stop()
    return [
        *_counts("asked to end", arrived, asked_for),
        Figure(benchmark=NAME, figure="asked to end: the process is over after",
               value=round(seconds, 2), unit="s", bar="<= 2"),
        Figure(benchmark=NAME, figure="asked to end: latest slot of the 30 s from then on",
               value=round(max(_late(arrived, asked_for))), unit="ms"),
    ]  # fmt: skip


# -- no API server ---------------------------------------------------------------------------------


async def _api() -> list[Figure]:
    async with scene.stack() as stack, kubeplane.opened(stack.plane) as plane:
        names = {"bare": stack.plane.create_namespace("bare")}
        made = kubeburst.Scene(stack, plane, names)
        bare_ms = (await kubeburst.bare(made, COUNT)).last_ms
        async with lateness.sink() as sink:
            await stack.running()
            await stack.worker("worker-2").wait_until_ready()
            due_us = await kubeburst.armed(stack, COUNT)
            await lateness.tick(stack, sink.port)
            await asyncio.sleep(_REST_SECONDS)
            before = await _window(PAUSE_SECONDS)
            await asyncio.sleep(max(0.0, due_us / 1e6 - 10 - time.time()))
            report.say(f"no API server for {SECONDS:g} s; {COUNT} Jobs come due")
            made.audit.skip()
            async with plane.without_api_server():
                meanwhile = await _window(SECONDS)
            back_us = time.time_ns() // 1000
            requests = await _all_made(made, stack)
            await asyncio.sleep(_REST_SECONDS)
            arrived = await sink.stop()
        jobs = await stack.jobs()
        await kubeburst.clear(made, SCHEDULES, stack.namespace)
    there = {job["metadata"]["name"] for job in jobs}
    created = kubeaudit.jobs_created(requests, stack.namespace)
    again = len(created) - COUNT  # answered 201 for a name that was made before
    drained_ms = (created[-1] - back_us) / 1000
    return [
        *_counts("no API server", arrived, before, meanwhile),
        Figure(benchmark=NAME, figure="no API server: Jobs that were not made, or made twice",
               value=COUNT - len(there) + again, unit="Jobs", bar="= 0", runs=COUNT),
        Figure(benchmark=NAME, figure="no API server: all Jobs made after it is back",
               value=round(drained_ms / bare_ms, 2), unit="times the bare loop", bar="<= 1.2",
               runs=COUNT, compared_with=f"{drained_ms:.0f} ms, bare loop {bare_ms:.0f} ms"),
        _moved("no API server: webhooks' lateness p99 moves by", arrived, before, meanwhile),
    ]  # fmt: skip


async def _all_made(made: kubeburst.Scene, stack: Stack) -> list[kubeaudit.Request]:
    requests: list[kubeaudit.Request] = []

    async def all_are() -> bool:
        requests.extend(made.audit.new())
        return len(kubeaudit.jobs_created(requests, stack.namespace)) >= COUNT

    await eventually(all_are, f"{COUNT} Jobs", pause_seconds=0.5)
    return requests


# -- what all have in common -----------------------------------------------------------------------


async def _window(seconds: float) -> range:
    """The whole seconds that begin from now on until so much later, which is when it returns."""
    first = int(time.time()) + 1
    await asyncio.sleep(first + seconds - time.time())
    return range(first, first + int(seconds))


def _late(arrived: Iterable[Delivery], window: range) -> list[float]:
    return [lateness.late_ms(one) for one in arrived if slot_us(one.slot) // _SECOND_US in window]


def _moved(
    figure: str, arrived: Sequence[Delivery], before: range, meanwhile: range, *, bar: str = ""
) -> Figure:
    late = [_late(arrived, window) for window in (before, meanwhile)]
    p99 = [report.percentile(each, 0.99) for each in late]
    return Figure(
        benchmark=NAME, figure=figure, value=round(p99[1] - p99[0], 2), unit="ms", bar=bar,
        runs=len(late[1]),
        compared_with=f"p99 {p99[0]:.2f} ms before, {p99[1]:.2f} ms meanwhile",
    )  # fmt: skip


def _counts(what: str, arrived: Sequence[Delivery], *windows: range) -> Iterator[Figure]:
    """Slots of the ticking Schedules that did not come, and that came twice."""
    seconds = [second for window in windows for second in window]
    expected = {(number, second) for number in range(lateness.SCHEDULES) for second in seconds}
    came = collections.Counter(
        (int(one.schedule.rpartition("-")[2]), slot_us(one.slot) // _SECOND_US) for one in arrived
    )
    lost = len(expected - came.keys())
    again = sum(count - 1 for slot, count in came.items() if slot in expected)
    yield Figure(benchmark=NAME, figure=f"{what}: slots lost", value=lost, unit="slots",
                 bar="= 0", runs=len(expected))  # fmt: skip
    yield Figure(benchmark=NAME, figure=f"{what}: slots twice", value=again, unit="slots",
                 bar="= 0", runs=len(expected))  # fmt: skip


PARTS: dict[str, Callable[[], Awaitable[list[Figure]]]] = {
    "leader": _leader,
    "killed": _killed,
    "ended": _ended,
    "api": _api,
}
