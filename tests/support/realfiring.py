"""Schedules that fire while a test disturbs the installation, and a check of every slot."""

from __future__ import annotations

import collections
import datetime as dt
import json
import time

from tests.support.realcluster import Cluster, Receiver, job, schedule, until, webhook

JOB_EVERY_SECONDS = 2
HOOKS = ("one", "two", "three")
SLOT = "duepoint.dev/scheduled-time"


class Firing:
    """Three webhooks a second and a Job every other one, in a namespace with a receiver."""

    def __init__(self, cluster: Cluster, team: str, receiver: Receiver) -> None:
        self._cluster, self._team, self._receiver = cluster, team, receiver
        all_of_them = {"catchUpPolicy": "All", "catchUpLimit": 1000}  # for a busy machine
        hooks = [
            schedule(name, "@every 1s", webhook=webhook(f"/{name}"), **all_of_them)
            for name in HOOKS
        ]
        kept = {"successfulJobsHistoryLimit": 500, "concurrencyPolicy": "Allow", **all_of_them}
        jobs = schedule("jobs", f"@every {JOB_EVERY_SECONDS}s", jobTemplate=job("true"), **kept)
        cluster.apply(*hooks, jobs, namespace=team)
        until("webhooks come", lambda: all(receiver.requests(f"/{name}")[2:] for name in HOOKS))
        until("Jobs are made", self._jobs)

    def ended_well(self, seconds: float = 10) -> float:
        """Wait for the slots of the next seconds; check that each ran, and none twice.

        Return the largest lateness of a webhook, in seconds.
        """
        end = int(time.time() + seconds)
        worst = 0.0
        for name in HOOKS:
            until(f"{name} has fired", lambda name=name: max(self._lateness(name)) >= end)
            until(f"{name} misses no slot", lambda name=name: not self._misses(name, end))
            worst = max(worst, *self._lateness(name).values())
        until("Jobs go on", lambda: max(self._jobs()) >= end)

        def lost() -> set[int]:
            slots = self._jobs()
            return set(range(min(slots), end, JOB_EVERY_SECONDS)) - slots.keys()

        until("no slot is without a Job", lambda: not lost())
        slots = self._jobs()
        assert {slot: count for slot, count in slots.items() if count > 1} == {}
        return worst

    def _misses(self, name: str, end: int) -> list[int]:
        """Return the slots that have not come yet; later ones may overtake earlier ones."""
        slots = self._lateness(name).keys()
        return [slot for slot in range(min(slots), end) if slot not in slots]

    def _lateness(self, name: str) -> dict[int, float]:
        """Return each slot's lateness; check that none is early and each slot has only one id."""
        lateness: dict[int, float] = {}
        ids: dict[int, set[str]] = collections.defaultdict(set)
        for request in self._receiver.requests(f"/{name}"):
            slot = _seconds(json.loads(request["body"])["data"]["scheduled_time"])
            late = request["arrived"] - slot
            assert late >= 0, f"{name}: slot {slot} came {-late:.3f} s early"
            lateness[slot] = min(late, lateness.get(slot, late))
            ids[slot].add(request["headers"]["webhook-id"])
        assert all(len(each) == 1 for each in ids.values())
        return lateness

    def _jobs(self) -> dict[int, int]:
        """Return the number of Jobs of each slot."""
        found = self._cluster.items("jobs", f"--namespace={self._team}")
        return collections.Counter(_seconds(one["metadata"]["annotations"][SLOT]) for one in found)


def _seconds(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp())
