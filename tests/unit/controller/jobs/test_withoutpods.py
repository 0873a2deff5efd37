"""Jobs whose Pods are refused: the Schedule says so, with the reason and what to do."""

from __future__ import annotations

import pytest

from duepoint.kube import pods
from tests.support.builders import at
from tests.unit.controller.world import NAMESPACE, World

FIRST = at("2026-03-01 12:05:00")
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"


async def said(world: World, job_name: str, note: str, last: str) -> None:
    """The Job controller says that it could not create a Pod."""
    uid = world.api.stored("jobs", NAMESPACE, job_name)["metadata"]["uid"]
    body = {
        "metadata": {"generateName": job_name, "namespace": NAMESPACE},
        "reason": "FailedCreate",
        "note": note,
        "regarding": {"uid": uid, "kind": "Job", "name": job_name},
        "deprecatedLastTimestamp": last,
    }
    await world.api.request("POST", EVENTS, body)


@pytest.mark.parametrize(
    ("note", "advice"),
    [
        ('pods "x" is forbidden: exceeded quota: team, requested: pods=1', "quota"),
        ('pods "x" is forbidden: error looking up service account a/b', "serviceAccountName"),
        ('admission webhook "p.example.com" denied the request: no', "webhook"),
        ("something nobody has heard of", "jobTemplate"),
    ],
)
def test_the_advice_fits_the_refusal(note, advice):
    assert advice in pods.pod_advice(note)
