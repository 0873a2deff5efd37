"""The definition of a schedule in the queue: enough to fire it without asking the API server.

The operator makes a definition from an object and stores it; workers read it after a claim.
``delayqueue.definitions.codec`` encodes it. Pure.
"""

from __future__ import annotations

import enum

import msgspec

from duepoint.schedules import points
from duepoint.schedules import rule as rules

FINGERPRINT_LENGTH = 4
#: Bytes that prove who stored a member's payload.
PAYLOAD_MAC_LENGTH = 8
#: The fingerprint of a definition whose origin is not known.
NO_FINGERPRINT = bytes(FINGERPRINT_LENGTH)


class State(enum.IntEnum):
    """What the sweep may expect of a definition's chain. The numbers are stored."""

    ARMED = 0
    SUSPENDED = 1
    COMPLETED = 2


class Definition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One schedule as it is stored in the queue.

    Attributes:
        generation: metadata.generation this was made from.
        timing_generation: generation of the last edit of a timing field.
        created_us: metadata.creationTimestamp; anchor of ``@every`` without a startTime.
        not_before_us: only slots after it belong to this definition (the creation, the last
            timing edit, or the last resume).
        rule: when it runs, and its policies.
        target: digest of the action's blob (``actions.py``), as text.
        started: runs of regular slots so far; counted only if the rule limits them.
        fingerprint: a hash of everything it was made from; equal fingerprints mean equal
            definitions. For a member of a set it is random, and is its version tag.
        owner: the set whose member this is; None for a Schedule.
        payload: for a member: JSON text in place of the set's payload, or empty.
        payload_mac: proves that a process with our key stored the payload.
        version: for a member: its timing version, which is stored nowhere else.
        is_paused: for a member: its set is paused, so nothing fires now.
        once_us: for a member that fires once: its instant, which ``rule`` also has as text.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    timing_generation: int
    created_us: int
    not_before_us: int
    state: State
    rule: rules.Rule
    target: str
    started: int = 0
    fingerprint: bytes = NO_FINGERPRINT
    owner: points.SetIdentity | None = None
    payload: bytes = b""
    payload_mac: bytes = b""
    version: points.TimingVersion = points.TimingVersion(b"")
    is_paused: bool = False
    once_us: int | None = None

    @property
    def runs_left(self) -> int | None:
        """The number of regular slots that may still start; None = any number."""
        most = self.rule.timing.max_runs
        return None if most is None else max(0, most - self.started)

    @property
    def is_complete(self) -> bool:
        """Whether no slot is left; its chain point may remain until a worker claims it."""
        return self.state is State.COMPLETED or (self.state is State.ARMED and self.runs_left == 0)

    @property
    def id(self) -> points.ScheduleId:
        if self.owner is not None:
            return points.member_id(self.owner, self.name)
        return points.schedule_id(self.uid, self.namespace)

    @property
    def timing_version(self) -> points.TimingVersion:
        if self.version:
            return self.version
        return points.timing_version(self.uid, self.timing_generation)

    @property
    def identity(self) -> str:
        """``namespace/name``, which jitter and ``H`` hash; for a member also the set's name."""
        if self.owner is not None:
            return f"{self.namespace}/{self.owner.name}/{self.name}"
        return f"{self.namespace}/{self.name}"
