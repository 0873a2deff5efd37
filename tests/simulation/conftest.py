"""One Valkey for all histories of a test process, and quiet histories that are played once."""

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

#: By the events of each history that went wrong, what was wrong.
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
    """The history of a story of ``scopes.STORIES`` in which nothing happens."""

    @functools.cache
    def played(name: str) -> Record:
        return history.run(scopes.STORIES[name](), 1, valkey)

    return played


@pytest.fixture(scope="session")
def played(valkey: SimulatedValkey) -> Callable[[Story], Record]:
    """The history of this story."""
    return lambda story: history.run(story, 1, valkey)


@pytest.fixture(scope="session")
def wrong_of(valkey: SimulatedValkey) -> Try:
    """What goes wrong in the histories of a story, each with its events."""

    def found(story: Story, plans: Sequence[Sequence[Event]]) -> Wrong:
        wrong = {}
        for events in plans:
            record = history.run(scopes.with_events(story, *events), 1, valkey)
            if problems := oracle.judge(record):
                wrong[", ".join(map(str, events))] = problems
        return wrong

    return found
