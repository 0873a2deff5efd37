"""The runs of a Schedule that count for its concurrency policy, as Redis stores them. Pure.

A *run* is a slot and, for a manual or backfilled one, its tag: the end of its occurrence's member
(8 or 12 bytes). ``active:<id>`` is a HASH, run -> state, target, timing version, name of its Job.
The empty field has the *stamp*: 8 random bytes, new with each change, by which ``activeruns.lua``
compares and sets; then the mark, which names the state for which the runs are complete. The hash
may be out of date: before a run prevents a slot from starting, its state is verified.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NewType

from duepoint.delayqueue import messages
from duepoint.schedules import definition, points

Run = NewType("Run", bytes)
"""Slot in us (8 bytes, big-endian) and run tag (0 or 4 bytes)."""

_KIND_OFFSET, _RUN_OFFSET = 12, 13  # in a member, after the id and the timing version
_SLOT_BYTES = 8
_NAME_OFFSET = 6  # state, target, timing version come before it
_STAMP_BYTES = 8  # random bytes; the mark follows


class ActiveRunState(enum.StrEnum):
    """The state of a run."""

    ACTIVE = "A"
    REPLACED = "R"  # a newer one took its place; it ends when its occurrence is claimed
    SURPLUS = "F"  # too many waited; it ends when its occurrence is claimed
    WAITING = "Q"
    ABSENT = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRun:
    """A run with its stored value.

    Attributes:
        value: the stored value: state, target, timing version, name of its Job.
    """

    run: Run
    value: bytes

    @property
    def state(self) -> ActiveRunState:
        """The state; raises ValueError for a value that no version of ours wrote."""
        return ActiveRunState(self.value[:1].decode())

    @property
    def version(self) -> points.TimingVersion:
        return points.TimingVersion(self.value[2:_NAME_OFFSET])

    @property
    def is_job(self) -> bool:
        return self.value[1:2] == b"J"

    @property
    def job(self) -> str:
        """The name of its Job; empty for a delivery."""
        return self.value[_NAME_OFFSET:].decode()

    @property
    def slot_us(self) -> int:
        """The slot; 0 for a Job whose name is not ours."""
        slot_us = int.from_bytes(self.run[:_SLOT_BYTES], "big")
        return slot_us if slot_us < points.DUE_LIMIT_US else 0

    @property
    def is_wanted(self) -> bool:
        """Whether a ScheduleRun requested it, so that its slot is not a regular one."""
        return len(self.run) > _SLOT_BYTES

    def in_state(self, state: ActiveRunState) -> ActiveRun:
        """Return the same run in this state."""
        return dataclasses.replace(self, value=state.encode() + self.value[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run that counted for its schedule's concurrency policy and has ended."""

    definition: definition.Definition
    run: ActiveRun


def run_of(member: bytes) -> Run:
    """Return the run of an occurrence."""
    return Run(member[_RUN_OFFSET:])


def active(run: Run, version: points.TimingVersion, job: str) -> ActiveRun:
    """Return an active run; ``job`` is empty for a delivery."""
    target = b"J" if job else b"W"
    return ActiveRun(run=run, value=b"A" + target + version + job.encode())


def run_of_job(name: str, schedule: str, slot_us: int | None) -> Run:
    """Return the run of a Schedule's Job, by its name and its slot.

    A Job whose name is not ours, because a user created it, gets a run of its own.
    """
    if slot_us is not None and 0 <= slot_us < points.DUE_LIMIT_US:
        slot = slot_us.to_bytes(8, "big")
        seconds = slot_us // 1_000_000
        if name == f"{schedule}-{seconds}":
            return Run(slot)
        head, _, digest = name.rpartition("-")
        if head.endswith(f"-{seconds}") and _is_digest(digest):
            return Run(slot + bytes.fromhex(digest[:8]))
    return Run(b"\xff" + hashlib.sha256(name.encode()).digest()[:7])


def _is_digest(text: str) -> bool:
    return len(text) == 10 and not set(text) - set("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The occurrence of a run that is being tried or waits to be.

    Attributes:
        due_us: when it is due; from ``points.DUE_LIMIT_US`` up, a worker holds it.
    """

    member: bytes
    due_us: float

    @property
    def kind(self) -> int:
        return self.member[_KIND_OFFSET]

    def is_later_than(self, now_us: float) -> bool:
        """Whether it is due after this instant and no worker holds it."""
        return now_us < self.due_us < points.DUE_LIMIT_US


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRuns:
    """The runs of a Schedule as they were read at one instant.

    Attributes:
        runs: all stored runs, by their names.
        tried: the occurrences of these runs; if the mark differs from the requested one, all
            occurrences of the Schedule.
        stamp: the stored stamp; empty = none.
        history: replication id of the server; once it changes, the last writes may be lost.
        is_held: whether the worker that reads them still holds its occurrence.
    """

    now_us: int
    history: str
    stamp: bytes = b""
    runs: Mapping[Run, ActiveRun] = field(default_factory=dict)
    tried: Mapping[Run, Tried] = field(default_factory=dict)
    is_held: bool = True

    @property
    def mark(self) -> str:
        """The name of the state for which the runs are complete: no active run is missing."""
        return self.stamp[_STAMP_BYTES:].decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the runs, and of occurrences with them.

    Attributes:
        due: occurrences to make due at once, unless a worker holds them.
        waiting: the occurrence that replaces the claimed one.
    """

    runs: Mapping[Run, ActiveRun]
    mark: str
    due: Sequence[bytes] = ()
    waiting: messages.Occurrence | None = None

    def is_empty(self, known: ActiveRuns) -> bool:
        """Whether the change would leave everything as it is."""
        is_same = (self.runs, self.mark) == (known.runs, known.mark)
        return is_same and not self.due and self.waiting is None


def new_stamp(mark: str) -> bytes:
    """Return a new, unique stamp with this mark."""
    return secrets.token_bytes(_STAMP_BYTES) + mark.encode()
