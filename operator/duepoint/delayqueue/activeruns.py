"""The runs of a Schedule that count for its concurrency policy, as Redis keeps them.

A *run* is a slot and, of a manual or backfilled one, its tag: the end of its occurrence's member
(8 or 12 bytes). ``active:<id>`` is a HASH, run -> state, target, timing version, name of its Job.
Under the empty field stands the *stamp*: 8 random bytes, new with each change, by which
``activeruns.lua`` compares and sets; then the mark of what the runs are complete for. Nothing in
it has to be true: what a run does is found out before it is held against a slot. Pure.
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


_SLOT = 8
_NAME = 6  # state, target, timing version come before it
_STAMP = 8  # random bytes; the mark follows


class ActiveRunState(enum.StrEnum):
    """How a run stands."""

    ACTIVE = "A"
    REPLACED = "R"  # a newer one took its place; it ends when it is met
    SURPLUS = "F"  # too many waited; it ends when it is met
    WAITING = "Q"
    ABSENT = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRun:
    """One run.

    Attributes:
        value: what stands under it: state, target, timing version, name of its Job.
    """

    run: Run
    value: bytes

    @property
    def state(self) -> ActiveRunState:
        """Raises ValueError of a value that no version of ours wrote."""
        return ActiveRunState(self.value[:1].decode())

    @property
    def version(self) -> points.TimingVersion:
        return points.TimingVersion(self.value[2:_NAME])

    @property
    def is_job(self) -> bool:
        return self.value[1:2] == b"J"

    @property
    def job(self) -> str:
        """The name of its Job; empty for a delivery."""
        return self.value[_NAME:].decode()

    @property
    def slot_us(self) -> int:
        """Its slot; 0 of a Job whose name is none of ours."""
        slot_us = int.from_bytes(self.run[:_SLOT], "big")
        return slot_us if slot_us < points.DUE_LIMIT_US else 0

    @property
    def is_wanted(self) -> bool:
        """Whether a ScheduleRun wanted it; the slot is not of the regular sequence."""
        return len(self.run) > _SLOT

    def as_(self, state: ActiveRunState) -> ActiveRun:
        """The same run in this state."""
        return dataclasses.replace(self, value=state.encode() + self.value[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run that counted for its schedule's concurrency policy and has ended."""

    definition: definition.Definition
    run: ActiveRun


def run_of(member: bytes) -> Run:
    """The run of an occurrence."""
    return Run(member[13:])


def active(run: Run, version: points.TimingVersion, job: str) -> ActiveRun:
    """A run that is let in; ``job`` empty for a delivery."""
    target = b"J" if job else b"W"
    return ActiveRun(run=run, value=b"A" + target + version + job.encode())


def run_of_job(name: str, schedule: str, slot_us: int | None) -> Run:
    """The run that a Job of a Schedule is of, by its name and its slot.

    A name that is none of ours (a user made the Job) gets a run of its own.
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
    """The occurrence by which a run is being tried, or waits to be.

    Attributes:
        due_us: from ``points.DUE_LIMIT_US`` on: a worker holds it.
    """

    member: bytes
    due_us: float

    @property
    def kind(self) -> int:
        return self.member[12]

    def is_later_than(self, now_us: float) -> bool:
        """Whether it is due later and no worker holds it."""
        return now_us < self.due_us < points.DUE_LIMIT_US


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRuns:
    """The runs of a Schedule as they were read, in one moment.

    Attributes:
        runs: all that are known, by their names.
        tried: those that have an occurrence; with another mark than was asked for, all that the
            Schedule has.
        stamp: as it was stored; empty = nothing was.
        history: of the server: another one may have lost what was written last.
        is_held: the claim that asks holds its occurrence.
    """

    now_us: int
    history: str
    stamp: bytes = b""
    runs: Mapping[Run, ActiveRun] = field(default_factory=dict)
    tried: Mapping[Run, Tried] = field(default_factory=dict)
    is_held: bool = True

    @property
    def mark(self) -> str:
        """What the runs are complete for."""
        return self.stamp[_STAMP:].decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of the runs, and of occurrences beside them.

    Attributes:
        due: occurrences that are due at once, unless a worker holds them.
        waiting: the occurrence that stands for the claimed one from now on.
    """

    runs: Mapping[Run, ActiveRun]
    mark: str
    due: Sequence[bytes] = ()
    waiting: messages.Occurrence | None = None

    def is_none(self, known: ActiveRuns) -> bool:
        """Whether everything stays as it is."""
        is_same = (self.runs, self.mark) == (known.runs, known.mark)
        return is_same and not self.due and self.waiting is None


def new_stamp(mark: str) -> bytes:
    """One that no other change has."""
    return secrets.token_bytes(_STAMP) + mark.encode()
