"""Containers that take time: what the next slot does, and how long a Job that has ended stays."""

from __future__ import annotations

import itertools

import pytest

from tests.support.realcluster import job, schedule, until


def look(cluster, team, name):
    return cluster.get("schedule", name, f"--namespace={team}")["status"]


def spans(cluster, team):
    """From when to when containers ran, in the order of their slots; whole seconds."""
    found = {}
    for pod in cluster.items("pods", f"--namespace={team}"):
        (container,) = pod["status"]["containerStatuses"]
        if ended := container["state"].get("terminated"):
            found[pod["metadata"]["name"]] = (ended["startedAt"], ended["finishedAt"])
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize(
    ("policy", "reason"), [("Forbid", "ConcurrencyLimit"), ("Queue", "QueueFull")]
)
def test_containers_of_one_schedule_run_one_after_the_other(installed, team, policy, reason):
    slow = schedule(
        "slow",
        "@every 2s",
        concurrencyPolicy=policy,
        successfulJobsHistoryLimit=20,
        jobTemplate=job("sleep 5"),
    )
    installed.apply(slow, namespace=team)

    until("three have succeeded", lambda: look(installed, team, "slow")["runs"]["succeeded"] >= 3)

    ran = spans(installed, team)
    assert len(ran) >= 3
    assert all(one[1] <= later[0] for one, later in itertools.pairwise(ran)), ran
    chosen = "involvedObject.name=slow,reason=RunSkipped"
    events = installed.items("events", f"--namespace={team}", f"--field-selector={chosen}")
    assert reason in events[0]["message"]


def test_the_newest_slot_replaces_a_container_that_runs(installed, team):
    script = "trap 'exit 143' TERM; sleep 600 & wait"
    endless = schedule("endless", "@every 8s", concurrencyPolicy="Replace", jobTemplate=job(script))
    installed.apply(endless, namespace=team)

    until("two are replaced", lambda: look(installed, team, "endless")["runs"]["replaced"] >= 2)
    stop = '{"spec": {"suspend": true}}'
    installed("patch", "schedule", "endless", "-n", team, "--type=merge", f"--patch={stop}")

    def left():
        pods = installed.items("pods", f"--namespace={team}")
        jobs = installed.items("jobs", f"--namespace={team}")
        names = {pod["metadata"]["labels"]["job-name"] for pod in pods}
        is_one = len(pods) == 1 and names == {one["metadata"]["name"] for one in jobs}
        return is_one and pods[0]["status"]["phase"] == "Running" and names

    def active():
        return {one["name"] for one in look(installed, team, "endless").get("active", ())}

    newest = until("one Pod is left", left)
    until("the status has it", lambda: active() == newest)
    assert look(installed, team, "endless")["runs"].get("failed", 0) == 0
