"""Which runs of a schedule are active, as a concurrency policy asks: the question and the answer.

A *run* is a slot and, of a manual or backfilled one, its tag: the end of its occurrence's member
(8 or 12 bytes). What is stored of it names the Job, so that a caller can check whether the Job
still runs. ``AdmissionRequest`` asks for a claimed occurrence, ``AdmissionFacts`` is what was found
out for it since the question before, ``AdmissionAnswer`` the answer. Pure; the formats are stored,
and read by the scripts ``admit`` and ``finish``.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NewType

from duepoint.delayqueue import messages
from duepoint.schedules import points

Run = NewType("Run", bytes)
"""Slot in us (8 bytes, big-endian) and run tag (0 or 4 bytes)."""

#: Policies that let a slot wait, or end without a run; the others start it.
ALLOW, FORBID, REPLACE, QUEUE = "Allow", "Forbid", "Replace", "Queue"

#: Runs in one question or answer; of more the asking goes on.
PIECE = 100
#: Slots that wait and are called up at once.
MOST_CALLED = 100

_SLOT = 8
_NAME = 6  # state, target, timing version come before it
_MOST_DIGITS = 12  # of a time in seconds


class ActiveRunState(enum.StrEnum):
    """How a run stands in the set."""

    ACTIVE = "A"
    REPLACED = "R"  # a newer one took its place; it ends when it is met
    SURPLUS = "F"  # too many waited; it ends when it is met
    ABSENT = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRun:
    """One run as the set knows it.

    Attributes:
        value: what stands under it: state, target, timing version, name of its Job.
    """

    run: Run
    value: bytes

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


def runs_of_job(name: str, schedule: str) -> tuple[Run, ...]:
    """The runs that a Job of this name can be of, where nothing but its name is known."""
    runs = {run_of_job(name, schedule, None)}
    for part in name.rsplit("-", 2)[1:]:
        if part.isascii() and part.isdigit() and len(part) <= _MOST_DIGITS:
            runs.add(run_of_job(name, schedule, int(part) * 1_000_000))
    return tuple(sorted(runs))


def _is_digest(text: str) -> bool:
    return len(text) == 10 and not set(text) - set("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFacts:
    """What has been found out for an entry.

    Attributes:
        look: of the first answer UNKNOWN or CHECK to this entry; 0 = none yet.
        listed: the mark of the answer UNKNOWN after which the Jobs were listed.
        seen: the active Jobs of that list.
        over: runs that have ended.
        verified: runs whose Jobs were looked at and are active.
        checked: the entry's own Job does not exist.
        blind: the Jobs cannot be asked for; only a slot that may wait asks like this.
    """

    look: int = 0
    listed: str = ""
    seen: tuple[ActiveRun, ...] = ()
    over: tuple[ActiveRun, ...] = ()
    verified: frozenset[Run] = frozenset()
    checked: bool = False
    blind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """A claimed occurrence that wants to start.

    Attributes:
        member: of the occurrence.
        run: as it will stand in the set.
        version: the schedule's timing version now.
        policy: that judges it; ``Allow`` lets it in and counts it.
        most: runs that may be active at once, this one included.
        mark: what the set has to be complete for: another one has the Jobs listed.
        waiting: with Queue: the occurrence that stands for it while it waits, due when it looks
            again without being called.
        limit: with Queue: slots that may wait.
    """

    member: bytes
    run: ActiveRun
    version: points.TimingVersion
    policy: str
    most: int
    mark: str
    waiting: messages.Occurrence | None = None
    limit: int = 1
    facts: AdmissionFacts = field(default_factory=AdmissionFacts)


class Verdict(enum.StrEnum):
    """What becomes of an entry."""

    IN = "in"
    FORBIDDEN = "forbidden"
    WAITS = "waits"  # it is the claim's no more
    FULL = "full"
    REPLACED = "replaced"
    LOST = "lost"
    UNKNOWN = "unknown"  # list the Jobs, ask again with its mark
    CHECK = "check"  # look at these Jobs and at its own, ask again


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionAnswer:
    """The answer to an entry.

    Attributes:
        runs: with IN, those whose Jobs are to be deleted; with CHECK, those to look at. Never more
            than ``PIECE``: when these are done, the rest comes with the next answer.
        mark: with UNKNOWN.
        look: with UNKNOWN and CHECK, the number under which the asking goes on.
    """

    verdict: Verdict
    runs: tuple[ActiveRun, ...] = ()
    mark: str = ""
    look: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The effect of runs that have ended.

    Attributes:
        state: of the run that was asked for.
        removed: runs that counted and do not any more.
        called: slots that waited and are due now, those of an older timing included.
    """

    state: ActiveRunState = ActiveRunState.ABSENT
    removed: int = 0
    called: int = 0


def pieces(facts: AdmissionFacts) -> Iterator[AdmissionFacts]:
    """The same facts in parts that are no long script; what decides is in each."""
    most = max(len(facts.seen), len(facts.over), len(facts.verified), 1)
    verified = sorted(facts.verified)
    for first in range(0, most, PIECE):
        part = slice(first, first + PIECE)
        yield dataclasses.replace(
            facts,
            seen=facts.seen[part],
            over=facts.over[part],
            verified=frozenset(verified[part]),
        )


def pairs(runs: Sequence[ActiveRun]) -> Iterator[bytes]:
    """Runs and what stands under them, one after the other."""
    for active_run in runs:
        yield active_run.run
        yield active_run.value


def paired(values: Sequence[bytes]) -> tuple[ActiveRun, ...]:
    """The inverse."""
    return tuple(
        ActiveRun(run=Run(run), value=value)
        for run, value in zip(values[::2], values[1::2], strict=True)
    )
