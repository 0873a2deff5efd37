"""One Schedule and one slot: every event at every message from the claim to the status.

`make simulate SCOPE=singles` tries all of them, at every message since the object was applied. Here
are those that befall the messages of the worker that fires, and the two before and after.
"""

from __future__ import annotations

import pytest

from tests.simulation import history, oracle, scopes
from tests.simulation.faults import Kind

#: What takes longest to play, or is rarest, has every third message.
_EVERY = {
    **dict.fromkeys((Kind.KILL_BEFORE, Kind.KILL_AFTER, Kind.LOSE_REPLY, Kind.PAUSE_BEFORE), 1),
}


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("target", history.TARGETS)
def test_a_slot_survives_one_event(valkey, target, kind):
    story = scopes.one_slot(target)
    quiet = history.run(story, 1, valkey)
    numbers = scopes.of_firing(quiet)
    assert len(numbers) >= 4
    wrong = {}
    for event in scopes.singles(numbers[:: _EVERY.get(kind, 3)], [kind]):
        record = history.run(scopes.with_events(story, event), 1, valkey)
        assert [each for _, each in record.events] == [event]
        if problems := oracle.judge(record):
            wrong[str(event)] = problems
    assert wrong == {}
