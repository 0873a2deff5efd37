"""The Job that a slot creates, and what the answers of the API server turn into."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from duepoint import errors as base
from duepoint.kube import errors, jobbuilder, jobs, port, schedules
from duepoint.schedules.conditions import Reason
from tests.fakes.fakekubernetes import FakeKubernetes

SLOT_US = 1_795_311_000_000_000  # 2026-11-22T01:30:00Z
PAYLOAD = b'{"report":"daily"}'
FACTS = jobbuilder.SlotFacts(
    namespace="reports",
    name="nightly-report",
    uid="uid-1",
    slot_us=SLOT_US,
    previous_us=SLOT_US - 86_400_000_000,
    trigger="Schedule",
    time_zone="Europe/Rome",
)


def a_template(**changes: Any) -> dict[str, Any]:
    template: dict[str, Any] = {
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "busybox"}],
                }
            }
        }
    }
    template["spec"] |= changes
    return template


def containers_of(job: dict[str, Any], field: str = "containers") -> list[dict[str, Any]]:
    return job["spec"]["template"]["spec"][field]


def test_the_job_belongs_to_the_schedule_and_tells_its_slot():
    job = jobbuilder.job_for(a_template(), FACTS, PAYLOAD)
    assert job["metadata"] == {
        "name": "nightly-report-1795311000",
        "namespace": "reports",
        "labels": {"duepoint.dev/schedule": "nightly-report"},
        "annotations": {
            "duepoint.dev/scheduled-time": "2026-11-22T01:30:00Z",
            "duepoint.dev/trigger": "Schedule",
            "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-11-22T02:30:00+01:00",
        },
        "ownerReferences": [
            {
                "apiVersion": "duepoint.dev/v1alpha1",
                "kind": "Schedule",
                "name": "nightly-report",
                "uid": "uid-1",
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }


def test_of_the_templates_metadata_only_labels_and_annotations_count():
    template = a_template() | {
        "metadata": {
            "name": "other",
            "namespace": "kube-system",
            "generateName": "x-",
            "creationTimestamp": None,
            "finalizers": ["a/b"],
            "ownerReferences": [{"uid": "z"}],
            "labels": {"team": "a", "duepoint.dev/schedule": "forged"},
            "annotations": {"note": "b", "duepoint.dev/scheduled-time": "forged"},
        }
    }
    metadata = jobbuilder.job_for(template, FACTS)["metadata"]
    assert set(metadata) == {"name", "namespace", "labels", "annotations", "ownerReferences"}
    assert metadata["namespace"] == "reports"
    assert metadata["labels"] == {"team": "a", "duepoint.dev/schedule": "nightly-report"}
    assert metadata["annotations"]["note"] == "b"
    assert metadata["annotations"]["duepoint.dev/scheduled-time"] == "2026-11-22T01:30:00Z"


def test_the_slots_facts_stand_once_on_the_pod_and_each_container_refers_to_them():
    template = a_template()
    template["spec"]["template"]["spec"]["initContainers"] = [{"name": "first"}]
    template["spec"]["template"]["metadata"] = {"annotations": {"mine": "kept"}}
    job = jobbuilder.job_for(template, FACTS, PAYLOAD)
    assert job["spec"]["template"]["metadata"]["annotations"] == {
        "mine": "kept",
        "duepoint.dev/scheduled-time": "2026-11-22T01:30:00Z",
        "duepoint.dev/previous-time": "2026-11-21T01:30:00Z",
        "duepoint.dev/trigger": "Schedule",
        "duepoint.dev/payload": '{"report":"daily"}',
    }
    for field in ("containers", "initContainers"):
        (container,) = containers_of(job, field)
        assert {
            entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in container["env"]
        } == {
            "DUEPOINT_SCHEDULED_TIME": "metadata.annotations['duepoint.dev/scheduled-time']",
            "DUEPOINT_PREVIOUS_TIME": "metadata.annotations['duepoint.dev/previous-time']",
            "DUEPOINT_TRIGGER": "metadata.annotations['duepoint.dev/trigger']",
            "DUEPOINT_PAYLOAD": "metadata.annotations['duepoint.dev/payload']",
        }


def test_a_variable_that_the_container_defines_itself_is_left_alone():
    template = a_template()
    own = [
        {"name": "DUEPOINT_PAYLOAD", "value": "mine"},
        {"name": "A", "value": "$(DUEPOINT_TRIGGER)"},
    ]
    template["spec"]["template"]["spec"]["containers"][0]["env"] = own
    env = containers_of(jobbuilder.job_for(template, FACTS))[0]["env"]
    assert [entry["name"] for entry in env] == [
        "DUEPOINT_SCHEDULED_TIME",
        "DUEPOINT_PREVIOUS_TIME",
        "DUEPOINT_TRIGGER",
        "DUEPOINT_PAYLOAD",
        "A",
    ]
    assert env[3] == own[0]


def test_what_an_author_writes_under_our_keys_is_not_handed_on():
    junk = dict.fromkeys(
        ("scheduled-time", "previous-time", "trigger", "payload"), "junk"
    )  # without a slot before, or a payload, there is nothing of ours in its place
    annotations = {f"duepoint.dev/{key}": text for key, text in junk.items()}
    annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"] = "junk"
    template = a_template()
    template["metadata"] = {"annotations": annotations | {"own": "kept"}}
    template["spec"]["template"]["metadata"] = {"annotations": annotations | {"own": "kept"}}
    job = jobbuilder.job_for(template, replace(FACTS, previous_us=None))
    for found in (job["metadata"], job["spec"]["template"]["metadata"]):
        assert "junk" not in found["annotations"].values()
        assert found["annotations"]["own"] == "kept"


@pytest.mark.parametrize(
    ("written", "used"), [(0, 600), (599, 600), (600, 600), (3600, 3600), (None, None)]
)
def test_a_finished_job_is_kept_for_ten_minutes_at_least(written: int | None, used: int | None):
    job = jobbuilder.job_for(a_template(ttlSecondsAfterFinished=written), FACTS)
    assert job["spec"]["ttlSecondsAfterFinished"] == used


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"metadata": None, "spec": None},
        {"spec": {"template": None}},
        {"spec": {"template": {"metadata": None, "spec": {"containers": None}}}},
        {"spec": {"template": {"spec": {"containers": ["x", None, {"env": "y"}]}}}},
        {"spec": {"template": {"spec": {"containers": [{"env": None}, {"env": [None]}]}}}},
    ],
)
def test_a_template_of_any_shape_becomes_a_job_for_the_api_server_to_judge(template: Any):
    msgspec.json.encode(jobbuilder.job_for(template, FACTS))


def test_annotations_beyond_what_an_object_may_carry_are_refused_with_their_size():
    template = a_template()
    template["spec"]["template"]["metadata"] = {"annotations": {"big": "x" * (256 * 1024)}}
    with pytest.raises(base.InvalidSpec) as refused:
        jobbuilder.job_for(template, FACTS)
    (error,) = refused.value.errors
    assert error.reason == Reason.INVALID_JOB_TEMPLATE
    assert error.path == "spec.jobTemplate.spec.template.metadata.annotations"


# -- creating ---------------------------------------------------------------------------------

JOB = jobbuilder.job_for(a_template(), FACTS)


@pytest.mark.parametrize(
    ("error", "reason", "may_heal"),
    [
        (errors.Invalid("bad", status=422), Reason.INVALID_JOB_TEMPLATE, False),
        (errors.Forbidden("no"), Reason.FORBIDDEN, True),
        (errors.Forbidden("no", is_about_rights=True), Reason.FORBIDDEN, True),
        (errors.NotFound("no namespace", status=404), Reason.DELETED, False),
    ],
    ids=lambda value: getattr(value, "cause", None) or type(value).__name__,
)
async def test_each_refusal_has_its_reason(error: errors.ApiError, reason: Reason, may_heal: bool):
    kubernetes = FakeKubernetes()
    kubernetes.fail_next(error)
    refused = await jobs.create(kubernetes, "reports", JOB)
    assert isinstance(refused, jobs.JobRefused)
    assert (refused.reason, refused.may_heal) == (reason, may_heal)


# -- reading ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, None),
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, None),
        ({"conditions": [{"type": "Failed", "status": "False"}]}, None),
        (
            {
                "conditions": [
                    {"type": "SuccessCriteriaMet", "status": "True"},
                    {"type": "Complete", "status": "True"},
                ],
                "completionTime": "2026-11-22T01:31:00Z",
            },
            (True, SLOT_US + 60_000_000),
        ),
        (
            {
                "conditions": [
                    {
                        "type": "Failed",
                        "status": "True",
                        "reason": "BackoffLimitExceeded",
                        "lastTransitionTime": "2026-11-22T01:32:00Z",
                    }
                ]
            },
            (False, SLOT_US + 120_000_000),
        ),
    ],
    ids=["no status", "suspended", "not failed", "complete", "failed"],
)
def test_the_end_of_a_job_is_read_off_its_conditions(status: Any, expected: Any):
    job = msgspec.convert({"metadata": {}, "status": status}, jobs.Job)
    finished = jobs.finished(job)
    assert (finished and (finished.succeeded, finished.at_us)) == expected


OWNER = jobs.JobOwner("reports", "nightly", "a")


def owned(
    *, namespace: str = "reports", slot: str = "2026-11-22T01:30:00Z", **reference: Any
) -> jobs.Job:
    told = {
        "uid": "a", "name": "nightly", "kind": schedules.KIND,
        "api_version": schedules.API_VERSION, "controller": True, **reference,
    }  # fmt: skip
    return jobs.Job(
        metadata=port.Metadata(
            namespace=namespace,
            owner_references=(port.OwnerReference(**told),),
            annotations={jobbuilder.SCHEDULED_TIME: slot} if slot else None,
        )
    )


@pytest.mark.parametrize(
    "forged",
    [
        {"namespace": "elsewhere"},
        {"name": "hourly"},
        {"uid": "b"},
        {"kind": "CronJob"},
        {"api_version": "batch/v1"},
        {"controller": None},
        {"slot": ""},
        {"slot": "at noon"},
    ],
    ids=["namespace", "name", "uid", "kind", "api", "no controller", "no slot", "junk slot"],
)
def test_a_job_is_a_run_of_the_schedule_of_its_namespace_with_its_owners_name_and_uid(forged: Any):
    assert jobs.is_run_of(owned(), OWNER)
    assert not jobs.is_run_of(owned(**forged), OWNER)
