"""Jobs whose Pods are refused: the Schedule says so, with the reason and what to do."""

from __future__ import annotations

import pytest

from duepoint.kube import pods
from tests.support.builders import at
from tests.unit.controller.jobs.test_jobwatch import run_slot
from tests.unit.controller.world import NAMESPACE, World

FIRST = at("2026-03-01 12:05:00")
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
POD_SECURITY = (
    'Error creating: pods is forbidden: violates PodSecurity "restricted:latest": '
    'allowPrivilegeEscalation != false (container "main" must set securityContext)'
)


async def said(world: World, job_name: str, note: str, last: str) -> None:
    """The Job controller says that it could not create a Pod."""
    uid = world.api.stored("jobs", NAMESPACE, job_name)["metadata"]["uid"]
    body = {
        "metadata": {"generateName": job_name, "namespace": NAMESPACE},
        "reason": "FailedCreate",
        "note": note,
        "regarding": {"uid": uid, "kind": "Job", "name": job_name},
        "deprecatedLastTimestamp": last,
    }
    await world.api.request("POST", EVENTS, body)


async def a_job_without_pods(world: World) -> str:
    name = await run_slot(world, await world.apply_job(), FIRST)
    world.api.begin_job(NAMESPACE, name, pods=0)
    return name


async def test_a_job_whose_pods_are_refused_is_told_with_the_reason_and_what_to_do():
    async with World().leader() as world:
        name = await a_job_without_pods(world)
        await said(world, name, "Error creating: an older trouble", "2026-03-01T12:05:01Z")
        await said(world, name, POD_SECURITY, "2026-03-01T12:05:11Z")
        await world.clock.advance(45)
        told = world.condition("PodsRefused")
        assert (told["status"], told["reason"]) == ("True", "PodsRefused")
        assert f"Job {name} has no Pod since 2026-03-01T12:05:00Z" in told["message"]
        assert POD_SECURITY in told["message"]
        assert "mend securityContext in the jobTemplate" in told["message"]
        assert world.ready() == ("True", "Armed")
        (news,) = [one for one in world.news if one.reason == "PodsRefused"]
        assert news.warning
        assert news.note == told["message"]
        uid = world.api.stored("jobs", NAMESPACE, name)["metadata"]["uid"]
        assert (news.related.kind, news.related.name, news.related.uid) == ("Job", name, uid)


async def test_the_next_leader_says_it_still_and_says_when_it_is_over():
    world = World()
    async with world.leader():
        name = await a_job_without_pods(world)
        await said(world, name, POD_SECURITY, "2026-03-01T12:05:11Z")
        await world.clock.advance(45)
        told = world.condition("PodsRefused")
    async with world.leader(epoch=2):
        await world.clock.advance(60)
        assert world.condition("PodsRefused") == told
    world.api.end_job(NAMESPACE, name)
    async with world.leader(epoch=3):
        await world.clock.advance(60)
        assert world.condition("PodsRefused") is None


@pytest.mark.parametrize(
    ("note", "advice"),
    [
        ('pods "x" is forbidden: exceeded quota: team, requested: pods=1', "quota"),
        ('pods "x" is forbidden: error looking up service account a/b', "serviceAccountName"),
        ('admission webhook "p.example.com" denied the request: no', "webhook"),
        ("something nobody has heard of", "jobTemplate"),
    ],
)
def test_the_advice_fits_the_refusal(note, advice):
    assert advice in pods.pod_advice(note)
