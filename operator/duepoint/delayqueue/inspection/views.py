"""What somebody who only looks sees of the index, as frozen values.

Made by ``inspecting``, shown by the command line and told as metrics. Instants are microseconds
since the epoch by the server's clock. Counts that would cost a walk through everything are
estimates beyond a size, and say so.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint.delayqueue import messages
from duepoint.schedules import definition, points


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSight:
    """What is true of the whole index.

    Attributes:
        state: ``stable``, or what a change of the number of shards has come to.
        workers: the living ones, and until when each counts as living.
        memory_limit: 0 = none.
    """

    layout: messages.Layout
    state: str
    epoch: int
    now_us: int
    server: str
    workers: tuple[tuple[str, int], ...]
    memory_used: int
    memory_resident: int
    memory_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSight:
    """How full one shard is.

    Attributes:
        armed: chain points, claimed ones included.
        occurrences: slots with a life of their own, retries included.
        oldest_due_us: due of the oldest point that could be claimed; None when nothing is due.
        runs: outcomes that the status writer has not taken yet.
        is_exact: False where ``definitions`` or ``retries`` were estimated.
    """

    shard: messages.ShardId
    state: str
    definitions: int
    armed: int
    occurrences: int
    retries: int
    due: int
    claimed: int
    claims: int
    oldest_due_us: int | None
    runs: int
    dead: int
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSight:
    """The points of one namespace in one shard."""

    shard: messages.ShardId
    namespace: str
    points: int
    due: int
    claimed: int
    oldest_due_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSight:
    """One point of the queue.

    Attributes:
        due_us: None while a worker holds it: its due is in the claim then.
        known: the definition behind it; None where there is none (any more).
        record: state of an occurrence.
    """

    shard: messages.ShardId
    namespace: str
    point: points.DuePoint
    due_us: int | None
    known: definition.Definition | None
    record: messages.OccurrenceRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSight:
    """One schedule as the queue knows it, and all its points."""

    shard: messages.ShardId
    known: definition.Definition
    points: tuple[PointSight, ...]
    now_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSight:
    """A claim: who holds which points until when.

    Attributes:
        until_us: when it runs out; in the past = it waits to be taken over.
        reclaimed: how often these points were taken over from somebody who did not end them.
        points: those still held, oldest due first, with the dues they had.
        now_us: the server's time when this was seen.
    """

    shard: messages.ShardId
    id: messages.ClaimId
    worker: str
    until_us: int
    reclaimed: int
    points: tuple[PointSight, ...]
    now_us: int
