"""What a process of a pool does: one server, and histories on it one after the other."""

from __future__ import annotations

import contextlib
import gc

from tests.simulation import chance, history, oracle
from tests.simulation.history import Record, Story
from tests.simulation.valkey import SimulatedValkey

#: A seed and its story.
Task = tuple[int, Story]

#: Of this process, until it ends.
_held = contextlib.ExitStack()
_servers: list[SimulatedValkey] = []


def begin() -> None:
    """Before the first history of a process."""
    _held.enter_context(chance.silent())
    _servers.append(_held.enter_context(history.a_valkey()))
    gc.collect()
    gc.freeze()


def end() -> None:
    """After the last one."""
    _held.close()


def play(task: Task) -> Record:
    seed, story = task
    return history.run(story, seed, _servers[0])


def problems_of(task: Task) -> list[str]:
    return oracle.judge(play(task))
