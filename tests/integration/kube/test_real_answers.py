"""What only a real API server says: strict decoding, quirks of names, the past forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from duepoint.kube import api, credentials, jobbuilder, jobs, pods, port
from duepoint.schedules.conditions import Reason
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
        name=name,
        uid="6f1a2f9e-0000-4000-8000-000000000001",
        slot_us=SLOT_US,
        previous_us=None,
        trigger="Schedule",
        time_zone="Asia/Kathmandu",
    )
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    template = {"spec": {"suspend": True, "template": {"spec": pod}, **changes}}
    return jobbuilder.job_for(template, facts, b"{}")


async def test_a_misspelt_field_is_found_by_the_dry_run(
    session: api.ApiSession, kube_namespace: str
):
    job = a_job(kube_namespace, backofLimit=3)
    verdict = await jobs.dry_run(session, kube_namespace, job)
    assert verdict == jobs.JobRefused(
        Reason.INVALID_JOB_TEMPLATE, "spec.jobTemplate.spec.backofLimit: is not a field of a Job"
    )


async def test_a_dry_run_names_the_fields_of_the_schedule_and_no_job(
    session: api.ApiSession, kube_namespace: str
):
    job = a_job(kube_namespace, parallelism=-1)
    job["spec"]["template"]["spec"]["containers"][0].pop("image")
    verdict = await jobs.dry_run(session, kube_namespace, job)
    assert verdict == jobs.JobRefused(
        Reason.INVALID_JOB_TEMPLATE,
        "spec.jobTemplate.spec.parallelism: Invalid value: -1: must be greater than or equal to 0; "
        "spec.jobTemplate.spec.template.spec.containers[0].image: Required value",
    )
    assert job["metadata"]["name"] not in verdict.message
    assert isinstance(answer := await jobs.create(session, kube_namespace, job), jobs.JobRefused)
    assert answer.message == verdict.message


async def test_an_indexed_job_has_less_room_in_its_name(
    session: api.ApiSession, kube_namespace: str
):
    indexed = {"completionMode": "Indexed", "completions": 100_000, "parallelism": 2}
    long_name = "a" * 52
    assert await jobs.dry_run(session, kube_namespace, a_job(kube_namespace, long_name)) is None
    verdict = await jobs.dry_run(
        session, kube_namespace, a_job(kube_namespace, long_name, **indexed)
    )
    assert verdict.reason is Reason.INVALID_JOB_TEMPLATE
    assert verdict.message.startswith('metadata.name: Invalid value: "<name>-<slot>": ')


async def test_the_end_of_a_pod_is_read_as_of_its_job_though_the_pod_is_gone(
    session: api.ApiSession, kube_namespace: str
):
    paths = port.path("/api/v1", kube_namespace, "pods")
    labels = {"batch.kubernetes.io/job-name": "drained"}
    containers = [{"name": "main", "image": "busybox"}]
    pod = {"metadata": {"name": "one", "labels": labels}, "spec": {"containers": containers}}
    await session.request("POST", paths, pod)
    why = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    answer = await session.request(
        "PATCH",
        f"{paths}/one/status",
        {"status": {"phase": "Failed", "conditions": [why]}},
        content_type="application/merge-patch+json",
    )
    then = msgspec.json.decode(answer, type=pods.EndedPod).metadata.resource_version
    gone = await session.request("DELETE", f"{paths}/one", {"gracePeriodSeconds": 0})
    now = msgspec.json.decode(gone, type=pods.EndedPod).metadata.resource_version

    assert await pods.of_job(session, kube_namespace, "drained", then) == "EvictionByEvictionAPI"
    assert await pods.of_job(session, kube_namespace, "drained", now) == ""
