"""The values that go into the delay queue and come out of it, frozen.

Instants are microseconds since the epoch; ``held_until`` is on the caller's monotonic clock.
Raw replies do not leave this package.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NewType

import msgspec

from duepoint import errors
from duepoint.runs import run
from duepoint.schedules import definition, points, slots

if TYPE_CHECKING:
    from duepoint.delayqueue import activeruns

ShardId = NewType("ShardId", int)
ClaimId = NewType("ClaimId", bytes)
"""12 random bytes, made by the worker that owns the points claimed under it."""
Epoch = NewType("Epoch", int)
"""Number of the leader's term, a fencing token: maintenance scripts refuse an outdated one."""

#: Format of the record of an occurrence.
RECORD_FORMAT = 1
#: A point becomes a dead letter when this many owners died with nothing else in hand.
POISON_RECLAIMS = 3
#: Points taken over this often have lost two owners; a worker holds one such claim at a time.
SUSPECT_RECLAIMS = 2

#: Most open retries of one schedule, unless its catch-up policy runs more; beyond that, the oldest
#: becomes a dead letter.
OPEN_RETRIES = 100
MOST_OPEN_RETRIES = 1_000


# -- arming (operator) ----------------------------------------------------------------------


class Arming(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A definition to store, with its chain point.

    Attributes:
        due_us: due of the chain point; None if there is none (suspended, completed) and, with
            ``keep_chain``, if the chain goes on as it is. With ``keep_chain`` a chain whose due is
            later than both now and ``after_us`` gets this due.
        after_us: with ``keep_chain`` the due is that of the first slot after this instant; else
            the due of the former chain must not be later, or it has run slots that the new one
            would run again; 0 = it may.
        keep_chain: the timing version did not change: leave points, claims and retries alone.
        open: occurrences that are stored with it: slots that were open when the index was lost.
            One that is in the queue already stays as it is. Not together with ``keep_chain``.
        replaces: fingerprint of the definition that this decision is based on: that one is
            replaced whatever its generation, any other only by a newer generation; empty = there
            was none.
    """

    definition: definition.Definition
    due_us: int | None
    after_us: int = 0
    keep_chain: bool = False
    open: tuple[Occurrence, ...] = ()
    replaces: bytes = b""


class Armed(enum.StrEnum):
    """The result of an upsert or a removal."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"  # same or older generation of the same uid; or nothing to remove
    COLLISION = "collision"  # the id belongs to another uid
    CHANGED = "changed"  # the chain to keep is not stored, or has another timing: read it again
    # A worker holds it, the new due of a chain has come, or the former chain has moved on: try
    # again with another due. The attempt of a withdrawn occurrence may have begun.
    HELD = "held"


class FoundDefinitions(dict[points.ScheduleId, definition.Definition]):
    """Definitions by id; an id without one (deleted) is absent.

    Attributes:
        unreadable: ids whose record this version cannot read: these schedules are not deleted, and
            their points must not disappear silently.
    """

    unreadable: frozenset[points.ScheduleId] = frozenset()


# -- claiming (worker) ----------------------------------------------------------------------


class OccurrenceRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """State of an occurrence, stored beside its member; the order of the fields is the format.

    Attributes:
        format: of the stored record (``definitions.records``).
        attempt: how many attempts were made before this one.
        first_try_us: time of the first attempt.
        trigger: ``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``.
        run_uid: uid of the ScheduleRun, or empty.
        last_error: error class of the last attempt, or empty.
        last_cause: that error in words, cut to ``run.CAUSE_LIMIT``; or empty.
        concurrency: a policy in place of the schedule's (``Forbid``, ...), or empty.
        payload: JSON text in place of the schedule's payload, or empty.
        signature: proves that an operator of this installation wrote ``payload``
            (``records.signed_content``).
        replayed_us: when its dead letter was replayed; 0 = never. Ages count from it.
        unanswered_us: when a request to create a Job was last abandoned unanswered; 0 = never.
    """

    format: int = RECORD_FORMAT
    attempt: int = 0
    first_try_us: int = 0
    trigger: str = "Schedule"
    run_uid: str = ""
    last_error: str = ""
    concurrency: str = ""
    payload: bytes = b""
    signature: str = ""
    replayed_us: int = 0
    last_cause: str = ""
    unanswered_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Points that this worker owns until ``held_until``.

    Attributes:
        points: oldest due first; each with the due it had before it was claimed. Immutable.
        reclaimed: how often these points were claimed before and not settled; 0 for fresh ones.
        now_us: the two-clock time of the claim, min(Redis TIME, the worker's UTC + 5 ms).
        first_us: that time at the first claim of these points: until they are settled, they are
            judged as of then, however often they are taken over or given back. 0 = ``now_us``.
        held_until: monotonic end of the lease, from before the request; nothing is sent after it.
        records: state of the occurrences among the points, by member.
        unknown_members: members of unknown format, with their scores; they become dead letters.
        lanes, by_lane: the lane of each schedule among the points, and the members that the
            claim began with; like the next two, internal to the queue: pass it back.
        stored: the record of each schedule at the time of the claim; None = there is none. If this
            is empty, the records must be read again.
        entries: the shard's entry for the set of each lane; None for a namespace's lane.
        alone: how many owners vanished that had this one point and nothing else in hand; 0 for
            several points.
        unreadable: members of occurrences whose record is of unknown format; they become dead
            letters.
    """

    id: ClaimId
    shard: ShardId
    points: Sequence[points.DuePoint]
    reclaimed: int
    now_us: int
    token_us: int
    held_until: float
    records: dict[bytes, OccurrenceRecord] = field(default_factory=dict)
    unknown_members: tuple[tuple[bytes, float], ...] = ()
    lanes: Mapping[bytes, str] = field(default_factory=dict)
    alone: int = 0
    by_lane: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    stored: Mapping[bytes, bytes | None] = field(default_factory=dict)
    entries: Mapping[str, bytes | None] = field(default_factory=dict)
    unreadable: frozenset[bytes] = frozenset()
    first_us: int = 0

    @property
    def judged_us(self) -> int:
        """The instant as of which catch-up and deadline judge these points."""
        return self.first_us or self.now_us

    @property
    def is_poison(self) -> bool:
        """Whether so many owners vanished with nothing else in hand that the point is given up."""
        return self.alone >= POISON_RECLAIMS

    @property
    def is_suspect(self) -> bool:
        """Whether two owners have lost these points: one of the points may kill workers."""
        return self.reclaimed >= SUSPECT_RECLAIMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The answer of one shard to a claim: a claim, or how long to wait.

    Attributes:
        claim: None when nothing was due.
        wait_seconds: time to the next due or claim expiry, above 0; None when the shard is empty.
        more: how many further points are due that the batch could not take, as far as is known.
        has_suspects: the shard has points that have lost two owners, and the caller skipped them.
        trouble: why this shard gave no answer, though others did.
    """

    shard: ShardId
    claim: Claim | None
    wait_seconds: float | None
    more: int = 0
    has_suspects: bool = False
    trouble: errors.TryLater | None = None


# -- settling (worker) ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """An occurrence to be stored: its point and its state.

    Attributes:
        source: in a settlement, the claimed member that this follows, which the settlement ends or
            moves on: stored only if the claim still holds that member (a late owner must not add a
            retry to a slot that another worker is firing).
        origin: for a retry, the fields of a dead letter that name its schedule (namespace, name,
            uid), in case it or an older retry is one too many.
        open_limit: for a retry, how many of its schedule may be open if that is more than usual; at
            most ``MOST_OPEN_RETRIES``.
    """

    point: points.DuePoint
    record: OccurrenceRecord
    source: bytes = b""
    origin: Mapping[str, str] = field(default_factory=dict)
    open_limit: int = 0

    @property
    def most_open(self) -> int:
        """How many retries of its schedule may be open."""
        return max(OPEN_RETRIES, min(self.open_limit, MOST_OPEN_RETRIES))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A point that is given up, with the data to replay it.

    ``entry`` is a flat text map (namespace, name, uid, slot, reason, last status, attempts ...).
    ``member`` is the point that is removed with it; empty if the slot has no point of its own (the
    slot of a chain was given up, and the chain goes on): the letter is written all the same.
    """

    member: bytes
    entry: dict[str, str]


class Leaving(enum.IntEnum):
    """Why a member that has ended may leave the queue. The Lua scripts use these numbers."""

    ENDED = 0  # it leaves at once, or after its set's retention
    EXPIRED = 1  # it leaves now: the retention is over
    DEAD = 2  # its slot is a dead letter that may be replayed: it is kept for longer


@dataclass(slots=True, kw_only=True)
class Settlement:
    """How some or all points of a claim end: filled step by step, applied in one script.

    Order inside the script: retries and planned slots are stored first, then chains move, then
    finished points go, so that a crash of the server between any two writes loses nothing.
    The script ignores members that the claim no longer holds.

    Attributes:
        occurrences: new occurrences (a retry of a settled point, ...); stored unclaimed.
        planned: slots of chains that move on with this, stored under the claim if it holds the
            chain, which can be claimed again before they have ended.
        chains: chain members, each with its next due.
        finished: members that are done and disappear (occurrences, chains without a next slot).
        ended: those of them that are the chains of Schedules without a further slot: the state of
            the definition becomes completed in the same script.
        counted: members whose slots have started with this, of schedules with maxRuns: each raises
            the run count of its schedule's definition by one.
        leaving: members of sets that may have ended: one that is completed and has no occurrence
            left leaves the queue.
        dead: letters of members that are given up: these go to the dead letters and are removed.
        events: the events of all these; packed into ``outcomes`` when they are sent.
        outcomes: packed outcomes for the ``runs`` stream; empty = none. Written even when the
            claim is lost, and marked so: they report runs, and end no slot.
        left: runs that counted for the concurrency policy of their Schedule and have ended.
        number: number of a partial settlement, rising within the claim, from 1; repeating one
            changes nothing.
    """

    occurrences: list[Occurrence] = field(default_factory=list)
    planned: list[Occurrence] = field(default_factory=list)
    chains: list[tuple[bytes, int]] = field(default_factory=list)
    finished: list[bytes] = field(default_factory=list)
    ended: list[bytes] = field(default_factory=list)
    counted: list[bytes] = field(default_factory=list)
    leaving: list[tuple[points.ScheduleId, Leaving]] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    events: list[run.RunEvent | run.Together] = field(default_factory=list)
    outcomes: bytes = b""
    left: list[activeruns.EndedRun] = field(default_factory=list)
    number: int = 1

    def move(self, chain: bytes, following: slots.DueSlot | None) -> None:
        """Move the chain on to this slot; None = it has no further one, and its Schedule ends."""
        if following is None:
            self.finished.append(chain)
            self.ended.append(chain)
        else:
            self.chains.append((chain, following.due_us))

    def add(self, other: Settlement) -> None:
        """Add everything that the other settlement does."""
        for name in _GATHERED:
            if more := getattr(other, name):
                getattr(self, name).extend(more)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added to it."""
        return not any(getattr(self, name) for name in _GATHERED)


_GATHERED = tuple(
    one.name for one in dataclasses.fields(Settlement) if one.name not in {"outcomes", "number"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How much of a settlement was applied.

    Attributes:
        lost: the claim is gone: only the outcomes were written.
        applied: number of members that were still held and are settled now.
        remaining: members that the claim still holds.
        buried: retries that were too many for their schedule; they are dead letters now, and
            ``runs`` has their events.
        not_held: planned slots that the claim does not hold: fire none of them.
    """

    lost: bool
    applied: int
    remaining: int
    buried: tuple[bytes, ...] = ()
    not_held: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEntries:
    """Entries of one form for one user's stream, each caused by one claimed member.

    Attributes:
        max_length: about how many entries the stream keeps.
        same: name, value, name, value ... of the fields that are the same in all entries.
        names: names of the other fields.
        members: the claimed member that causes each entry.
        values: the values of ``names``, entry by entry.
    """

    namespace: str
    name: str
    max_length: int
    names: Sequence[str]
    members: Sequence[bytes]
    values: Sequence[Sequence[bytes | str]]
    same: Sequence[bytes | str] = ()


# -- layout and membership ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the index is sharded: generation number of the layout and its number of shards.

    Attributes:
        former: while the index is being resharded, the layout whose shards still hold some of it.
    """

    number: int
    shards: int
    former: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The answer to a worker's keepalive: the living workers, and the layout of the index.

    ``incarnation`` changes whenever the layout is created anew (an emptied Redis).
    """

    workers: tuple[str, ...]
    layout: Layout | None
    incarnation: str
    time_us: int
