"""Many Jobs due at one minute on a real node, by Schedules and CronJobs: how late do they start?

One after the other, with the chart's defaults: ``COUNT`` (100) objects due at the same minute,
whose containers sleep for ten seconds; then 20 objects for two minutes, every ten seconds as
Schedules and every minute as CronJobs, whose containers end at once. A container's start is the
kubelet's, in whole seconds.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from benchmarks import report
from benchmarks.report import Bench, Figure
from tests.e2e.test_firing import slot_us
from tests.support.realcluster import Cluster, job, schedule, until
from tools.devcluster.state import Record
from tools.realnode import installation

Make: TypeAlias = Callable[[str, str, dict[str, Any]], dict[str, Any]]
COUNT = int(report.number("COUNT", 100, 10))
#: Objects of a burst are there this long before their minute.
BEFORE_SECONDS = 30
OFTEN, OFTEN_SECONDS = 20, 120
#: Large enough that no Job is deleted before it is measured.
HISTORY = {"successfulJobsHistoryLimit": 30, "failedJobsHistoryLimit": 30}


def _schedule(name: str, when: str, template: dict[str, Any]) -> dict[str, Any]:
    return schedule(name, when, jobTemplate=template, **HISTORY)


def _cronjob(name: str, when: str, template: dict[str, Any]) -> dict[str, Any]:
    spec = {"schedule": when, "timeZone": "Etc/UTC", "jobTemplate": template, **HISTORY}
    metadata = {"name": name}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


async def run() -> list[Figure]:
    return await asyncio.to_thread(lambda: list(_measured()))


def _measured() -> Iterator[Figure]:
    cluster = Cluster(os.environ["KUBECONFIG"])
    installation.install(Record(kubeconfig=cluster.kubeconfig))
    for who, make, when in (
        ("Schedule", _schedule, "@every 10s"),
        ("CronJob", _cronjob, "* * * * *"),
    ):
        report.say(f"{COUNT} at one minute: {who}")
        yield from _at_one_minute(cluster, make, Bench("real-burst", f"{COUNT} at once, {who}"))
        report.say(f"{OFTEN} times {when}: {who}")
        case = f"{OFTEN} times {when}, {who}"
        yield from _again_and_again(cluster, make, when, Bench("real-burst", case))


def _at_one_minute(cluster: Cluster, make: Make, bench: Bench) -> Iterator[Figure]:
    at = dt.datetime.fromtimestamp((time.time() + BEFORE_SECONDS) // 60 * 60 + 60, dt.UTC)
    when = f"{at.minute} {at.hour} {at.day} {at.month} *"
    with cluster.namespace("burst") as namespace:
        objects = [make(f"burst-{number}", when, job("sleep 10")) for number in range(COUNT)]
        cluster.apply(*objects, namespace=namespace)
        time.sleep(max(0.0, at.timestamp() - time.time()))
        until("all have run", lambda: len(_ended(cluster, namespace)) == COUNT, seconds=600)
        spans = [span for _, span in _ended(cluster, namespace)]
    yield from _figures(bench, [began - at.timestamp() for began, _ in spans], spans)


def _again_and_again(cluster: Cluster, make: Make, when: str, bench: Bench) -> Iterator[Figure]:
    with cluster.namespace("often") as namespace:
        objects = [make(f"often-{number}", when, job("true")) for number in range(OFTEN)]
        cluster.apply(*objects, namespace=namespace)
        time.sleep(OFTEN_SECONDS)
        where = f"--namespace={namespace}"
        cluster("delete", "schedules.duepoint.dev,cronjobs", "--all", "--cascade=orphan", where)

        def jobs() -> list[dict[str, Any]]:
            return cluster.items("jobs", where)

        def have_ended() -> bool:
            return all("completionTime" in one.get("status", {}) for one in jobs())

        until("none runs", have_ended, seconds=600)
        slots = {one["metadata"]["name"]: _slot_of(one["metadata"]["name"]) for one in jobs()}
        ended = _ended(cluster, namespace)
    late = [span[0] - slots[job_name] for job_name, span in ended]
    yield from _figures(bench, late, [span for _, span in ended])


def _slot_of(job_name: str) -> float:
    """Return a Job's slot: our names end with its second, CronJob's with its minute."""
    number = int(job_name.rpartition("-")[2])
    return number if number > 1_000_000_000 else number * 60


def _ended(cluster: Cluster, namespace: str) -> list[tuple[str, tuple[float, float]]]:
    """Return the Job of each ended container, and when that began and ended."""
    found = []
    for pod in cluster.items("pods", f"--namespace={namespace}"):
        for container in pod["status"].get("containerStatuses", []):
            if state := container["state"].get("terminated"):
                span = slot_us(state["startedAt"]) / 1e6, slot_us(state["finishedAt"]) / 1e6
                found.append((pod["metadata"]["labels"]["job-name"], span))
    return found


def _figures(bench: Bench, late: list[float], spans: list[tuple[float, float]]) -> Iterator[Figure]:
    for share in (0.5, 0.99):
        yield bench.share("container started, late", share, late, unit="s")
    at_a_time = max(sum(began <= at <= end for began, end in spans) for at, _ in spans)
    yield bench.one("containers at a time, most", at_a_time, "containers")
