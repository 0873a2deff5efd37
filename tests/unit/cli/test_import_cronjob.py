"""``duepoint import cronjob``: what comes out of files, and what is said of them."""

from __future__ import annotations

import copy
import json

import pytest
import yaml

from duepoint.cli.cronjob import conversion
from duepoint.expressions import compile_expression

CRONJOB = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {
        "name": "nightly",
        "namespace": "reports",
        "labels": {"app": "reports", "on": "yes"},
        "annotations": {"team": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        "uid": "c0ffee00-0000-4000-8000-000000000000",
        "resourceVersion": "42",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {
        "schedule": "30 2 * * *",
        "timeZone": "Europe/Rome",
        "suspend": False,
        "startingDeadlineSeconds": 600,
        "concurrencyPolicy": "Allow",
        "successfulJobsHistoryLimit": 5,
        "failedJobsHistoryLimit": 2,
        "jobTemplate": {
            "metadata": {"labels": {"app": "reports"}, "annotations": {"a": "b"}},
            "spec": {
                "backoffLimit": 2,
                "ttlSecondsAfterFinished": 3600,
                "template": {
                    "metadata": {"creationTimestamp": None, "labels": {"app": "reports"}},
                    "spec": {
                        "restartPolicy": "OnFailure",
                        "containers": [
                            {
                                "name": "main",
                                "image": "busybox:1.37",
                                "command": ["sh", "-c", "date\necho 'it: is #1'\n"],
                                "env": [{"name": "N", "value": "1e3"}, {"name": "Y", "value": "y"}],
                            }
                        ],
                    },
                },
            },
        },
    },
    "status": {"lastScheduleTime": "2026-11-20T01:30:00Z"},
}


def a_cronjob(*, metadata=(), **spec):
    thing = copy.deepcopy(CRONJOB)
    thing["metadata"].update(metadata)
    thing["spec"].update(spec)
    return thing


@pytest.fixture
def imported(duepoint):
    """CronJobs -> (Schedules, everything that was said)."""

    def run(*things, options=()):
        text = "\n---\n".join(json.dumps(thing) for thing in things)
        answer = duepoint("import", "cronjob", "-f", "-", *options, given=text)
        assert answer.code == 0, answer.err
        return list(yaml.safe_load_all(answer.out)), answer.out + answer.err

    return run


def test_every_field_of_a_cronjob_comes_along(imported):
    (schedule,), _ = imported(CRONJOB)
    assert schedule["apiVersion"] == "duepoint.dev/v1alpha1"
    assert schedule["kind"] == "Schedule"
    expected = copy.deepcopy(CRONJOB["spec"])
    del expected["jobTemplate"]["spec"]["template"]["metadata"]["creationTimestamp"]
    assert schedule["spec"] == expected


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        pytest.param(a_cronjob(), "does not run on 2027-03-28", id="a night without the time"),
        pytest.param(a_cronjob(), "overlap: Both", id="a night with the time twice"),
        pytest.param(a_cronjob(timeZone=None), "zone of its controller manager", id="no zone"),
        pytest.param(a_cronjob(schedule="@every 1h"), "from its last run", id="a period"),
        pytest.param(a_cronjob(startingDeadlineSeconds=5), "may never run", id="a short deadline"),
        pytest.param(
            a_cronjob(concurrencyPolicy="Forbid"), "way is concurrencyPolicy: Queue", id="busy"
        ),
        pytest.param(a_cronjob(suspend=True), "when it is resumed", id="suspended"),
        pytest.param(a_cronjob(), "after an outage the newest missed slot", id="catching up"),
        pytest.param(
            a_cronjob(metadata={"ownerReferences": [{"name": "x"}]}),
            "metadata.ownerReferences: left out",
            id="an owner",
        ),
    ],
)
def test_what_will_differ_is_said(imported, thing, says):
    _, said = imported(thing)
    assert says in said


@pytest.mark.parametrize(
    ("text", "zone", "schedule", "time_zone"),
    [
        ("TZ=Asia/Tokyo 0 3 * * *", None, "0 3 * * *", "Asia/Tokyo"),
        ("CRON_TZ=Asia/Tokyo   @daily", None, "@daily", "Asia/Tokyo"),
        ("TZ=Asia/Tokyo 0 3 * * *", "Europe/Rome", "0 3 * * *", "Asia/Tokyo"),
        ("TZ= 0 3 * * *", None, "0 3 * * *", "Etc/UTC"),
        ("TZ=Local 0 3 * * *", None, "0 3 * * *", None),
    ],
)
def test_a_zone_inside_the_schedule_becomes_the_time_zone(
    imported, text, zone, schedule, time_zone
):
    (made,), said = imported(a_cronjob(schedule=text, timeZone=zone))
    assert made["spec"]["schedule"] == schedule
    assert made["spec"].get("timeZone") == time_zone
    assert "spec.timeZone" in said


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("*/61 * * * *", "0 * * * *"),
        ("5/100 1 * * *", "5 1 * * *"),
        ("10-20/61,30 1 * * *", "10,30 1 * * *"),
        ("0 0 */32 * *", "0 0 1 * *"),
        ("0 0 * */13 *", "0 0 * 1 *"),
        ("0 0 * * */8", "0 0 * * 0"),
        ("*-5 0 * * *", "* 0 * * *"),
        ("?-5/10 0 * * *", "*/10 0 * * *"),
        ("@every 90.5s", "@every 90s"),
        ("@every 1h0m0.9s", "@every 3600s"),
        ("@every 100ms", "@every 1s"),
        ("@every 2000000us", "@every 2s"),
        ("  0 0 * * *  ", "0 0 * * *"),
        ("0 0 * * *\n", "0 0 * * *"),
        ("0\u00a00 *\u3000* *\u2003", "0 0 * * *"),
        ("*/+61\u00a00 * * *", "0 0 * * *"),
        (",0 1,,2 +5 * *", ",0 1,,2 +5 * *"),
        ("0 9-17/2 * * mon-fri", "0 9-17/2 * * mon-fri"),
        ("@every 1h30m", "@every 1h30m"),
    ],
)
def test_an_expression_is_rewritten_to_what_a_cronjob_makes_of_it(theirs, ours):
    assert conversion.ported_times(theirs)[0] == ours
    compile_expression(ours, time_zone="Etc/UTC", identity="a/b")


@pytest.mark.parametrize("suspend", [True, False])
def test_a_cronjob_that_is_only_started_by_hand_becomes_a_schedule_that_is_only_triggered(
    imported, suspend
):
    (schedule,), said = imported(a_cronjob(schedule="0 0 31 2 *", suspend=suspend))
    assert schedule["spec"]["schedule"] == "@never"
    assert schedule["spec"]["suspend"] is True
    assert 'was "0 0 31 2 *": a date that never comes' in str(said)
    assert "refuses" not in str(said)


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (a_cronjob(schedule="61 * * * *"), "spec.schedule"),
        (a_cronjob(schedule=None), "spec"),
        (a_cronjob(schedule=5), "spec.schedule"),
        (a_cronjob(jobTemplate=None), "spec"),
        (a_cronjob(jobTemplate=[]), "spec.jobTemplate"),
        (a_cronjob(shedule="x"), "spec.shedule"),
        (a_cronjob(timeZone="Europe/Rom"), "spec.timeZone"),
        (a_cronjob(metadata={"name": "x" * 53}), "metadata.name"),
        (a_cronjob(metadata={"name": None}), "metadata.name"),
        ({**CRONJOB, "spec": []}, "spec"),
        ({**CRONJOB, "spec": None}, "spec"),
        ({**CRONJOB, "metadata": "x"}, "metadata"),
        ({**CRONJOB, "apiVersion": "batch/v2alpha1"}, "apiVersion"),
        ({"kind": "CronJob"}, "apiVersion"),
        ([1, 2], "is not a Kubernetes object"),
    ],
)
def test_a_bad_cronjob_is_named_with_its_document_and_the_good_ones_are_printed(
    duepoint, thing, says
):
    text = "\n---\n".join(json.dumps(each) for each in (CRONJOB, thing, CRONJOB))
    answer = duepoint("import", "cronjob", "-f", "-", given=text)
    assert answer.code == 2
    assert len(list(yaml.safe_load_all(answer.out))) == 2
    told = [line for line in answer.err.splitlines() if "standard input: document 2" in line]
    assert told
    assert says in told[0]
    assert "1 could not be ported, for the reasons above; 2 printed" in answer.err
