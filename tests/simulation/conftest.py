"""One Valkey for all histories of a test process, and quiet histories, each played only once."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.simulation import chance, history, oracle, scopes
from tests.simulation.faults import Event
from tests.simulation.history import Record
from tests.simulation.plans import Story
from tests.support import virtualvalkey
from tests.support.virtualvalkey import SimulatedValkey

#: What went wrong in each history that failed, by its events.
Wrong = dict[str, list[str]]
Try = Callable[[Story, Sequence[Sequence[Event]]], Wrong]


@pytest.fixture(scope="session")
def valkey() -> Iterator[SimulatedValkey]:
    with virtualvalkey.a_valkey() as server, chance.silent():
        gc.collect()
        gc.freeze()
        yield server


@pytest.fixture(scope="session")
def quiet(valkey: SimulatedValkey) -> Callable[[str], Record]:
    """Return the history of a story of ``scopes.STORIES`` without any event."""

    @functools.cache
    def played(name: str) -> Record:
        return history.run(scopes.STORIES[name](), 1, valkey)

    return played


@pytest.fixture(scope="session")
def played(valkey: SimulatedValkey) -> Callable[[Story], Record]:
    """Return the history of a story."""
    return lambda story: history.run(story, 1, valkey)


@pytest.fixture(scope="session")
def wrong_of(valkey: SimulatedValkey) -> Try:
    """Return what goes wrong when a story is played with each of several lists of events."""

    def found(story: Story, plans: Sequence[Sequence[Event]]) -> Wrong:
        wrong = {}
        for events in plans:
            record = history.run(scopes.with_events(story, *events), 1, valkey)
            if problems := oracle.judge(record):
                wrong[", ".join(map(str, events))] = problems
        return wrong

    return found
