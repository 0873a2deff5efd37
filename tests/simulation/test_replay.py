"""A seed is a history: it plays the same way each time, in any process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import effects, faults, history, oracle, plans, scopes, slots
from tests.simulation.faults import Kind
from tests.simulation.loop import SimulatedLoop

#: Prints the digest of the first story's trace.
_PLAY = """
from tests.simulation import chance, faults, history, scopes
from tests.support import virtualvalkey
with virtualvalkey.a_valkey() as valkey, chance.silent():
    story = scopes.with_events(scopes.one_slot("job"), faults.usual(faults.Kind.KILL_AFTER, 105))
    print(history.run(story, 1, valkey).digest)
"""


@pytest.mark.parametrize("target", plans.TARGETS)
def test_a_seed_plays_the_same_way_twice(valkey, target):
    story = scopes.one_slot(target)
    events = [faults.usual(Kind.LOSE_REPLY, 105), faults.usual(Kind.FALL_BACK, 112, 3.0)]
    disturbed = scopes.with_events(story, *events)
    first = history.run(disturbed, 1, valkey)
    history.run(story, 2, valkey)  # another one in between leaves nothing behind
    again = history.run(disturbed, 1, valkey)
    assert first.trace == again.trace
    assert first.statuses == again.statuses


def test_a_history_leaves_nothing_to_the_collector(valkey):
    """A leftover coroutine would run its ``finally`` blocks in the middle of another test."""
    history.run(scopes.one_slot("job"), 1, valkey)
    assert not [each for each in gc.get_objects() if isinstance(each, SimulatedLoop)]


def test_another_seed_is_another_history(valkey):
    story = scopes.one_slot("job")
    assert history.run(story, 1, valkey).digest != history.run(story, 2, valkey).digest


def test_a_seed_plays_the_same_way_in_another_process():
    digests = {
        subprocess.run(
            [sys.executable, "-c", _PLAY],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"operator{os.pathsep}."},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_up_to_its_first_event_a_history_is_the_quiet_one(valkey):
    quiet = history.run(scopes.one_slot("webhook"), 1, valkey)
    at = scopes.of_slot(quiet)[4]
    event = faults.usual(Kind.KILL_BEFORE, at)
    disturbed = history.run(scopes.with_events(scopes.one_slot("webhook"), event), 1, valkey)
    before = disturbed.trace.index(next(line for line in disturbed.trace if "EVENT" in line))
    assert disturbed.trace[:before] == quiet.trace[:before]


@pytest.mark.parametrize("target", plans.TARGETS)
def test_nothing_happens_in_a_quiet_history_but_the_slots(valkey, target):
    record = history.run(scopes.one_slot(target), 3, valkey)
    assert oracle.judge(record) == []
    created_us = record.begin_us + 5_000_000
    (wishes,) = record.wishes.values()
    found = effects.effects_of(record)[wishes[0].uid, False]
    assert sorted(found) == slots.slots_of(wishes[0].spec, created_us, record.end_us)
    assert len(found) == 2
