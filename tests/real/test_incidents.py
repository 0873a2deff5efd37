"""A load, meanwhile deaths, and a judge of each slot; `make chaos KIND=real` takes an hour."""

from __future__ import annotations

import os

import pytest

from tests.chaos.realnode import __main__ as hour
from tests.chaos.realnode import incidents

pytestmark = [
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.environ.get("DUEPOINT_TEST_CLUSTER") != "real", reason="it kills processes of the node"
    ),
]
MINUTES = 1.5


def test_no_slot_is_lost_doubled_or_early_while_processes_are_killed(tmp_path):
    killing = {name: incidents.INCIDENTS[name] for name in incidents.KILLING}

    with hour.scene(members=100) as scene:
        figures = hour.measure(scene, MINUTES, killing, tmp_path / "received")

    assert [figure for figure in figures if figure.holds is False] == []
