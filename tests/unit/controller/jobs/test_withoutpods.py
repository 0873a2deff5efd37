"""Jobs whose Pods are refused: the Schedule says so, with the reason and what to do."""

from __future__ import annotations

import pytest

from duepoint.kube import errors as kube_errors
from duepoint.kube import events, times
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


def asked(world: World) -> int:
    return world.api.requests.count(("GET", EVENTS))


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


@pytest.mark.parametrize("pods", [1, 3])
async def test_a_job_that_gets_its_pods_costs_no_request_and_is_not_told(pods):
    async with World().leader() as world:
        name = await run_slot(world, await world.apply_job(), FIRST)
        world.api.begin_job(NAMESPACE, name, pods=0)
        await world.clock.advance(5)
        world.api.begin_job(NAMESPACE, name, pods=pods)
        await world.clock.advance(600)
        assert world.condition("PodsRefused") is None
        assert asked(world) == 0


async def test_a_job_that_nobody_has_begun_is_not_without_pods():
    async with World().leader() as world:
        await run_slot(world, await world.apply_job(), FIRST)
        await world.clock.advance(600)
        assert world.condition("PodsRefused") is None
        assert asked(world) == 0


async def test_the_condition_goes_when_the_job_gets_its_pods():
    async with World().leader() as world:
        name = await a_job_without_pods(world)
        await world.clock.advance(45)
        assert "kubectl describe job" in world.condition("PodsRefused")["message"]
        world.api.begin_job(NAMESPACE, name, pods=1)
        await world.clock.advance(15)
        assert world.condition("PodsRefused") is None


@pytest.mark.parametrize("ended", ["finished", "deleted"])
async def test_the_condition_goes_with_the_job(ended):
    async with World().leader() as world:
        name = await a_job_without_pods(world)
        await world.clock.advance(45)
        assert world.condition("PodsRefused") is not None
        if ended == "finished":
            world.api.end_job(NAMESPACE, name, succeeded=False)
        else:
            path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}"
            await world.api.request("DELETE", path)
        await world.clock.advance(15)
        assert world.condition("PodsRefused") is None


async def test_it_is_told_once_however_long_it_lasts_and_asked_ever_less_often():
    async with World().leader() as world:
        name = await a_job_without_pods(world)
        await said(world, name, POD_SECURITY, "2026-03-01T12:05:11Z")
        await world.clock.advance(45)
        writes = world.status_writes()
        await world.clock.advance(3600)
        assert world.status_writes() <= writes + 3600 // 300  # nothing but NEXT has changed
        assert len([one for one in world.news if one.reason == "PodsRefused"]) == 1
        assert asked(world) < 20


async def test_the_name_of_the_pod_that_was_refused_is_left_out_as_each_try_has_another():
    async with World().leader() as world:
        name = await a_job_without_pods(world)
        for number in range(5):
            note = POD_SECURITY.replace("pods is", f'pods "{name}-x{number}" is')
            last = world.clock.now_us() // 1_000_000
            await said(world, name, note, times.time_text(last * 1_000_000))
            await world.clock.advance(600)
        assert POD_SECURITY in world.condition("PodsRefused")["message"]
        assert len([one for one in world.news if one.reason == "PodsRefused"]) == 1


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


async def test_events_that_may_not_be_read_leave_the_reason_out_and_nothing_else():
    async with World().leader() as world:
        refused = kube_errors.Forbidden("no", cause=kube_errors.ForbiddenCause.RIGHTS)
        world.api.fail_next(refused, verb="GET", resource="events")
        await a_job_without_pods(world)
        await world.clock.advance(45)
        assert "has no Pod since" in world.condition("PodsRefused")["message"]


async def test_events_that_cannot_be_read_now_are_read_later():
    async with World().leader() as world:
        world.api.fail_next(kube_errors.Unavailable("503"), verb="GET", resource="events")
        name = await a_job_without_pods(world)
        await said(world, name, POD_SECURITY, "2026-03-01T12:05:11Z")
        await world.clock.advance(180)
        assert POD_SECURITY in world.condition("PodsRefused")["message"]


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
    assert advice in events.pod_advice(note)
