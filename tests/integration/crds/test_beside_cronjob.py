"""A Schedule is refused at apply where the same CronJob is, and taken where that is taken.

The same spec goes to the real API server as a CronJob and as a Schedule. Where the two answers
differ, the difference is on purpose and listed in docs/howto/port-a-cronjob.md.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.differential.test_robfig import is_refused_on_purpose
from tests.integration.crds import kubeapi
from tests.integration.crds.manifests import ABSENT, POD, a_job, a_schedule
from tests.support import oddtexts
from tests.unit.cli.test_validate import BAD_TEMPLATES, GOOD_TEMPLATES, MAIN, a_container, a_job_of

NAME = "beside"


def _both(api: kubeapi.KubeApi, name: str = NAME, **spec: Any) -> tuple[bool, bool]:
    """Whether the CronJob and the Schedule of this spec are taken."""
    fields = {"schedule": "0 2 * * *", "jobTemplate": a_job(), **spec}
    schedule = a_schedule(name, **fields)
    cronjob = {**schedule, "apiVersion": "batch/v1", "kind": "CronJob"}
    answers = [api.create(thing, dry_run=True) for thing in (cronjob, schedule)]
    assert all(answer.code in (201, 400, 422) for answer in answers), [a.body for a in answers]
    return answers[0].ok, answers[1].ok


SAME: dict[str, list[Any]] = {
    "concurrencyPolicy": ["", None, ABSENT, "Allow", "Forbid", "Replace", "forbid", 1],
    "suspend": [None, ABSENT, True, False, "true", 0],
    "startingDeadlineSeconds": [None, ABSENT, -1, 0, 1, 2**63 - 1, 2**63, "5", 1.5],
    "successfulJobsHistoryLimit": [None, ABSENT, -1, 0, 10_001, 2**31 - 1, 2**31, "3"],
    "failedJobsHistoryLimit": [None, ABSENT, -1, 0, 10_001, 2**31 - 1, 2**31, "3"],
    "timeZone": [None, ABSENT, "", "Local", "Etc/UTC", "UTC", "Europe/Rome", "EST5EDT",
                 "Europe/Atlantis", " UTC", "+01:00", "../etc/passwd", 5],
    "jobTemplate": [
        ABSENT,
        None,
        {},
        *GOOD_TEMPLATES,
        {**a_job(), "metadata": None},
        {**a_job(), "metadata": {"labels": {"a": "b"}, "name": "x", "creationTimestamp": None}},
        a_job_of(completionMode="Indexed"),
        a_job_of(completionMode="Indexed", completions=3, backoffLimitPerIndex=1),
        a_job_of(backoffLimitPerIndex=1),
        a_job_of(activeDeadlineSeconds=-1),
        a_job_of(ttlSecondsAfterFinished=0, backoffLimit=0, parallelism=0, completions=0),
        a_job(activeDeadlineSeconds=0),
        a_job(restartPolicy="Always"),
        a_job(restartPolicy=ABSENT),
        a_job(securityContext={"runAsUser": -1}),
        a_job(terminationGracePeriodSeconds=-5, priority=-5),
        a_container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        a_job(imagePullSecrets=[{}]),
        a_job(imagePullSecrets=[{"name": ""}, {"name": None}]),
        a_job(imagePullSecrets=[{"name": "a"}, {"name": "a"}]),
        a_job(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}] * 2),
        a_job(tolerations=[{"key": "a", "effect": "NoExecute", "tolerationSeconds": -1}]),
        a_container(ports=[{"containerPort": 0}]),
        a_container(ports=[{"containerPort": 65_536}]),
        a_container(ports=[{"containerPort": 80, "hostPort": 0}]),
        a_container(livenessProbe={"exec": {"command": ["a"]}, "periodSeconds": -1}),
        a_container(livenessProbe={"exec": {"command": ["a"]}, "initialDelaySeconds": 0}),
        a_container(name="a" * 64),
        a_container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        a_container(resources={"limits": {"cpu": "1e3", "memory": ".5Gi"}}),
        a_job(volumes=[{"name": "v", "emptyDir": {"sizeLimit": "-1"}}]),
        a_job(volumes=[{"name": "v", "secret": {"secretName": "s", "defaultMode": 0o777}}]),
        a_job(volumes=[{"name": "v", "secret": {"secretName": "s", "defaultMode": 0o1000}}]),
        {"spec": {"template": {"spec": {**POD, "initContainers": [{"name": "first"}]}}}},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(field, value, id=f"{field}-{number}")
        for field, values in SAME.items()
        for number, value in enumerate(values)
    ],
)
def test_a_value_is_taken_or_refused_by_both(api: kubeapi.KubeApi, field: str, value: Any) -> None:
    by_cronjob, by_us = _both(api, **{field: value})
    assert by_us == by_cronjob


@pytest.mark.parametrize("name", ["a" * 52, "a" * 53, "a.b", "A", "a_b", "-a", "1"])
def test_a_name_is_taken_or_refused_by_both(api: kubeapi.KubeApi, name: str) -> None:
    by_cronjob, by_us = _both(api, name)
    assert by_us == by_cronjob


#: Refused of a CronJob, and of the Schedule only by its dry run: comparing fields has no bound.
LATER = (
    "volumeMounts",
    "resources.requests",
    "is there twice",
    "podFailurePolicy",
    "is not a qualified name",
)
#: Taken of a CronJob too, whose Jobs cannot be created then.
UNSEEN = ("is not a valid label value",)
#: What a strict API server does not find in a Schedule, where newer fields must pass.
UNKNOWN = ("is not a field of a Job", "did you mean")


@pytest.mark.parametrize(("template", "path", "says"), BAD_TEMPLATES)
def test_a_bad_template_is_refused_by_both_or_found_by_the_dry_run(
    api: kubeapi.KubeApi, template: dict[str, Any], path: str, says: str
) -> None:
    by_cronjob, by_us = _both(api, jobTemplate=template)
    assert by_cronjob == any(word in says for word in UNSEEN)
    is_later = any(word in f"{path} {says}" for word in (*LATER, *UNSEEN, *UNKNOWN))
    assert by_us == is_later


@pytest.mark.timeout(300)
def test_a_text_that_a_cronjob_takes_is_taken_or_refused_on_purpose(api: kubeapi.KubeApi) -> None:
    texts = list(oddtexts.five_field_texts(Random("beside"), 300))
    texts += [
        "",
        " ",
        "@daily",
        "@every 1h",
        "@hourly",
        "TZ=UTC 0 0 * * *",
        "* * * *",
        "0 0 31 2 *",
    ]
    by_us = {
        text: is_ours
        for text in texts
        for is_cronjobs, is_ours in [_both(api, schedule=text)]
        if is_cronjobs
    }
    assert set(by_us.values()) == {True, False}
    assert [text for text, is_ours in by_us.items() if is_ours == is_refused_on_purpose(text)] == []


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"schedule": "*/61 * * * *"}, id="a step larger than its field"),
        pytest.param({"schedule": "*-5 * * * *"}, id="a range that begins with a star"),
        pytest.param({"schedule": ", * * * *"}, id="a list without an item"),
        pytest.param({"schedule": "0\u00a02 * * *"}, id="a no-break space"),
        pytest.param({"schedule": "0 2 * * *" + " " * 192}, id="201 characters"),
        pytest.param({"schedule": "@every -5m"}, id="a negative period"),
        pytest.param({"schedule": "@every 5us"}, id="a period of microseconds"),
    ],
)
def test_what_a_cronjob_takes_and_a_schedule_does_not(
    api: kubeapi.KubeApi, spec: dict[str, Any]
) -> None:
    assert _both(api, **spec) == (True, False)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"schedule": "0 0 * * 7"}, id="seven is Sunday"),
        pytest.param({"schedule": "0 0 L * *"}, id="the last day"),
        pytest.param({"schedule": "H * * * *"}, id="H"),
        pytest.param({"schedule": "*/10 * * * * *"}, id="seconds"),
        pytest.param({"schedule": "@daily\n"}, id="a line end behind a macro"),
        pytest.param({"schedule": "@at 2030-01-01T00:00:00Z"}, id="once"),
        pytest.param({"concurrencyPolicy": "Queue"}, id="Queue"),
        pytest.param({"jobTemplate": a_job(warpFactor=9)}, id="a field of a newer Kubernetes"),
        pytest.param(
            {"jobTemplate": a_job(containers=[MAIN, {**MAIN, "name": "b", "tty": None}])}, id="null"
        ),
    ],
)
def test_what_a_schedule_takes(api: kubeapi.KubeApi, spec: dict[str, Any]) -> None:
    assert _both(api, **spec)[1]
