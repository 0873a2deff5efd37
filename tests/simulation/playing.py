"""What a process of a pool does: one server, and histories on it one after the other."""

from __future__ import annotations

import contextlib
import gc
from dataclasses import dataclass
from multiprocessing import queues

from tests.simulation import chance, effects, faults, history, oracle
from tests.simulation.history import Record
from tests.simulation.plans import Story
from tests.simulation.valkey import SimulatedValkey

#: A seed and its story.
Task = tuple[int, Story]

#: Of this process, until it ends.
_held = contextlib.ExitStack()
_servers: list[SimulatedValkey] = []


def begin() -> None:
    """Before the first history of a process that plays by itself."""
    begin_on(_held.enter_context(history.a_server()))


def begin_in_pool(paths: queues.Queue[str]) -> None:
    """Before the first history of a process of a pool, which ends without a word."""
    begin_on(paths.get())


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


def problems_of(task: Task) -> list[str]:
    return verdict_on(task).problems
