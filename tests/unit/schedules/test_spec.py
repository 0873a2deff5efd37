"""From the text of a spec to a rule and an action, or to every error with its field."""

from __future__ import annotations

import json

import pytest

from duepoint import errors
from duepoint.expressions.expression import LAST_US
from duepoint.schedules import actions
from tests.support.builders import JOB_TEMPLATE, a_spec

JOB = {"jobTemplate": JOB_TEMPLATE}


def refused(**fields) -> list[tuple[str, str, str]]:
    with pytest.raises(errors.InvalidSpec) as caught:
        a_spec(**fields)
    return [(error.reason, error.path, error.message) for error in caught.value.errors]


def test_unset_fields_have_the_documented_values():
    spec = a_spec()
    assert spec.rule.timing.time_zone == "Etc/UTC"
    assert spec.rule.policy.catch_up_policy == "Latest"
    assert spec.rule.policy.catch_up_limit == 100
    assert spec.rule.policy.starting_deadline_seconds is None
    webhook = spec.action.target
    assert (webhook.method, webhook.timeout_seconds, webhook.success) == ("POST", 30, ("2xx",))
    assert webhook.retry == actions.RetryRule()


def test_an_empty_concurrency_policy_is_the_default_as_for_a_cronjob():
    assert a_spec(concurrencyPolicy="").rule == a_spec().rule


def test_the_longest_deadline_of_a_cronjob_is_one_that_every_script_can_count_with():
    policy = a_spec(startingDeadlineSeconds=2**63 - 1).rule.policy
    assert policy.deadline_us == LAST_US // 1_000_000 * 1_000_000
    assert LAST_US + policy.deadline_us < 2**53


def test_white_space_around_a_schedule_is_no_part_of_its_timing():
    block = a_spec(schedule="30 2 * * *\n").rule.timing
    assert block == a_spec(schedule="30 2 * * *").rule.timing


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"manualSelector": True}, ["manualSelector"]),
        ({"selector": {"matchLabels": {"a": "b"}}}, ["selector"]),
        (
            {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}},
            ["manualSelector", "selector"],
        ),
        ({"manualSelector": False, "selector": None}, []),
    ],
)
def test_a_selector_of_ones_own_is_refused_though_an_api_server_takes_one_that_matches(
    fields, paths
):
    template = {"spec": {**JOB_TEMPLATE["spec"], **fields}}
    if not paths:
        assert a_spec(jobTemplate=template)
        return
    found = refused(jobTemplate=template)
    assert [path for _, path, _ in found] == [f"spec.jobTemplate.spec.{path}" for path in paths]
    assert {reason for reason, _, _ in found} == {"InvalidJobTemplate"}


def test_null_means_absent_everywhere():
    explicit = a_spec(
        timeZone=None,
        dst=None,
        jitter=None,
        startTime=None,
        suspend=None,
        catchUpPolicy=None,
        catchUpLimit=None,
        concurrencyPolicy=None,
        payload=None,
        stream=None,
        jobTemplate=None,
        webhook={"url": "https://hooks.example.com/x", "headers": None, "retry": None},
        startingDeadlineSeconds=None,
    )
    assert explicit.rule == a_spec().rule
    assert explicit.action.target == a_spec().action.target


@pytest.mark.parametrize(
    ("fields", "reason", "path", "words"),
    [
        ({"schedule": "61 * * * *"}, "InvalidSpec", "spec.schedule", "61"),
        ({"schedule": "0 0 31 2 *"}, "InvalidSpec", "spec.schedule", ""),
        (
            {"schedules": ["0 1 * * *", "0 25 * * *"]},
            "InvalidSpec",
            "spec.schedules[1]",
            "25",
        ),
        ({"timeZone": "Mars/Olympus"}, "InvalidSpec", "spec.timeZone", "Mars/Olympus"),
        ({"payload": "x" * 70_000}, "InvalidSpec", "spec.payload", "65536"),
        ({"schedule": "@every 0s"}, "InvalidSpec", "spec.schedule", ""),
        (
            {"schedule": "@every 1500ms", **JOB},
            "InvalidSpec",
            "spec.schedule",
            "whole number of seconds",
        ),
        (
            {"webhook": {"url": "https://user:pw@a/"}},
            "InvalidSpec",
            "spec.webhook.url",
            "write a user and password into webhook.auth",
        ),
        (
            {"webhook": {"url": "https://a", "headers": [{"name": "x", "value": "a\r\nb"}]}},
            "InvalidSpec",
            "spec.webhook.headers[0].value",
            "in one line",
        ),
        ({"maxRuns": "three"}, "InvalidSpec", "spec.maxRuns", "a whole number"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("spec") else "",
)
def test_a_wrong_field_is_named_with_what_to_write(fields, reason, path, words):
    found = refused(**fields)
    assert found[0][:2] == (reason, path)
    assert words in found[0][2]


def test_a_one_shot_in_the_past_is_accepted_because_it_is_complete_not_wrong():
    spec = a_spec(schedule="@at 2020-01-01T00:00:00Z")
    assert spec.rule.timing.schedules == ("@at 2020-01-01T00:00:00Z",)


def test_an_action_comes_back_from_its_blob_with_the_payload_byte_for_byte():
    spec = a_spec(payload={"b": 1.0, "a": [None, "é"]})
    again = actions.decode(actions.encode(spec.action))
    assert again.target == spec.action.target
    assert json.loads(bytes(again.payload)) == {"b": 1.0, "a": [None, "é"]}
    assert actions.encode(again) == actions.encode(spec.action)


def test_the_target_is_described_by_scheme_and_host_alone():
    spec = a_spec(webhook={"url": "https://hooks.example.com/x?token=secret"})
    assert spec.action.target.text == "Webhook https://hooks.example.com"
