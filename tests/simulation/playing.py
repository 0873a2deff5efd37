"""The work of a pool process: play histories one after the other on one server."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import queues

from tests.simulation import chance, effects, faults, history, oracle
from tests.simulation.history import Record
from tests.simulation.plans import Story
from tests.support import virtualvalkey
from tests.support.virtualvalkey import SimulatedValkey

#: A seed and its story.
Task = tuple[int, Story]

#: Resources of this process, until it ends.
_held = contextlib.ExitStack()
_servers: list[SimulatedValkey] = []


def begin() -> None:
    """Prepare a process that plays by itself for its first history."""
    begin_on(_held.enter_context(virtualvalkey.a_server()))


#: The socket of a server, and the core on which it runs; None = any.
Place = tuple[str, int | None]


def begin_in_pool(places: queues.SimpleQueue[Place]) -> None:
    """Prepare a forked process of a pool, which ends without cleaning up, for its first history."""
    _servers.clear()  # the parent's server
    path, core = places.get()
    if core is not None:
        os.sched_setaffinity(0, {core})
    begin_on(path)


@contextlib.contextmanager
def a_place(number: int, of: int) -> Iterator[Place]:
    """Start a server for one of ``of`` processes of a pool, and yield its place.

    Process and server wait for each other, so sharing a core costs them nothing, and saves the time
    that waking another core takes for each message.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    core = cores[number] if of <= len(cores) else None
    with contextlib.ExitStack() as held:
        if core is not None:
            os.sched_setaffinity(0, {core})
        try:
            path = held.enter_context(virtualvalkey.a_server())
        finally:
            if core is not None:
                os.sched_setaffinity(0, cores)
        yield path, core


def begin_on(path: str) -> None:
    """Play on the server behind this socket."""
    _held.enter_context(chance.silent())
    _servers.append(SimulatedValkey(path))
    gc.collect()
    gc.freeze()


def end() -> None:
    """Clean up after the last history."""
    _held.close()


def play(task: Task) -> Record:
    seed, story = task
    return history.run(story, seed, _servers[0])


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a history.

    Attributes:
        points: slots that had an effect.
        faults: events that happened, without changes by users.
        changes: events that were changes by users.
    """

    problems: list[str]
    points: int
    faults: int
    changes: int


def verdict_on(task: Task) -> Verdict:
    record = play(task)
    points = len(effects.all_of(effects.effects_of(record)))
    changes = sum(event.kind in faults.OF_USERS for _, event in record.events)
    return Verdict(oracle.judge(record), points, len(record.events) - changes, changes)
