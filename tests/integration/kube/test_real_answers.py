"""What only a real API server says: strict decoding, quirks of names, the past forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from duepoint import clock
from duepoint.election import elector
from duepoint.election import term as terms
from duepoint.kube import api, credentials, jobbuilder, jobcreation, leases
from duepoint.services import Health
from tests.support.controlplane import ControlPlane
from tests.support.servedcrds import duepoint_plane

__all__ = ["duepoint_plane"]

SLOT_US = 1_800_000_000_000_000


@pytest.fixture
async def session(duepoint_plane: ControlPlane) -> AsyncIterator[api.ApiSession]:
    access = credentials.of_kubeconfig(duepoint_plane.kubeconfig)
    async with api.ApiSession(access, component="test") as session:
        yield session


def a_job(namespace: str, name: str = "report", **changes: Any) -> dict[str, Any]:
    facts = jobbuilder.SlotFacts(
        namespace=namespace,
        schedule_name=name,
        schedule_uid="6f1a2f9e-0000-4000-8000-000000000001",
        slot_us=SLOT_US,
        previous_us=None,
        trigger="Schedule",
        payload=b"{}",
        time_zone="Asia/Kathmandu",
    )
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    template = {"spec": {"suspend": True, "template": {"spec": pod}, **changes}}
    return jobbuilder.job_for(template, facts)


async def test_a_misspelt_field_is_found_by_the_dry_run(
    session: api.ApiSession, kube_namespace: str
):
    job = a_job(kube_namespace, backofLimit=3)
    verdict = await jobcreation.dry_run(session, kube_namespace, job)
    assert verdict == jobcreation.InvalidTemplate(
        "spec.jobTemplate.spec.backofLimit: is no field of a Job"
    )


async def test_a_dry_run_names_the_fields_of_the_schedule_and_no_job(
    session: api.ApiSession, kube_namespace: str
):
    job = a_job(kube_namespace, parallelism=-1)
    job["spec"]["template"]["spec"]["containers"][0].pop("image")
    verdict = await jobcreation.dry_run(session, kube_namespace, job)
    assert verdict == jobcreation.InvalidTemplate(
        "spec.jobTemplate.spec.parallelism: Invalid value: -1: must be greater than or equal to 0; "
        "spec.jobTemplate.spec.template.spec.containers[0].image: Required value"
    )
    assert job["metadata"]["name"] not in verdict.message
    assert isinstance(
        answer := await jobcreation.create(session, kube_namespace, job), jobcreation.JobRefused
    )
    assert answer.message == verdict.message


async def test_a_value_of_a_wrong_type_is_named(session: api.ApiSession, kube_namespace: str):
    verdict = await jobcreation.dry_run(
        session, kube_namespace, a_job(kube_namespace, parallelism="x")
    )
    assert verdict == jobcreation.InvalidTemplate(
        "spec.jobTemplate.spec.parallelism: is a string; write a whole number"
    )


async def test_a_wrong_variable_is_named_by_its_place_in_the_template(
    session: api.ApiSession, kube_namespace: str
):
    job = a_job(kube_namespace)
    wrong = {"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    job["spec"]["template"]["spec"]["containers"][0]["env"].append(wrong)
    verdict = await jobcreation.dry_run(session, kube_namespace, job)
    assert isinstance(verdict, jobcreation.InvalidTemplate)
    path = "spec.jobTemplate.spec.template.spec.containers[0].env[0].valueFrom"
    assert verdict.message.startswith(f"{path}: ")


async def test_an_indexed_job_has_less_room_in_its_name(
    session: api.ApiSession, kube_namespace: str
):
    indexed = {"completionMode": "Indexed", "completions": 100_000, "parallelism": 2}
    long_name = "a" * 52
    assert (
        await jobcreation.dry_run(session, kube_namespace, a_job(kube_namespace, long_name))
        == jobcreation.Valid()
    )
    verdict = await jobcreation.dry_run(
        session, kube_namespace, a_job(kube_namespace, long_name, **indexed)
    )
    assert isinstance(verdict, jobcreation.InvalidTemplate)
    assert verdict.message.startswith('metadata.name: Invalid value: "<name>-<slot>": ')


async def test_a_job_with_everything_in_it_is_accepted(
    session: api.ApiSession, kube_namespace: str
):
    job = a_job(kube_namespace, "dots.are.fine", ttlSecondsAfterFinished=0)
    made = await jobcreation.create(session, kube_namespace, job)
    assert isinstance(made, jobcreation.Created)


async def test_of_many_writers_of_a_lease_one_wins_each_round(
    session: api.ApiSession, kube_namespace: str
):
    lease = leases.KubeLease(session, kube_namespace, "l", Health())
    seen = await lease.create(leases.Lease(holder="0", duration_seconds=15, transitions=0))
    for turn in range(5):
        assert seen
        writes = [replace(seen, holder=f"{turn}-{number}") for number in range(8)]
        answers = await asyncio.gather(*map(lease.update, writes))
        winners = [answer for answer in answers if answer]
        assert len(winners) == 1
        seen = winners[0]


async def test_two_electors_on_a_real_lease_hand_over_within_two_seconds(
    session: api.ApiSession, kube_namespace: str
):
    loop = asyncio.get_running_loop()
    led: asyncio.Queue[tuple[str, int, float]] = asyncio.Queue()

    def candidate(name: str) -> asyncio.Task[None]:
        async def work(term: terms.Term) -> None:
            led.put_nowait((name, term.epoch, loop.time()))
            await asyncio.Event().wait()

        lease = leases.KubeLease(session, kube_namespace, "operator", Health())
        one = elector.Elector(lease, clock.SystemClock(), name)
        return asyncio.create_task(one.run(work))

    first = candidate("first")
    leader, began, _ = await asyncio.wait_for(led.get(), 30)
    assert leader == "first"
    second = candidate("second")
    await asyncio.sleep(0.5)  # it has looked; nothing announces that
    stopped = loop.time()
    first.cancel()
    name, epoch, at = await asyncio.wait_for(led.get(), 30)
    assert (name, epoch) == ("second", began + 1)
    assert at - stopped < 2.0
    path = f"/apis/coordination.k8s.io/v1/namespaces/{kube_namespace}/leases/operator"
    stored = msgspec.json.decode(await session.request("GET", path))
    assert stored["spec"]["leaseTransitions"] == 1
    assert stored["spec"]["leaseDurationSeconds"] == 15
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
