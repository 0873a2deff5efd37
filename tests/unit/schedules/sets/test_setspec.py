"""From the text of a set's spec to settings and action, or to every error with its field."""

from __future__ import annotations

import json

import pytest

from duepoint import errors
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import setspec
from tests.integration.crds.test_schedule_sets import GOOD
from tests.support.builders import JOB_TEMPLATE

STREAM = {"stream": {"name": "ticks"}}
TTL = "ttlSecondsAfterFinished"
KEPT_JOB = {"spec": {**JOB_TEMPLATE["spec"], TTL: 600}}


def a_set_spec(**fields) -> setspec.SetSpec:
    wanted = fields
    if not {"jobTemplate", "webhook", "stream", "kafka"} & fields.keys():
        wanted = {**STREAM, **fields}
    return parsed(json.dumps(wanted).encode())


def parsed(text: bytes) -> setspec.SetSpec:
    return setspec.parse(
        text, namespace="shop", name="customers", uid="u-1", generation=3, created_us=1
    )


def refused(**fields) -> list[tuple[str, str]]:
    with pytest.raises(errors.InvalidSpec) as caught:
        a_set_spec(**fields)
    return [(error.reason, error.path) for error in caught.value.errors]


def test_unset_fields_have_the_documented_values():
    spec = a_set_spec()
    assert spec.settings == setspec.SetSettings()
    assert spec.settings.limits == setspec.SetLimits(
        members=1_000_000, payload_bytes=4_096, changes_per_second=5_000
    )
    assert spec.settings.defaults.timing.time_zone == "Etc/UTC"
    assert spec.settings.defaults.policy == rules.Policy()
    assert (spec.suspend, spec.is_managed, bytes(spec.action.payload)) == (False, False, b"")
    assert spec.identity == "shop/customers"


@pytest.mark.parametrize("fields", GOOD.values(), ids=GOOD)
def test_what_the_api_server_takes_is_taken(fields):
    a_set_spec(**fields)


@pytest.mark.parametrize(
    ("fields", "reason", "path"),
    [
        ({"stream": None}, "InvalidSpec", "spec"),
        ({"webhook": {"url": "ftp://a"}}, "InvalidSpec", "spec.webhook.url"),
        ({"defaults": {"timeZone": "Europe/Atlantis"}}, "InvalidSpec",
         "spec.defaults.timeZone"),
        ({"jobTemplate": KEPT_JOB, "defaults": {"concurrencyPolicy": "Forbid"}},
         "InvalidSpec", "spec.defaults"),
        ({"payload": "x" * 5_000}, "InvalidSpec", "spec.payload"),
        ({"rows": {"inline": [{}] * 10_001}}, "InvalidSpec", "spec.rows.inline"),
        ({"limits": {"members": 1}, "rows": {"inline": [{}, {}]}}, "InvalidSpec",
         "spec.rows.inline"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_field(fields, reason, path):
    assert refused(**fields) == [(reason, path)]


@pytest.mark.parametrize(
    ("members", "bits"),
    [(1, 0), (98_000, 0), (98_001, 1), (1_000_000, 4), (30_000_000, 9), (100_000_000, 10)],
)
def test_the_spread_keeps_each_population_small(members, bits):
    assert setspec.spread(members) == bits
    assert members / 2**bits <= 98_000
