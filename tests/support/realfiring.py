"""Schedules that fire while something happens to the installation, and what came of each slot."""

from __future__ import annotations

import collections
import datetime as dt
import json
import time
from dataclasses import dataclass

from tests.support.realcluster import Cluster, Receiver, job, schedule, until, webhook

JOB_EVERY_SECONDS = 2
HOOKS = ("one", "two", "three")
SLOT = "duepoint.dev/scheduled-time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Of one Schedule: slots in seconds since 1970, and how late each came."""

    lateness: dict[int, float]
    every: int

    def missing(self) -> set[int]:
        return set(range(min(self.lateness), max(self.lateness), self.every)) - self.lateness.keys()


class Firing:
    """Three webhooks a second and a Job every other one, in a namespace with a receiver."""

    def __init__(self, cluster: Cluster, team: str, receiver: Receiver) -> None:
        self._cluster, self._team, self._receiver = cluster, team, receiver
        hooks = [schedule(name, "@every 1s", webhook=webhook(f"/{name}")) for name in HOOKS]
        kept = {"successfulJobsHistoryLimit": 500, "concurrencyPolicy": "Allow"}
        jobs = schedule("jobs", f"@every {JOB_EVERY_SECONDS}s", jobTemplate=job("true"), **kept)
        cluster.apply(*hooks, jobs, namespace=team)
        until("webhooks come", lambda: all(receiver.requests(f"/{name}")[2:] for name in HOOKS))
        until("Jobs are made", self._jobs)

    def ended_well(self, seconds: float = 10) -> float:
        """Wait for slots of so many seconds from now on; every slot is there, none twice.

        Gives the largest lateness of a webhook, in seconds.
        """
        end = int(time.time() + seconds)
        worst = 0.0
        for name in HOOKS:
            until(f"{name} has fired", lambda name=name: max(self._hooks(name).lateness) >= end)
            until(f"{name} misses no slot", lambda name=name: not self._hooks(name).missing())
            worst = max(worst, *self._hooks(name).lateness.values())
        until("Jobs go on", lambda: max(self._jobs()) >= end)
        slots = self._jobs()
        expected = range(min(slots), max(slots) + 1, JOB_EVERY_SECONDS)
        assert set(expected) == slots.keys(), f"lost: {set(expected) - slots.keys()}"
        assert {slot: count for slot, count in slots.items() if count > 1} == {}
        return worst

    def _hooks(self, name: str) -> Slots:
        """Also asserts that none was early and that a slot's requests have one id."""
        lateness: dict[int, float] = {}
        ids: dict[int, set[str]] = collections.defaultdict(set)
        for request in self._receiver.requests(f"/{name}"):
            slot = _seconds(json.loads(request["body"])["data"]["scheduled_time"])
            late = request["arrived"] - slot
            assert late >= 0, f"{name}: slot {slot} came {-late:.3f} s early"
            lateness[slot] = min(late, lateness.get(slot, late))
            ids[slot].add(request["headers"]["webhook-id"])
        assert all(len(each) == 1 for each in ids.values())
        return Slots(lateness=lateness, every=1)

    def _jobs(self) -> dict[int, int]:
        """How many Jobs there are of each slot."""
        found = self._cluster.items("jobs", f"--namespace={self._team}")
        return collections.Counter(_seconds(one["metadata"]["annotations"][SLOT]) for one in found)


def _seconds(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp())
