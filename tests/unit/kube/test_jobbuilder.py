"""A Job out of a frame is, byte by byte, the Job that the builder makes."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from duepoint.kube import jobbuilder

FACTS = jobbuilder.SlotFacts(
    namespace="reports",
    schedule_name="nightly.report",
    schedule_uid="6f1c9c2e-52a1-4b40-9d0a-0f5c6f1f7a11",
    slot_us=1_795_311_000_000_000,
    previous_us=1_795_224_600_000_000,
    trigger="Schedule",
    payload=b'{"report":"daily"}',
    time_zone="Europe/Rome",
)
CONTAINERS = [
    {"name": "main", "image": "busybox", "command": ["date", "+%s", "100%", "%b", "@0@"]},
    {"name": "other", "env": [{"name": "DUEPOINT_TRIGGER", "value": "mine"}]},
]
TEMPLATES: dict[str, dict[str, Any]] = {
    "usual": {"spec": {"template": {"spec": {"containers": CONTAINERS}}}},
    "labels and annotations": {
        "metadata": {
            "labels": {"team": "a", "%s": "%(x)s"},
            "annotations": {"note": 'ü "quoted" \\ \u2028 \x7f', jobbuilder.TRIGGER: "forged"},
        },
        "spec": {
            "ttlSecondsAfterFinished": 5,
            "template": {"metadata": {"annotations": {"%": "%%", jobbuilder.PAYLOAD: "forged"}}},
        },
    },
    "a time limit and numbers": {
        "spec": {"activeDeadlineSeconds": 2**62, "x": [1.5, None, True, {}]}
    },
    "nothing": {},
    "nulls": {"metadata": None, "spec": None},
    "no shape at all": {"metadata": "x", "spec": {"template": {"spec": {"containers": "x"}}}},
}
CHANGES: dict[str, dict[str, Any]] = {
    "usual": {},
    "no slot before": {"previous_us": None},
    "no payload": {"payload": None},
    "neither": {"payload": None, "previous_us": None},
    "a payload like a pattern": {"payload": b'{"x":"%s %b % \xff @0@"}'},
    "caught up, in UTC": {"trigger": "CatchUp", "time_zone": "Etc/UTC"},
    "words to be escaped": {"schedule_name": 'a"b\\c\n%s\u00fc', "namespace": "%d"},
    "traced": {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"},
    "long": {"schedule_name": "n" * 253, "namespace": "m" * 63},
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_a_framed_job_is_the_builders(template: dict[str, Any], changes: dict[str, Any]):
    facts = dataclasses.replace(FACTS, **changes)
    words = jobbuilder.words_of(facts)
    frame = jobbuilder.frame_of(
        template,
        payload=words.payload,
        has_previous=facts.previous_us is not None,
        is_traced=facts.traceparent is not None,
    )
    assert frame is not None
    wanted = msgspec.json.encode(jobbuilder.job_for(template, facts))
    assert frame.body(words._replace(payload=None)) == wanted


def test_one_frame_serves_all_slots():
    template = TEMPLATES["usual"]
    frame = jobbuilder.frame_of(template, payload=None, has_previous=True)
    assert frame is not None
    for number in range(20):
        facts = dataclasses.replace(
            FACTS,
            payload=None,
            schedule_name=f"s-{number}",
            slot_us=FACTS.slot_us + number * 3_600_000_000,
            previous_us=FACTS.slot_us - number * 1_000_000,
        )
        wanted = msgspec.json.encode(jobbuilder.job_for(template, facts))
        assert frame.body(jobbuilder.words_of(facts)) == wanted


def containers_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    return job["spec"]["template"]["spec"]["containers"]


def test_a_traced_job_hands_the_context_on_to_its_containers():
    header = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    facts = dataclasses.replace(FACTS, traceparent=header)
    job = jobbuilder.job_for(TEMPLATES["usual"], facts)
    for metadata in (job["metadata"], job["spec"]["template"]["metadata"]):
        assert metadata["annotations"]["duepoint.dev/traceparent"] == header
    for container in containers_of(job):
        [variable] = [one for one in container["env"] if one["name"] == "TRACEPARENT"]
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        assert path == "metadata.annotations['duepoint.dev/traceparent']"
