"""``duepoint trigger`` and ``duepoint backfill``: what they make, show, and wait for."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from duepoint.cli import cluster as clusters
from duepoint.cli import instants, scheduleruns
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.support.builders import at

NOW = at("2026-03-01 12:00:00")
RANGE = ("--from", "2026-02-01", "--to", "2026-02-02")
WEBHOOK = {"url": "https://hooks.example.com/x"}


@pytest.fixture
def cluster(monkeypatch):
    """A cluster with a Schedule; ``operator`` says what becomes of ScheduleRuns."""
    place = Place()
    monkeypatch.setattr(clusters, "session", place.session)
    monkeypatch.setattr(instants, "now_us", lambda: NOW)
    place.schedule("nightly", schedule="0 */6 * * *", webhook=WEBHOOK)
    return place


class Place:
    def __init__(self):
        self.api = FakeKubernetes(now_us=lambda: NOW)
        self.statuses = []
        self.deletes = False
        self.asked = []

    def schedule(self, name, **spec):
        manifest = {"metadata": {"namespace": "reports", "name": name}, "spec": spec}
        asyncio.run(self.api.apply("schedules", manifest))

    @contextlib.asynccontextmanager
    async def session(self, where):
        self.asked.append(where)
        self.api._changed = asyncio.Event()
        acting = asyncio.create_task(self._operate())
        yield clusters.ClusterSession(api=self.api, namespace=where.namespace or "reports")
        acting.cancel()

    async def _operate(self):
        while not (runs := self.runs()):  # noqa: ASYNC110 - the fake tells nobody
            await asyncio.sleep(0.001)
        path = schedules.path("reports", runs[0]["metadata"]["name"], plural="scheduleruns")
        for status in self.statuses:
            await asyncio.sleep(0.005)
            patch = {"status": status}
            await self.api.request(
                "PATCH", f"{path}/status", patch, content_type="application/merge-patch+json"
            )
        if self.deletes:
            await self.api.request("DELETE", path)

    def runs(self):
        return self.api.all_stored("scheduleruns")

    def the_run(self):
        (run,) = self.runs()
        return run


def a_status(state, **runs):
    conditions = [{"type": state, "status": "True"}] if state else []
    counts = {"planned": 4, "started": 0, "succeeded": 0, "failed": 0, "skipped": 0, **runs}
    return {
        "observedGeneration": 1,
        "conditions": conditions,
        "runs": counts,
        "message": f"{counts['succeeded']} of 4 runs succeeded",
    }


# -- trigger -----------------------------------------------------------------------------------


def test_a_payload_beyond_the_limit_is_refused_and_nothing_is_made(cluster, duepoint):
    answer = duepoint("trigger", "nightly", "--payload", json.dumps({"text": "x" * 70_000}))
    assert answer.code == 2
    assert "70012 bytes" in answer.err
    assert "65536" in answer.err
    assert cluster.runs() == []


def test_a_failed_run_is_exit_code_1(cluster, duepoint):
    cluster.statuses = [a_status("Failed", failed=1)]
    answer = duepoint("trigger", "nightly", "--wait")
    assert answer.code == 1
    assert answer.out.splitlines()[-1].startswith("Failed: ")


def test_a_run_that_goes_on_when_the_time_is_over_is_exit_code_3(cluster, duepoint):
    cluster.statuses = [a_status("", started=1)]
    answer = duepoint("trigger", "nightly", "--wait", "--timeout", "100ms")
    assert answer.code == scheduleruns.NOT_ENDED
    name = cluster.the_run()["metadata"]["name"]
    assert f"kubectl delete schedulerun {name} -n reports" in answer.err


def test_a_creation_whose_answer_was_lost_makes_one_run(cluster, duepoint):
    cluster.api.fail_next(
        kube_errors.Unavailable("POST: cut", sent=True),
        verb="POST", resource="scheduleruns", applied=True,
    )  # fmt: skip
    assert duepoint("trigger", "nightly").code == 0
    assert len(cluster.runs()) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nightli"], 'did you mean "nightly"?'),
        (["zebra"], "there is no Schedule reports/zebra"),
        (["nightly", "--at", "soon"], "--at"),
        (["nightly", "--payload", "{day: 1}"], "--payload"),
        (["nightly", "--payload", "null"], "leave it out"),
        (["nightly", "--payload", '"' + "x" * 70_000 + '"'], "65536"),
        (["nightly", "--payload", "@/nowhere"], "--payload"),
        (["nightly", "--timeout", "soon"], "--timeout"),
        (["nightly", "-o", "text"], "'table', 'wide', 'json', 'yaml'"),
        (["nightly", "-n", "a b"], "--namespace"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_and_nothing_is_made(cluster, refused, arguments, told):
    assert told in refused("trigger", *arguments)
    assert cluster.runs() == []


# -- backfill ----------------------------------------------------------------------------------


def test_a_backfill_shows_its_slots_and_makes_one_run(cluster, duepoint):
    cluster.statuses = [a_status("Complete", succeeded=4)]
    answer = duepoint("backfill", "nightly", *RANGE, "--yes", "--max-parallel", "2")
    assert answer.code == 0
    assert "reports/nightly: 4 slots" in answer.out
    assert "2026-02-01T18:00:00Z" in answer.out
    assert cluster.the_run()["spec"]["backfill"] == {
        "from": "2026-02-01T00:00:00Z",
        "to": "2026-02-02T00:00:00Z",
        "maxParallel": 2,
        "limit": 10_000,
    }


def test_ten_million_slots_are_refused_at_once(cluster, refused):
    cluster.schedule("often", schedule="* * * * * *", webhook=WEBHOOK)
    told = refused("backfill", "often", "--from", "2025-10-01", "--to", "2026-02-01", "--yes")
    assert "10627200 slots, and 10000 may be run at once" in told
    assert cluster.runs() == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--from", "2026-02-02", "--to", "2026-02-01"], "--to"),
        ([*RANGE, "--max-parallel", "0"], "--max-parallel"),
        (["--from", "2026-02-02"], "--to"),
    ],
)
def test_a_wrong_backfill_is_told_in_one_line(cluster, refused, arguments, told):
    assert told in refused("backfill", "nightly", "--yes", *arguments)
    assert cluster.runs() == []


def test_a_dry_run_shows_and_makes_nothing(cluster, duepoint):
    (row,) = duepoint("backfill", "nightly", *RANGE, "--dry-run", "-o", "json").rows
    assert row["slots"] == 4
    assert (row["first"], row["last"]) == ("2026-02-01T00:00:00Z", "2026-02-01T18:00:00Z")
    assert cluster.runs() == []


def test_without_a_terminal_to_ask_on_nothing_is_made(cluster, duepoint):
    answer = duepoint("backfill", "nightly", *RANGE)
    assert answer.code == 2
    assert "--yes" in answer.err
    assert cluster.runs() == []
