"""What a process of a pool does: one server, and histories on it one after the other."""

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

#: Of this process, until it ends.
_held = contextlib.ExitStack()
_servers: list[SimulatedValkey] = []


def begin() -> None:
    """Before the first history of a process that plays by itself."""
    begin_on(_held.enter_context(virtualvalkey.a_server()))


#: The socket of a server, and the core on which it runs; None = any.
Place = tuple[str, int | None]


def begin_in_pool(places: queues.SimpleQueue[Place]) -> None:
    """Before the first history of a forked process of a pool, which ends without a word."""
    _servers.clear()  # that of its parent
    path, core = places.get()
    if core is not None:
        os.sched_setaffinity(0, {core})
    begin_on(path)


@contextlib.contextmanager
def a_place(number: int, of: int) -> Iterator[Place]:
    """Where one of so many processes of a pool plays, with the server that it has for itself.

    Either waits while the other works, so they lose nothing on one core, and save what it takes to
    wake another core for each message.
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
    """After the last one."""
    _held.close()


def play(task: Task) -> Record:
    seed, story = task
    return history.run(story, seed, _servers[0])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a history showed.

    Attributes:
        points: slots that had an effect.
        faults: events that happened, changes by users apart.
        changes: what users did because of an event.
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
