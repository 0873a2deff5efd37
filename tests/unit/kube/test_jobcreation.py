"""An API server's words about a Job as words about the Schedule that the Job is made from.

The answers are those of kube-apiserver v1.36, word by word; tests/integration/kube asks a real one.
"""

from __future__ import annotations

import msgspec
import pytest

from duepoint.kube import errors, jobs

JOB = "nightly-1798135200"
NO_ROOM = f'Invalid value: "{JOB}": will not able to create pod with invalid DNS label: {JOB}-99999'
ATTEMPT = "POST /apis/batch/v1/namespaces/reports/jobs"


def refusal(message, *causes, code=422):
    status = {
        "message": message,
        "reason": "Invalid",
        "code": code,
        "details": {"causes": [{"field": field, "message": says} for field, says in causes]},
    }
    return errors.from_answer(ATTEMPT, code, {}, msgspec.json.encode(status))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        pytest.param(
            refusal(
                f'Job.batch "{JOB}" is invalid: spec.template.spec.containers[0].image: '
                "Required value",
                ("spec.template.spec.containers[0].image", "Required value"),
            ),
            "spec.jobTemplate.spec.template.spec.containers[0].image: Required value",
            id="a field",
        ),
        pytest.param(
            refusal(
                f'Job.batch "{JOB}" is invalid: [spec.parallelism: Invalid value: -1: must be '
                'greater than or equal to 0, metadata.labels: Invalid value: "a b": no]',
                ("spec.parallelism", "Invalid value: -1: must be greater than or equal to 0"),
                ("metadata.labels", 'Invalid value: "a b": no'),
            ),
            "spec.jobTemplate.spec.parallelism: Invalid value: -1: must be greater than or equal "
            'to 0; spec.jobTemplate.metadata.labels: Invalid value: "a b": no',
            id="several fields",
        ),
        pytest.param(
            refusal(
                f'Job.batch "{JOB}" is invalid: metadata.name: {NO_ROOM}',
                ("metadata.name", NO_ROOM),
            ),
            'metadata.name: Invalid value: "<name>-<slot>": will not able to create pod with '
            "invalid DNS label: <name>-<slot>-99999; write a shorter name",
            id="a name with too little room",
        ),
        pytest.param(
            refusal(
                'Job in version "v1" cannot be handled as a Job: strict decoding error: unknown '
                'field "spec.template.spec.warp", duplicate field "spec.backofLimit"',
                code=400,
            ),
            "spec.jobTemplate.spec.template.spec.warp: is not a field of a Job; "
            "spec.jobTemplate.spec.backofLimit: is there twice",
            id="unknown fields",
        ),
        pytest.param(
            refusal(
                'Job in version "v1" cannot be handled as a Job: json: cannot unmarshal string '
                "into Go struct field JobSpec.spec.parallelism of type int32",
                code=400,
            ),
            "spec.jobTemplate.spec.parallelism: is a string; write a whole number",
            id="a wrong type",
        ),
        pytest.param(
            refusal(
                'Job in version "v1" cannot be handled as a Job: quantities must match', code=400
            ),
            "spec.jobTemplate: quantities must match",
            id="no field at all",
        ),
    ],
)
def test_a_refusal_names_fields_of_the_schedule_and_no_job(error, says):
    assert jobs.invalid_text(error, JOB) == says


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            f'jobs.batch "{JOB}" is forbidden: exceeded quota: few, requested: count/jobs.batch=1',
            "exceeded quota: few, requested: count/jobs.batch=1",
        ),
        (
            'jobs.batch is forbidden: User "x" cannot create resource "jobs"',
            'jobs.batch is forbidden: User "x" cannot create resource "jobs"',
        ),
        (
            f'admission webhook "a.b" denied the request: {JOB} is too much',
            'admission webhook "a.b" denied the request: <name>-<slot> is too much',
        ),
    ],
)
def test_what_keeps_a_job_away_is_said_without_the_path_and_the_made_up_name(message, says):
    assert jobs.refusal_text(refusal(message, code=403), JOB) == says


def test_a_refusal_of_a_thousand_fields_has_an_end():
    causes = [(f"spec.field{number}", "Required value") for number in range(1_000)]
    assert len(jobs.invalid_text(refusal("many", *causes), JOB)) == errors.MESSAGE_LIMIT
