"""``make chaos KIND=real``: load a real node for an hour, and cause every incident once meanwhile.

Eight webhook Schedules and ``MEMBERS`` (1,000) members of a set fire every second, Schedules make
forty Jobs a minute, and a client creates five one-offs a second through the HTTP API. The incidents
are spread over ``MINUTES`` (60); ``INCIDENTS=killed`` takes only those with that word in their
names. The receiver's log stays in ``build/realnode``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks import report
from benchmarks.report import Figure
from tests.chaos.realnode import judge as judging
from tests.chaos.realnode.incidents import INCIDENTS
from tests.chaos.realnode.judge import Judge, Period
from tests.chaos.realnode.scene import HOOKS, JOB_SECONDS, JOBS, MEMBERS, Scene
from tests.support.realcluster import Cluster, until
from tools.devcluster.errors import DevClusterError

#: Slots within this time after an incident count as its own.
AFTER_SECONDS = 60.0
#: The final wait; late slots and their retries end long before.
SETTLING_SECONDS = 30.0
LOOK_SECONDS = 15.0
RECEIVED = Path("build/realnode/received")


def main() -> int:
    chosen = os.environ.get("INCIDENTS", "")
    incidents = {name: one for name, one in INCIDENTS.items() if chosen in name}
    with scene(int(report.number("MEMBERS", MEMBERS))) as made:
        figures = measure(made, report.number("MINUTES", 60, 3), incidents)
    return 0 if asyncio.run(report.show(figures)) else 1


@contextlib.contextmanager
def scene(members: int) -> Iterator[Scene]:
    cluster = Cluster(os.environ["KUBECONFIG"])
    with cluster.namespace("hour") as namespace:
        made = Scene(cluster, namespace, members)
        yield made
        # The operator removes members, and it goes with the installation.
        cluster("delete", "namespace", namespace, "--timeout=120s")
        made.uninstall()


class _JobsSeen(threading.Thread):
    """A thread that lists the Jobs now and then, because the history limits delete them."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(daemon=True)
        self._scene = scene
        self._ended = threading.Event()
        self.uids: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.failed: set[str] = set()

    def run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._look()

    def end(self) -> None:
        self._ended.set()
        self.join()
        self._look()

    def _look(self) -> None:
        with contextlib.suppress(DevClusterError):  # the API server may be down just now
            for one in self._scene.cluster.items("jobs", f"--namespace={self._scene.namespace}"):
                metadata = one["metadata"]
                name, _, slot = metadata["name"].rpartition("-")
                self.uids[name, int(slot)].add(metadata["uid"])
                if one.get("status", {}).get("failed"):
                    self.failed.add(metadata["name"])


def measure(
    scene: Scene,
    minutes: float,
    incidents: Mapping[str, Callable[[Scene], None]],
    received: Path = RECEIVED,
) -> list[Figure]:
    """Install, cause the incidents, and judge what arrived."""
    received.parent.mkdir(parents=True, exist_ok=True)
    report.say("Installing")
    scene.prepare()
    scene.load()
    seen = _JobsSeen(scene)
    seen.start()
    began = time.monotonic()
    every_seconds = minutes * 60 / (len(incidents) + 1)
    periods, unfinished = [], 0
    for number, (name, incident) in enumerate(incidents.items(), 1):
        time.sleep(max(0.0, began + number * every_seconds - time.monotonic()))
        report.say(f"{time.strftime('%H:%M:%S')}  {name} (load {os.getloadavg()[0]:.1f})")
        period = Period(name, _now_us())
        try:
            incident(scene)
        except (DevClusterError, AssertionError) as error:
            unfinished += 1
            report.say(f"{name}: {error}")
        period.end_us = _now_us()
        periods.append(period)
    time.sleep(max(0.0, began + minutes * 60 - time.monotonic()))
    end_us = _now_us() - 1_000_000
    until("nothing more becomes due", lambda: scene.silence() or True)
    report.say("Waiting for what is late")
    time.sleep(SETTLING_SECONDS)
    missed = until("what was missed is known", lambda: _missed_slots(scene))
    seen.end()
    scene.keep(received)
    for period, after in zip(periods, [*periods[1:], None], strict=True):
        wanted = period.end_us + int(AFTER_SECONDS * 1_000_000)
        period.until_us = min(wanted, after.start_us if after else end_us)
    judge = Judge(periods, end_us)
    figures = _judged(judge, scene, received, missed, seen)
    bench = report.Bench("chaos")
    return [*figures, bench.one("incidents that did not end", unfinished, "incidents", "= 0")]


def _judged(
    judge: Judge, scene: Scene, received: Path, missed: Mapping[str, int], seen: _JobsSeen
) -> Iterator[Figure]:
    with received.open() as lines:
        found = judging.read(lines)
    hooks, members, orders, containers = (
        found[path] for path in ("/hook", "/member", "/order", "/job")
    )
    jobs = judging.jobs(seen.uids, containers)
    by_policy = {name: missed.get(name, 0) for name, policy in HOOKS.items() if not policy}
    judge.twice_and_early("webhooks", hooks, may_repeat=True)
    judge.recurring("webhooks", hooks, 1_000, by_policy)
    judge.twice_and_early("members", members, may_repeat=False)
    judge.recurring("members", members, 1_000, {}, is_in_redis=True)
    judge.twice_and_early("one-offs", orders, may_repeat=True)
    judge.one_offs("one-offs", orders, scene.answers())
    judge.twice_and_early("containers", containers, may_repeat=False)
    judge.twice_and_early("Jobs", jobs, may_repeat=False)
    judge.recurring("Jobs", jobs, JOB_SECONDS * 1_000, {})
    judge.counts["containers"]["failed"] = len(seen.failed)
    for kind, arrivals, number in (
        ("webhooks", hooks, len(HOOKS)),
        ("members", members, scene.members),
        ("Jobs", jobs, len(JOBS)),
    ):
        judge.counts[kind]["objects that never fired"] = number - len(arrivals.first)
    yield from judge.figures(
        {"webhooks": hooks, "members": members, "one-offs": orders, "containers": containers}
    )


def _missed_slots(scene: Scene) -> dict[str, int]:
    found = scene.cluster.items("schedules.duepoint.dev", f"--namespace={scene.namespace}")
    return {
        one["metadata"]["name"]: one["status"].get("runs", {}).get("missed", 0) for one in found
    }


def _now_us() -> int:
    return time.time_ns() // 1000


if __name__ == "__main__":
    sys.exit(main())
