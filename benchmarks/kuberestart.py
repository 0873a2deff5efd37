"""A restarted operator with 100,000 Schedules and 30,000 Jobs lying around, several times.

The objects are laid into etcd (``kubestock``). An operator that finds an empty Redis is measured
first, then restarts: while no operator runs, a hundredth of the Schedules is deleted and twice as
many are created. Armed means that Redis holds the points that it should and no others; settled,
that nothing is written any more and the operator rests. Once all are armed one is edited: until the
queue has that counts from the operator's start, because kopf lists the objects, too, before it
reports a change.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import msgspec

from benchmarks import kubeloads, kubemeter, kubescale, kubestock, report
from benchmarks.kubeburst import TEMPLATE, Scene
from benchmarks.report import Figure
from duepoint.kube import errors, jobbuilder, port
from tests.support.stack import JOBS, SCHEDULES, Process

#: Distinct Schedules; the first tenth of them has Jobs, so many each.
_SHAPES, _WITH_JOBS, _JOBS_EACH = 50, 5, 3
_CHANGED = 100


async def run(made: Scene, count: int, times: int) -> list[Figure]:
    """``count`` Schedules; ``times`` restarts."""
    operator, worker = await made.stack.running()
    shapes = await _shapes(made, operator)
    await operator.drain()
    copies = count // _SHAPES - 1
    report.say(f"{count} Schedules and {count // _SHAPES * _WITH_JOBS * _JOBS_EACH} Jobs into etcd")
    started = time.monotonic()
    await kubestock.lay(made.stack.plane.etcd, made.stack.namespace, shapes, copies)
    report.say(f"  laid in {time.monotonic() - started:.0f} s")
    await _until_listed(made, count // _SHAPES * _SHAPES)
    here = (copies + 1) * _SHAPES
    jobs = (copies + 1) * _WITH_JOBS * _JOBS_EACH
    who = f"Redis empty, {jobs} Jobs"
    report.say(f"an operator that finds Redis empty, beside {here} Schedules")
    await _emptied(made)
    operator, figures = await _measured(made, here, who, "operator-0", worker)
    for turn in range(1, times + 1):
        changed = here // _CHANGED
        report.say(f"restart {turn}; meanwhile {changed} are deleted and {2 * changed} created")
        await operator.drain()
        await _change(made, changed, f"new-{turn}-")
        here += changed
        who = f"restart {turn} beside {jobs} Jobs"
        operator, more = await _measured(made, here, who, f"operator-{turn}", worker)
        figures += more
    figures += await kubescale.idle(here, "after restarts", operator, worker)
    return figures


async def _shapes(made: Scene, operator: Process) -> list[kubestock.Shape]:
    """The Schedules to copy, settled by the operator, with their finished Jobs."""
    names = [kubestock.copy_name(place, 0) for place in range(_SHAPES)]
    path = SCHEDULES.format(ns=made.stack.namespace)
    uids: dict[str, str] = {}
    for place, name in enumerate(names):
        # On many days of a far month: nothing is due while this goes on.
        spec = {"schedule": f"{place} 3 {place % 28 + 1} 1 *", "jobTemplate": TEMPLATE}
        thing = {
            "apiVersion": "duepoint.dev/v1alpha1", "kind": "Schedule",
            "metadata": {"name": name, "namespace": made.stack.namespace}, "spec": spec,
        }  # fmt: skip
        created = await made.stack.api.request("POST", path, thing)
        uids[name] = msgspec.json.decode(created, type=kubescale.Listed).metadata.uid
    with_jobs = [(name, uids[name]) for name in names[:_WITH_JOBS]]
    for number in range(_JOBS_EACH):
        await _lay_jobs(made, with_jobs, number)
    await kubescale.until_settled(made, operator)
    jobs = {(name, uid) for name, uid in await kubescale.uids(made, JOBS)}
    return [
        kubestock.Shape(
            schedule=kubestock.Named(name=name, uid=uids[name]),
            jobs=tuple(
                kubestock.Named(name=job, uid=uid) for job, uid in sorted(jobs)
                if job.startswith(f"{name}-")
            ),
        )
        for name in names
    ]  # fmt: skip


async def _lay_jobs(made: Scene, owners: list[tuple[str, str]], number: int) -> None:
    """A finished Job of each of these Schedules."""
    namespace, plane = made.stack.namespace, made.stack.plane
    facts = jobbuilder.SlotFacts(
        namespace=namespace, schedule_name="@NAME@", schedule_uid="@UID@",
        slot_us=(1_767_225_600 + number * 86_400) * 1_000_000, previous_us=None,
        trigger="Schedule", payload=None, time_zone="Etc/UTC",
    )  # fmt: skip
    thing = jobbuilder.job_for(TEMPLATE, facts)
    path = JOBS.format(ns=namespace)
    await kubeloads.send(plane, path, thing, owners=owners)
    path = f"{path}/{thing['metadata']['name']}/status"
    merge = "application/merge-patch+json"
    await kubeloads.send(
        plane, path, kubescale.FINISHED, owners=owners, verb="PATCH", content_type=merge
    )


async def _emptied(made: Scene) -> None:
    with made.stack.redis.client() as client:
        await asyncio.to_thread(client.flushall)


async def _until_listed(made: Scene, count: int) -> None:
    """The API server's caches have followed etcd."""
    deadline = time.monotonic() + kubescale.LIMIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(errors.ApiError):  # behind, it says so
            if len(await kubescale.uids(made)) >= count:
                return
        await asyncio.sleep(1)
    raise RuntimeError("the API server does not show what was laid into etcd")


async def _change(made: Scene, changed: int, prefix: str) -> None:
    """Some are deleted, twice as many created."""
    path = f"{SCHEDULES.format(ns=made.stack.namespace)}/@NAME@"
    gone = [
        one for one in await kubescale.uids(made) if one[0] > kubestock.copy_name(_WITH_JOBS, 1)
    ]
    going = gone[:: max(1, len(gone) // changed)][:changed]
    while left := sorted(set(going) & set(await kubescale.uids(made))):
        with contextlib.suppress(RuntimeError):  # one that took too long may have been done
            await kubeloads.send(made.stack.plane, path, {}, owners=left, verb="DELETE")
    await kubescale.create(made, prefix, changed * 2)


async def _measured(
    made: Scene, here: int, who: str, name: str, worker: Process
) -> tuple[Process, list[Figure]]:
    """An operator from its start until it rests."""
    made.audit.skip()
    started = time.monotonic()
    operator = made.stack.operator(name)
    pids = {operator.name: operator.pid, worker.name: worker.pid}
    probed = {one.name: f"{one.http}/healthz" for one in (operator, worker)}
    async with kubemeter.metered(pids, probed) as uses:
        armed = await kubescale.until_armed(made, here, operator, stays=True) - started
        report.say(f"  armed after {armed:.1f} s")
        edited = await _edited(made, here, operator) - started
        report.say(f"  an edit was in the queue after {edited:.1f} s")
        requests = await kubescale.until_settled(made, operator)
        settled = time.monotonic() - started - kubescale.QUIET_SECONDS
    report.say(f"  settled after {settled:.1f} s")
    times = kubescale.Restarted(armed=armed, edited=edited, settled=settled)
    return operator, list(kubescale.figures_of_restart(here, who, times, requests, uses))


async def _edited(made: Scene, here: int, operator: Process) -> float:
    """When the queue first had an edit: a Schedule is suspended, and resumed."""
    path = f"{SCHEDULES.format(ns=made.stack.namespace)}/{kubestock.copy_name(0, 0)}"

    async def suspended(*, suspend: bool, armed: int) -> float:
        patch = {"spec": {"suspend": suspend}}
        await made.stack.api.request("PATCH", path, patch, content_type=port.MERGE_PATCH)
        return await kubescale.until_armed(made, armed, operator)

    edited = await suspended(suspend=True, armed=here - 1)
    await suspended(suspend=False, armed=here)
    return edited
