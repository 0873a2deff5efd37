"""Jobs on a real API server: made once, and refused for reasons that are told apart."""

from __future__ import annotations

import asyncio

import pytest

from duepoint import clock
from duepoint.kube import api, credentials, jobs
from duepoint.runs import outcome
from duepoint.schedules.conditions import Reason
from duepoint.schedules.sets import identity
from duepoint.targets.job import target as jobtarget
from tests.integration.crds import conftest as crds_of_ours
from tests.integration.crds import kubeapi
from tests.support import firings

NAME = f"report-{firings.SLOT_US // 1_000_000}"


@pytest.fixture
async def session(control_plane):
    access = credentials.of_kubeconfig(control_plane.kubeconfig)
    async with api.ApiSession(access, component="worker") as opened:
        yield opened


@pytest.fixture(scope="session")
def crds(control_plane):
    """Our CRDs are there: a Job whose owner is of no known kind would be judged otherwise."""
    client = kubeapi.KubeApi(control_plane.kubeconfig)
    for path in crds_of_ours.CRDS:
        crds_of_ours.install(client, crds_of_ours.definition(path))
    client.close()


@pytest.fixture
def schedules(crds, admin, kube_namespace):
    """Uids of two Schedules: without its owner, a Job would be collected under the test."""
    there = f"/apis/duepoint.dev/v1alpha1/namespaces/{kube_namespace}/schedules"
    spec = {"schedule": "@daily", "suspend": True, "jobTemplate": firings.TEMPLATE}
    made = [
        admin.post(
            there,
            {
                "apiVersion": "duepoint.dev/v1alpha1",
                "kind": "Schedule",
                "metadata": {"name": name},
                "spec": spec,
            },
        )
        for name in ("report", "other")
    ]
    return [one["metadata"]["uid"] for one in made]


@pytest.fixture
def fire(session, kube_namespace, schedules):
    async def one(action=None, **changes):
        changes = {"namespace": kube_namespace, "uid": schedules[0], **changes}
        firing = firings.a_firing(action or firings.a_job(), **changes)
        return await jobtarget.JobTarget(session, clock.SystemClock()).fire(firing)

    return one


@pytest.fixture
def admin(control_plane):
    return control_plane.admin()


def path(namespace, name=NAME):
    return jobs.path(namespace, name)


async def test_a_slot_makes_its_job(fire, admin, kube_namespace):
    given = await fire(payload={"a": 1}, time_zone="Asia/Kathmandu")
    assert isinstance(given, outcome.Delivered)
    assert given.job_name == NAME
    made = await asyncio.to_thread(admin.get, path(kube_namespace))
    annotations = made["metadata"]["annotations"]
    assert annotations["duepoint.dev/scheduled-time"] == "2026-03-01T12:00:00Z"
    assert (
        annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"]
        == "2026-03-01T17:45:00+05:45"
    )
    assert made["spec"]["template"]["metadata"]["annotations"]["duepoint.dev/payload"] == '{"a":1}'


async def test_workers_that_fire_one_slot_at_once_make_one_job(fire, admin, kube_namespace):
    given = await asyncio.gather(*(fire(attempt=number) for number in range(1, 9)))
    assert {type(one) for one in given} == {outcome.Delivered}
    listed = await asyncio.to_thread(admin.get, jobs.collection(kube_namespace))
    assert [one["metadata"]["name"] for one in listed["items"]] == [NAME]


async def test_the_job_of_a_member_is_found_by_an_attempt_that_comes_again(
    crds, fire, admin, kube_namespace
):
    """The answer to the first request may have been lost."""
    there = f"/apis/duepoint.dev/v1alpha1/namespaces/{kube_namespace}/schedulesets"
    body = {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "ScheduleSet",
        "metadata": {"name": "reminders"},
        "spec": {
            "suspend": True,
            "jobTemplate": {"spec": firings.TEMPLATE["spec"] | {"ttlSecondsAfterFinished": 3600}},
        },
    }
    made = await asyncio.to_thread(admin.post, there, body)
    owner = identity.SetIdentity(made["metadata"]["uid"], kube_namespace, "reminders")
    given = [await fire(owner=owner, attempt=number) for number in (1, 2)]
    assert {type(one) for one in given} == {outcome.Delivered}
    assert given[0].job_name == given[1].job_name


async def test_another_owners_job_of_that_name_is_a_conflict(fire, admin, kube_namespace):
    foreign = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME},
        "spec": firings.TEMPLATE["spec"],
    }
    before = await asyncio.to_thread(admin.post, jobs.collection(kube_namespace), foreign)
    given = await fire()
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.NAME_CONFLICT
    after = await asyncio.to_thread(admin.get, path(kube_namespace))
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert "ownerReferences" not in after["metadata"]


async def test_the_job_of_a_former_schedule_of_that_name_is_a_conflict(fire):
    await fire()
    given = await fire(uid="0c9e2c6e-0000-4000-8000-000000000000")
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.NAME_CONFLICT


async def test_a_job_that_is_being_deleted_counts_as_the_run_of_its_slot(
    fire, admin, kube_namespace
):
    await fire()
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    merge = "application/merge-patch+json"
    admin.request("PATCH", path(kube_namespace), hold, merge)
    admin.delete(path(kube_namespace))
    assert admin.get(path(kube_namespace))["metadata"]["deletionTimestamp"]
    given = await fire()
    assert isinstance(given, outcome.Delivered)
    assert given.job_name == NAME
    admin.request("PATCH", path(kube_namespace), {"metadata": {"finalizers": None}}, merge)


async def test_a_full_quota_is_retried(fire, admin, kube_namespace):
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    there = f"/api/v1/namespaces/{kube_namespace}/resourcequotas"
    await asyncio.to_thread(admin.post, there, quota)
    given = await fire()
    while isinstance(given, outcome.Delivered):  # the quota controller has not counted yet
        given = await fire(slot_us=firings.SLOT_US + 1_000_000)
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.QUOTA_EXCEEDED
    assert "quota" in given.message


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"template": {"spec": {}}}, id="no containers"),
        pytest.param(
            {"template": {"spec": {**firings.TEMPLATE["spec"]["template"]["spec"],
                                   "restartPolicy": "Always"}}},
            id="restart always",
        ),
        pytest.param({**firings.TEMPLATE["spec"], "parallelism": "x"}, id="wrong type"),
    ],
)  # fmt: skip
async def test_a_template_that_the_server_refuses_is_not_repeated(fire, spec):
    given = await fire(firings.a_job({"spec": spec}))
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.INVALID_JOB_TEMPLATE
    assert given.message


async def test_a_namespace_that_does_not_exist_is_the_end(fire):
    given = await fire(namespace="never-made")
    assert isinstance(given, outcome.Rejected)
    assert given.reason is Reason.NAMESPACE_TERMINATING


async def test_missing_rights_are_retried(control_plane, kube_namespace, tmp_path):
    config = control_plane.service_account_kubeconfig(kube_namespace, "nobody", tmp_path)
    async with api.ApiSession(credentials.of_kubeconfig(config), component="worker") as powerless:
        firing = firings.a_firing(firings.a_job(), namespace=kube_namespace)
        given = await jobtarget.JobTarget(powerless, clock.SystemClock()).fire(firing)
    assert isinstance(given, outcome.Retry)
    assert given.reason is Reason.FORBIDDEN
    assert "nobody" in given.message
