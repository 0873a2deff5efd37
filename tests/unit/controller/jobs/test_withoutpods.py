"""Jobs whose Pods are refused: the Schedule says so, with the reason and what to do."""

from __future__ import annotations

import pytest

from duepoint.kube import pods
from tests.unit.controller.world import NAMESPACE

EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"


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
