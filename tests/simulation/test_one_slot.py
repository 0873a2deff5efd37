"""One Schedule and one slot: every event at every message from the claim to the status.

`make simulate SCOPE=singles` tries all events at every message since the object was applied, in
every story. This module tries those that hit the messages of the firing worker, and the two before
and after. In stories other than the plain ones it tries each kind at one of those messages.
"""

from __future__ import annotations

import pytest

from tests.simulation import faults, history, oracle, plans, scopes
from tests.simulation.faults import Kind

#: The stride over messages by kind: 3 for slow kinds, 99 (one message) where ``test_events`` tests.
_EVERY = {
    **dict.fromkeys((Kind.KILL_BEFORE, Kind.KILL_AFTER, Kind.LOSE_REPLY, Kind.PAUSE_BEFORE), 1),
    **dict.fromkeys((*faults.OF_CLOCKS, Kind.RECEIVER_OUTAGE, Kind.PARTITION, Kind.NEW_KEY), 99),
    **dict.fromkeys((Kind.RESCHEDULE, Kind.POLICY, Kind.RECREATE, Kind.RUN, Kind.BACKFILL), 99),
}
_OTHERS = tuple(name for name in scopes.STORIES if name not in plans.TARGETS)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("target", plans.TARGETS)
def test_a_slot_survives_one_event(valkey, quiet, wrong_of, target, kind):
    numbers = scopes.of_firing(quiet(target))
    assert len(numbers) >= 4
    events = list(scopes.singles(numbers[:: _EVERY.get(kind, 3)], [kind]))
    story = scopes.STORIES[target]()
    record = history.run(scopes.with_events(story, events[0]), 1, valkey)
    assert [each for _, each in record.events] == [events[0]]
    assert oracle.judge(record) == []
    assert wrong_of(story, [[event] for event in events[1:]]) == {}


@pytest.mark.parametrize("name", _OTHERS)
def test_a_slot_of_another_kind_survives_one_event(quiet, wrong_of, name):
    """Each kind of event in one of these stories; users change members in each that has some."""
    numbers = scopes.of_firing(quiet(name))
    place = _OTHERS.index(name)
    kinds = [
        kind
        for number, kind in enumerate(Kind)
        if number % len(_OTHERS) == place or (kind in faults.OF_USERS and name.startswith("member"))
    ]
    events = [faults.usual(kind, numbers[len(kind) % len(numbers)]) for kind in kinds]
    assert wrong_of(scopes.STORIES[name](), [[event] for event in events]) == {}
