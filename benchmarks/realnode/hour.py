"""``python -m benchmarks.realnode.hour``: a load on a real node, and every incident once meanwhile.

Eight webhook Schedules and ``MEMBERS`` (1,000) members of a set fire every second, Schedules make
forty Jobs a minute, and a client creates five one-offs a second through the HTTP API. The incidents
are spread over ``MINUTES`` (60); ``INCIDENTS=killed`` takes only those that have it in their names.
What the receiver wrote is kept in ``build/realnode``. Exit code 1: a slot was lost, doubled or
early, other than as documented.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks import report
from benchmarks.realnode import judge as judging
from benchmarks.realnode.incidents import INCIDENTS
from benchmarks.realnode.judge import Judge, Period
from benchmarks.realnode.scene import HOOKS, JOB_SECONDS, JOBS, MEMBERS, Scene
from tests.support.realcluster import Cluster, until
from tools.devcluster.errors import DevClusterError

#: Slots of so long after an incident are counted as its own.
AFTER_SECONDS = 60.0
#: What was late, and its retries, are over long before.
SETTLING_SECONDS = 30.0
LOOK_SECONDS = 15.0
KEPT = Path("build/realnode")


class Onlooker(threading.Thread):
    """Lists the Jobs now and then, and how busy the machine is."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(daemon=True)
        self._scene = scene
        self._ended = threading.Event()
        self.uids: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.failed: dict[str, str] = {}
        #: When, busy ticks and all ticks of the machine.
        self.ticks: list[tuple[int, int, int]] = []

    def run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.look()

    def end(self) -> None:
        self._ended.set()
        self.join()
        self.look()

    def look(self) -> None:
        numbers = [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        self.ticks.append((now_us(), sum(numbers) - numbers[3] - numbers[4], sum(numbers)))
        with contextlib.suppress(DevClusterError):  # its turn may come while there is no API server
            for one in self._scene.cluster.items("jobs", f"--namespace={self._scene.namespace}"):
                metadata = one["metadata"]
                name, _, slot = metadata["name"].rpartition("-")
                self.uids[name, int(slot)].add(metadata["uid"])
                if one.get("status", {}).get("failed"):
                    self.failed[metadata["name"]] = json.dumps(one["status"].get("conditions"))

    def busy(self, start_us: int, end_us: int) -> float:
        inside = [one for one in self.ticks if start_us <= one[0] <= end_us]
        if len(inside) < 2:
            return float("nan")
        return (inside[-1][1] - inside[0][1]) / (inside[-1][2] - inside[0][2])


def run(
    scene: Scene,
    minutes: float,
    incidents: Mapping[str, Callable[[Scene], None]],
    kept: Path = KEPT,
) -> list[str]:
    """Faults; the tables are printed."""
    kept.mkdir(parents=True, exist_ok=True)
    report.say("Installing")
    scene.prepare()
    scene.load()
    onlooker = Onlooker(scene)
    onlooker.start()
    began = time.monotonic()
    began_us = now_us()
    every = minutes * 60 / (len(incidents) + 1)
    periods, unfinished = [], []
    for number, (name, incident) in enumerate(incidents.items(), 1):
        time.sleep(max(0.0, began + number * every - time.monotonic()))
        report.say(f"{time.strftime('%H:%M:%S')}  {name} (load {os.getloadavg()[0]:.1f})")
        period = Period(name, now_us())
        try:
            incident(scene)
        except (DevClusterError, AssertionError) as error:
            unfinished.append(f"{name}: {error}")
            report.say(unfinished[-1])
        period.end_us = now_us()
        periods.append(period)
    time.sleep(max(0.0, began + minutes * 60 - time.monotonic()))
    end_us = now_us() - 1_000_000
    until("nothing more becomes due", lambda: scene.silence() or True)
    report.say("Waiting for what is late")
    time.sleep(SETTLING_SECONDS)
    missed = until("what was missed is known", lambda: missed_slots(scene))
    onlooker.end()
    scene.keep(kept / "received")
    answers = scene.answers()
    quiet = Period(judging.QUIET, began_us, end_us, busy=onlooker.busy(began_us, end_us))
    for period, after in zip(periods, [*periods[1:], None], strict=True):
        wanted = period.end_us + int(AFTER_SECONDS * 1_000_000)
        period.until_us = min(wanted, after.start_us if after else end_us)
        period.busy = onlooker.busy(period.start_us, period.until_us)
    kept.joinpath("seen.json").write_text(json.dumps({
        "periods": [vars(one) for one in (quiet, *periods)], "members": scene.members,
        "missed": missed, "answers": answers,
        "uids": [[*slot, [*found]] for slot, found in onlooker.uids.items()],
        "failed": onlooker.failed,
    }))  # fmt: skip
    return unfinished + verdict(kept)


def verdict(kept: Path) -> list[str]:
    """Faults in what was kept of a run."""
    seen = json.loads(kept.joinpath("seen.json").read_text())
    quiet, *periods = (Period(**one) for one in seen["periods"])
    judge = Judge(periods, quiet.end_us)
    with kept.joinpath("received").open() as lines:
        found, old_key_us = judging.read(lines)
    hooks, members, orders, containers = (
        found[path] for path in ("/hook", "/member", "/order", "/job")
    )
    kinds = {"webhooks": hooks, "members": members, "one-offs": orders, "containers": containers}
    for kind, arrivals in kinds.items():
        judge.twice_and_early(kind, arrivals, may_repeat=kind in ("webhooks", "one-offs"))
    by_policy = {name: seen["missed"][name] for name, policy in HOOKS.items() if not policy}
    judge.recurring("webhooks", hooks, 1_000, by_policy)
    judge.recurring("members", members, 1_000, {}, is_in_redis=True)
    judge.one_offs("one-offs", orders, seen["answers"])
    jobs = judging.jobs(seen["uids"], containers)
    judge.twice_and_early("Jobs", jobs, may_repeat=False)
    judge.recurring("Jobs", jobs, JOB_SECONDS * 1_000, {})
    judge.counts["containers"]["failed"] = len(seen["failed"])
    for name, why in seen["failed"].items():
        report.say(f"{name} failed: {why}")
    judge.all_fired("webhooks", hooks, len(HOOKS))
    judge.all_fired("members", members, seen["members"])
    judge.all_fired("Jobs", jobs, len(JOBS))
    late = {kind: judge.lateness(arrivals) for kind, arrivals in kinds.items()}
    print(judging.table(judge, late, [quiet, *periods]), flush=True)
    for period in periods:
        if period.name.startswith("webhook Secret") and old_key_us:
            took = (old_key_us - period.start_us) / 1e6
            print(f"\nThe webhook's former Secret was sent last {took:.0f} s after its change.")
    return judge.faults


def missed_slots(scene: Scene) -> dict[str, int]:
    found = scene.cluster.items("schedules.duepoint.dev", f"--namespace={scene.namespace}")
    return {
        one["metadata"]["name"]: one["status"].get("runs", {}).get("missed", 0) for one in found
    }


def now_us() -> int:
    return time.time_ns() // 1000


@contextlib.contextmanager
def scene(members: int) -> Iterator[Scene]:
    cluster = Cluster(os.environ["KUBECONFIG"])
    with cluster.namespace("hour") as namespace:
        made = Scene(cluster, namespace, members)
        yield made
        # Members are removed by the operator, which goes with the installation.
        cluster("delete", "namespace", namespace, "--timeout=120s")
        made.uninstall()


def main() -> int:
    chosen = os.environ.get("INCIDENTS", "")
    incidents = {name: one for name, one in INCIDENTS.items() if chosen in name}
    print(report.environment(), flush=True)
    with scene(int(os.environ.get("MEMBERS") or MEMBERS)) as made:
        faults = run(made, float(os.environ.get("MINUTES") or 60), incidents)
    for fault in faults:
        report.say(f"MISSED: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
