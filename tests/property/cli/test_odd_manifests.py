"""Whatever stands in a manifest, it is judged; nothing ends in an exception."""

from __future__ import annotations

import copy
import random

import yaml

from duepoint.cli.check import checks
from duepoint.cli.check.manifests import Manifest
from tests.integration.crds.manifests import a_job, a_schedule, a_schedule_run, a_webhook
from tests.integration.crds.test_accepted_objects import CRONJOB

NOW_US = 1_795_000_000_000_000
ODD = [None, True, -1, 1.5, 10**400, "", "x" * 300, "\ud800", "\x00", [], [None], {}, {"": None}]


def test_no_manifest_whatever_is_in_it_ends_in_an_exception():
    dice = random.Random(6)
    seeds = [
        a_schedule("x", webhook=a_webhook(headers=[{"name": "X", "value": "1"}], retry={})),
        a_schedule("x", jobTemplate=a_job(), dst={"gap": "Skip"}, jitter="5s"),
        a_schedule("x", schedules=["@daily"], schedule=None, startTime="2026-01-01T00:00:00Z"),
        a_schedule_run("x", backfill={"from": "2026-01-01T00:00:00Z", "to": "x"}),
        yaml.safe_load(CRONJOB),
    ]
    for _ in range(3000):
        thing = copy.deepcopy(dice.choice(seeds))
        for _ in range(dice.randint(1, 3)):
            places = list(_places(thing))
            container, key = dice.choice(places)
            container[key] = copy.deepcopy(dice.choice(ODD))
        judged = checks.check(
            Manifest(file="some.yaml", document=1, item="", content=thing),
            namespace="default",
            created_us=NOW_US,
        )
        assert judged is None or judged.is_valid or judged.problems


def _places(node):
    keys = node.keys() if isinstance(node, dict) else range(len(node))
    for key in keys:
        yield node, key
        if isinstance(node[key], (dict, list)):
            yield from _places(node[key])
