"""What a Job hands on of its trace."""

from __future__ import annotations

import dataclasses
from typing import Any

from duepoint.kube import jobbuilder

FACTS = jobbuilder.SlotFacts(
    namespace="reports",
    name="nightly.report",
    uid="6f1c9c2e-52a1-4b40-9d0a-0f5c6f1f7a11",
    slot_us=1_795_311_000_000_000,
    previous_us=1_795_224_600_000_000,
    trigger="Schedule",
    time_zone="Europe/Rome",
)
CONTAINERS = [
    {"name": "main", "image": "busybox", "command": ["date", "+%s", "100%", "%b", "@0@"]},
    {"name": "other", "env": [{"name": "DUEPOINT_TRIGGER", "value": "mine"}]},
]
TEMPLATE = {"spec": {"template": {"spec": {"containers": CONTAINERS}}}}


def containers_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    return job["spec"]["template"]["spec"]["containers"]


def test_a_traced_job_hands_the_context_on_to_its_containers():
    header = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    facts = dataclasses.replace(FACTS, traceparent=header)
    job = jobbuilder.job_for(TEMPLATE, facts, b'{"report":"daily"}')
    for metadata in (job["metadata"], job["spec"]["template"]["metadata"]):
        assert metadata["annotations"]["duepoint.dev/traceparent"] == header
    for container in containers_of(job):
        [variable] = [one for one in container["env"] if one["name"] == "TRACEPARENT"]
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        assert path == "metadata.annotations['duepoint.dev/traceparent']"
