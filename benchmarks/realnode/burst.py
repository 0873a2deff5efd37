"""``python -m benchmarks.realnode.burst``: many Jobs due at a time, by Schedules and by CronJobs.

On a node with the chart's defaults, one after the other: ``COUNT`` (100) objects due at the same
minute, whose containers sleep for ten seconds; then 20 objects for two minutes, every ten seconds
as Schedules and every minute as CronJobs, whose containers end at once. A container's start is what
the kubelet says, in whole seconds.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from benchmarks import report
from tests.support.realcluster import Cluster, job, schedule, until
from tools.devcluster.state import Record
from tools.realnode import installation

Made: TypeAlias = Callable[[str, str, dict[str, Any]], dict[str, Any]]
#: Objects of a burst are there this long before their minute.
BEFORE_SECONDS = 30
OFTEN, OFTEN_SECONDS = 20, 120
#: Nothing is forgotten before it is looked at.
HISTORY = {"successfulJobsHistoryLimit": 30, "failedJobsHistoryLimit": 30}


def by_us(name: str, when: str, template: dict[str, Any]) -> dict[str, Any]:
    return schedule(name, when, jobTemplate=template, **HISTORY)


def by_cronjob(name: str, when: str, template: dict[str, Any]) -> dict[str, Any]:
    spec = {"schedule": when, "timeZone": "Etc/UTC", "jobTemplate": template, **HISTORY}
    metadata = {"name": name}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


def at_one_minute(cluster: Cluster, made: Made, count: int) -> str:
    """Lateness of each container, when all have ended."""
    at = dt.datetime.fromtimestamp((time.time() + BEFORE_SECONDS) // 60 * 60 + 60, dt.UTC)
    when = f"{at.minute} {at.hour} {at.day} {at.month} *"
    with cluster.namespace("burst") as namespace:
        objects = [made(f"burst-{number}", when, job("sleep 10")) for number in range(count)]
        cluster.apply(*objects, namespace=namespace)
        time.sleep(max(0.0, at.timestamp() - time.time()))
        until("all have run", lambda: len(ended(cluster, namespace)) == count, seconds=600)
        late = [began - at.timestamp() for began, _ in ended(cluster, namespace)]
        return row(late, ended(cluster, namespace))


def again_and_again(cluster: Cluster, made: Made, when: str, period: int) -> str:
    """Lateness of each container, after the slot that its Job names."""
    with cluster.namespace("often") as namespace:
        objects = [made(f"often-{number}", when, job("true")) for number in range(OFTEN)]
        cluster.apply(*objects, namespace=namespace)
        time.sleep(OFTEN_SECONDS)
        cluster("delete", "schedules.duepoint.dev,cronjobs", "--all", "--cascade=orphan",
                f"--namespace={namespace}")  # fmt: skip
        until("none runs", lambda: all(map(is_over, jobs_of(cluster, namespace))))
        slots = {one["metadata"]["name"]: slot_of(one) for one in jobs_of(cluster, namespace)}
        expected = OFTEN * (OFTEN_SECONDS // period)
        pods = cluster.items("pods", f"--namespace={namespace}")
        spans, late = [], []
        for pod in pods:
            if span := span_of(pod):
                spans.append(span)
                late.append(span[0] - slots[pod["metadata"]["labels"]["job-name"]])
        report.say(f"{len(late)} containers, about {expected} slots")
        return row(late, spans)


def jobs_of(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    return cluster.items("jobs", f"--namespace={namespace}")


def is_over(one: dict[str, Any]) -> bool:
    return bool(one.get("status", {}).get("completionTime"))


def slot_of(one: dict[str, Any]) -> float:
    """Our names end with the slot's second, CronJob's with its minute."""
    number = int(one["metadata"]["name"].rpartition("-")[2])
    return number if number > 1_000_000_000 else number * 60


def ended(cluster: Cluster, namespace: str) -> list[tuple[float, float]]:
    spans = map(span_of, cluster.items("pods", f"--namespace={namespace}"))
    return [span for span in spans if span is not None]


def span_of(pod: dict[str, Any]) -> tuple[float, float] | None:
    """From when to when its container ran."""
    for container in pod["status"].get("containerStatuses", []):
        if found := container["state"].get("terminated"):
            return seconds(found["startedAt"]), seconds(found["finishedAt"])
    return None


def seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


def at_a_time(spans: list[tuple[float, float]]) -> int:
    return max(sum(began <= at <= end for began, end in spans) for at, _ in spans)


def row(late: list[float], spans: list[tuple[float, float]]) -> str:
    shares = [report.percentile(late, share) for share in (0.5, 0.99)]
    cells = [len(late), *(f"{value:.0f} s" for value in (min(late), *shares, max(late)))]
    return " | ".join(map(str, [*cells, at_a_time(spans)]))


def main() -> int:
    cluster = Cluster(os.environ["KUBECONFIG"])
    count = int(os.environ.get("COUNT") or 100)
    installation.install(Record(kubeconfig=cluster.kubeconfig))
    print(report.environment(), flush=True)
    lines = [
        "| | containers | first late | p50 | p99 | last | at a time |",
        "|---|---|---|---|---|---|---|",
    ]
    for who, made, when, period in (
        ("Schedule", by_us, "@every 10s", 10),
        ("CronJob", by_cronjob, "* * * * *", 60),
    ):
        report.say(f"{count} at one minute: {who}")
        lines.append(f"| {count} at one minute, {who} | {at_one_minute(cluster, made, count)} |")
        report.say(f"{OFTEN} every {period} s: {who}")
        found = again_and_again(cluster, made, when, period)
        lines.append(f"| {OFTEN} every {period} s, {who} | {found} |")
    print("\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
