"""What goes into the delay queue and what comes out of it, as frozen values.

These shapes are the port: ``delayqueue.DelayQueue`` speaks them to Redis,
``tests.fakes.memoryqueue`` to a dict, and one conformance suite holds both to them.
Instants are microseconds since the epoch; ``held_until`` is on the caller's monotonic clock.
Nobody outside this package sees a raw reply.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

import msgspec

from duepoint import errors
from duepoint.schedules import definition, points

ShardId = NewType("ShardId", int)
ClaimId = NewType("ClaimId", bytes)
"""12 random bytes, made by the worker; who holds it owns the points claimed under it."""
Epoch = NewType("Epoch", int)
"""Number of the leader's term; a maintenance script refuses one below the newest it has seen."""

#: A point that so many owners died of with nothing else in hand belongs to the dead letters.
POISON_RECLAIMS = 3
#: Points taken over so often have lost two owners: a worker has one such claim in hand at a time.
DOUBTFUL_RECLAIMS = 2

#: Retries of one schedule that may be open, unless its catch-up policy runs more; of more, the
#: oldest becomes a dead letter.
OPEN_RETRIES = 100
MOST_OPEN_RETRIES = 1_000


# -- arming (operator) ----------------------------------------------------------------------


class Arming(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A definition, with the chain point it wants.

    Attributes:
        due_us: due of the chain point; None where there is none (suspended, completed) and, with
            ``keep_chain``, where the chain goes on as it is. With ``keep_chain`` a chain that is
            due neither yet nor by ``after_us`` gets this due.
        after_us: with ``keep_chain`` the due is that of the first slot after this instant.
        keep_chain: the timing version did not change: points, claims and retries are left alone.
        open: occurrences that are stored with it: slots that were open when the index was lost.
            One that is in the queue already stays as it is. Not together with ``keep_chain``.
        replaces: fingerprint of the definition that this replaces though its generation is no
            newer; empty = only an older generation is replaced.
    """

    definition: definition.Definition
    due_us: int | None
    after_us: int = 0
    keep_chain: bool = False
    open: tuple[Occurrence, ...] = ()
    replaces: bytes = b""


class Armed(enum.StrEnum):
    """What became of an upsert or a removal."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"  # same or older generation of the same uid; or nothing to remove
    COLLISION = "collision"  # the id belongs to another uid: hash again with a counter
    CHANGED = "changed"  # the chain to be kept is not stored, or of another timing: read it again
    # A worker holds it, or the due that a chain was to get has come meanwhile: that is asked for
    # again soon, with another due. Of what was withdrawn the attempt may have begun.
    HELD = "held"


class Found(dict[points.ScheduleId, definition.Definition]):
    """Definitions by id; an id without one (deleted) is absent.

    Attributes:
        unreadable: ids under which something stands that this version cannot read: no deleted
            schedules, and none whose points may disappear unseen.
    """

    unreadable: frozenset[points.ScheduleId] = frozenset()


# -- claiming (worker) ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceRecord:
    """State of an occurrence beside its member.

    Attributes:
        attempt: how many attempts were made before this one.
        first_try_us: time of the first attempt.
        trigger: ``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``.
        run_uid: uid of the ScheduleRun, or empty.
        last_error: error class of the last attempt, or empty.
        last_cause: the same in words, cut to ``run.CAUSE_LIMIT``; or empty.
        concurrency: a policy in place of the schedule's (``Forbid``, ...), or empty.
        payload: JSON text in place of the schedule's payload, or empty.
        seal: proves that an operator of this installation wrote ``payload`` (``records.sealed``).
        replayed_us: when it was taken back from the dead letters; 0 = never. Ages count from it.
        back_us: of a held point: up to which instant it stands for slots, and as of which they are
            judged; 0 = it is none.
        from_us: of a held point: the first slot that is still to be judged.
        settled_us: of a held point: slots up to here ended once and are not missed if they do not
            run again.
        ended_us: of a held point: slots that have ended, among those to be judged.
        unanswered_us: when a request to make a Job was last given up without an answer; 0 = never.
    """

    attempt: int = 0
    first_try_us: int = 0
    trigger: str = "Schedule"
    run_uid: str = ""
    last_error: str = ""
    concurrency: str = ""
    payload: bytes = b""
    seal: str = ""
    replayed_us: int = 0
    back_us: int = 0
    from_us: int = 0
    settled_us: int = 0
    ended_us: tuple[int, ...] = ()
    last_cause: str = ""
    unanswered_us: int = 0


#: Definitions by id; None = there is none (any more).
KnownDefinitions = Mapping[points.ScheduleId, definition.Definition | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Points that this worker owns until ``held_until``.

    Attributes:
        points: oldest due first; each with the due it had before it was claimed. Immutable.
        reclaimed: how often these points were claimed before and not settled; 0 for fresh ones.
        now_us: the two-clock time of the claim, min(Redis TIME, the worker's UTC + 5 ms).
        first_us: that time of the first claim of these points: what was claimed, and not settled,
            is judged as of then, however often it was taken over or given back. 0 = ``now_us``.
        held_until: monotonic seconds from before the request; nothing is sent after it.
        records: state of the occurrences among the points, by member.
        strangers: members whose bytes are of no known format; they belong to the dead letters.
        lanes: lane number of each schedule among the points; the queue's own, pass it back.
        alone: how many owners that had this one point in hand and nothing else (``isolate``) were
            not heard of again; 0 for several points.
        definitions: those that were read behind the claim; None = there is none. The others are
            to be read.
        unreadable: members of occurrences whose record is of no known format; they belong to the
            dead letters.
        back_us: the server went back, and what was due until then is to be compared before it runs:
            of a chain that is due by then only the slots after it are this worker's; 0 = none.
    """

    id: ClaimId
    shard: ShardId
    points: Sequence[points.DuePoint]
    reclaimed: int
    now_us: int
    token_us: int
    held_until: float
    records: dict[bytes, OccurrenceRecord] = field(default_factory=dict)
    strangers: tuple[tuple[bytes, float], ...] = ()
    lanes: Mapping[bytes, int] = field(default_factory=dict)
    alone: int = 0
    definitions: KnownDefinitions = field(default_factory=dict)
    unreadable: frozenset[bytes] = frozenset()
    back_us: int = 0
    first_us: int = 0

    @property
    def judged_us(self) -> int:
        """The instant as of which catch-up and deadline judge these points."""
        return self.first_us or self.now_us

    @property
    def is_poison(self) -> bool:
        """Whether its owners vanished so often with nothing else in hand that it is given up on."""
        return self.alone >= POISON_RECLAIMS

    @property
    def is_doubtful(self) -> bool:
        """Whether two owners have lost these points: one of them may be what ends workers."""
        return self.reclaimed >= DOUBTFUL_RECLAIMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """Answer to one look at one shard: a claim, or how long to wait.

    Attributes:
        claim: None when nothing was due.
        wait_seconds: time to the next due or claim expiry, >= 0.001; None when the shard is empty.
        more: more points are due than the batch could take.
        left_alone: there are points here that have lost two owners, and the caller was wary.
        trouble: why this shard could not be looked at, though others could.
    """

    shard: ShardId
    claim: Claim | None
    wait_seconds: float | None
    more: bool = False
    left_alone: bool = False
    trouble: errors.TryLater | None = None


# -- settling (worker) ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """An occurrence to be stored: its point and its state.

    Attributes:
        source: in a settlement, the claimed member that this follows: stored only where the claim
            still holds that member (a late owner must not add a retry to what another worker is
            firing). Empty = stored whenever the claim is held at all.
        origin: of a retry, what a dead letter says of its schedule (namespace, name, uid), should
            it or an older one be one too many.
        open_limit: of a retry, how many of its schedule may be open, where that is more than
            usual; at most ``MOST_OPEN_RETRIES``.
    """

    point: points.DuePoint
    record: OccurrenceRecord
    source: bytes = b""
    origin: Mapping[str, str] = field(default_factory=dict)
    open_limit: int = 0

    @property
    def most_open(self) -> int:
        """Retries of its schedule that may be open."""
        return max(OPEN_RETRIES, min(self.open_limit, MOST_OPEN_RETRIES))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A point that is given up on, with what is needed to replay it.

    ``entry`` is a flat text map (namespace, name, uid, slot, reason, last status, attempts ...).
    ``member`` is the point that disappears with it; empty where the slot has no point of its own
    (a chain's slot was given up on and the chain goes on): the letter is written all the same.
    """

    member: bytes
    entry: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What has become of some or all points of a claim, applied in one script.

    Order inside the script: retries and planned slots are stored first, then chains move, then
    what is finished goes, so that a crash of the server between any two writes loses nothing.
    Every member named here that the claim does not hold any more is left alone.

    Attributes:
        occurrences: new occurrences (a retry of a settled point, ...); stored unclaimed.
        chains: chain points at their next due; the old claimed score is replaced.
        rearmed: the same as ``chains`` for many at a time: chain members and their next dues,
            best as ``rearming.Rearmed``.
        finished: members that are done and disappear (occurrences, chains without a next slot).
        whole: every point of the claim is finished, as if ``finished`` named them all. Only for a
            claim of chains, and only in its first settlement.
        ended: schedule ids whose chain finished for good: their definition's state becomes
            completed in the same script.
        counted: members whose slots have started by this, of schedules with maxRuns: each raises
            the run count of its schedule's definition by one.
        dead: members given up on: they go to the ``dead`` stream and disappear.
        outcomes: packed outcomes for the ``runs`` stream; empty = none. Written even when the
            claim is lost, and marked so: they tell of runs, and end no slot.
        number: number of a partial settlement, rising within the claim, from 1; repeating one
            changes nothing.
    """

    occurrences: tuple[Occurrence, ...] = ()
    chains: tuple[points.DuePoint, ...] = ()
    rearmed: Sequence[tuple[bytes, int]] = ()
    finished: tuple[bytes, ...] = ()
    whole: bool = False
    ended: tuple[points.ScheduleId, ...] = ()
    counted: tuple[bytes, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    outcomes: bytes = b""
    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How much of a settlement was applied.

    Attributes:
        lost: the claim id is gone: nothing but the outcomes was written.
        applied: number of members that were still held and are settled now.
        remaining: members that the claim still holds.
        buried: retries that were one too many for their schedule, with their records; they are
            dead letters now, and ``runs`` says so.
    """

    lost: bool
    applied: int
    remaining: int
    buried: tuple[tuple[bytes, OccurrenceRecord], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Entries of one form for one user's stream, each because of one claimed member.

    Attributes:
        max_length: entries that the stream keeps, about.
        same: name, value, name, value ... of the fields that all entries have alike.
        names: names of the other fields.
        members: what each entry is because of.
        values: the values of ``names``, entry by entry.
        outcomes: packed outcomes, written with these entries.
    """

    namespace: str
    name: str
    max_length: int
    names: Sequence[str]
    members: Sequence[bytes]
    values: Sequence[Sequence[bytes | str]]
    same: Sequence[bytes | str] = ()
    outcomes: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """What became of entries and the settlement that goes with them: both or neither.

    Attributes:
        done: they are in, now or by an earlier call under this number.
        held: where not done: whether the claim still holds each member.
        lost: the claim is gone: it ran out, or it ended with this very settlement and the reply to
            that was lost. Otherwise what is not held was taken out of the queue, undelivered.
        refused: where one stream of several took nothing: for each why, or ''; the points of that
            one are still held.
    """

    done: bool
    held: tuple[bool, ...] = ()
    lost: bool = False
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """Turns an overdue chain point of a claim into chosen slots plus the chain's next due.

    Attributes:
        chain: the claimed chain point.
        slots: chosen slots as occurrences of this claim (kind PLANNED), oldest first.
        next_due_us: due of the chain's next slot, or None where there is none.
        outcomes: packed outcomes; those of one call are written where any of its plans was
            applied.
    """

    chain: points.DuePoint
    slots: tuple[Occurrence, ...]
    next_due_us: int | None
    outcomes: bytes = b""


# -- layout and membership ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the index is cut: generation number of the layout and its number of shards.

    Attributes:
        former: while the index is being cut anew, the layout whose shards still hold some of it.
    """

    number: int
    shards: int
    former: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Answer to a worker's keepalive: who lives, and what the index looks like.

    ``incarnation`` changes whenever the layout was made anew (an emptied Redis).
    """

    workers: tuple[str, ...]
    layout: Layout | None
    incarnation: str
    time_us: int


# -- partitioning -----------------------------------------------------------------------------


class Asked(enum.StrEnum):
    """Answer to the wish for another number of shards."""

    ASKED = "asked"  # the leader begins within seconds
    DONE = "done"  # the index has that many
    MOVING = "moving"  # it is being cut into that many
    OTHER = "other"  # it is being cut into another number: ask again afterwards


class Phase(enum.StrEnum):
    """How far the way to a new layout is."""

    STABLE = "stable"
    ANNOUNCED = "announced"  # workers learn of the new shards
    MOVING = "moving"  # schedules move
    CLOSING = "closing"  # what is left are outcomes that nobody has read yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """The index' layout and, while it is cut anew, how far that is.

    Attributes:
        shards: of the layout that new schedules go to.
        former_shards: of the one that is being emptied; 0 = none is.
        wanted: asked for and not begun; 0 = nothing.
        moved, left: definitions, as counted at the beginning and since.
        waiting: for what the move waits, in words; empty = for nothing.
    """

    layout: int
    shards: int
    former_shards: int
    wanted: int
    phase: Phase
    moved: int
    left: int
    waiting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What one step of a move did.

    Attributes:
        cursor: where to go on, or None at the end of a pass over the shard.
        moved: schedules that went.
        left_out: schedules and points that a worker holds; they go in a later pass.
        damaged: schedules and points that could not be read, or had lost their chain: they are to
            be compared with the objects.
    """

    cursor: str | None
    moved: int = 0
    left_out: int = 0
    damaged: int = 0


# -- a server that went back -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubted:
    """A shard of a server that went back.

    Attributes:
        back_us: what was due until then waits; 0 = nothing more comes to what is held already.
    """

    shard: ShardId
    back_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPoint:
    """A point that waits to be compared.

    Attributes:
        lane: the queue's own, pass it back.
        record: None where it cannot be read: it is for a worker to bury.
        definition: None where there is none (any more).
    """

    lane: int | str
    point: points.DuePoint
    record: OccurrenceRecord | None
    definition: definition.Definition | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What the comparison of some held points of a shard says.

    Attributes:
        gone: those that have ended.
        due: those that are due now, each with the record that it goes on with (None: its own).
        chains: chains that waited as a whole, with the instants at which they are due.
        started: schedules with maxRuns, and how many of their runs have started at least.
        added: occurrences that the server has lost, each beside a held point of its schedule.
    """

    gone: list[HeldPoint] = field(default_factory=list)
    due: list[tuple[HeldPoint, OccurrenceRecord | None]] = field(default_factory=list)
    chains: list[tuple[HeldPoint, int]] = field(default_factory=list)
    started: list[tuple[points.ScheduleId, int]] = field(default_factory=list)
    added: list[tuple[HeldPoint, Occurrence]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.gone) + len(self.due) + len(self.chains) + len(self.added)


# -- looking (resync, repair, inspection) -----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a resync compares with the objects: a stored definition in short.

    Attributes:
        due_us: due of its chain point; None where it has none, or where a worker holds it.
        claimed: a worker holds the chain point just now.
    """

    id: points.ScheduleId
    shard: ShardId
    uid: str
    namespace: str
    name: str
    generation: int
    timing_generation: int
    state: definition.State
    due_us: int | None
    claimed: bool = False


class Known(NamedTuple):
    """What a comparison with the objects needs of a stored definition; there may be millions.

    ``collision`` counts the ids that others had before; ``fingerprint`` is of what this was made
    from.
    """

    uid: str
    namespace: str
    name: str
    generation: int
    collision: int
    fingerprint: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOccurrence:
    """An occurrence that the queue holds, claimed or not: a slot that has not ended."""

    schedule_id: points.ScheduleId
    timing_version: points.TimingVersion
    kind: points.PointKind
    slot_us: int
    record: OccurrenceRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one step of the sweep looked at and mended.

    Attributes:
        cursor: where to go on, or None when the shard is done.
        looked_at: definitions and points seen in this step.
        armed: chains that were missing and stand now.
        dropped: points without a definition, or of an old timing version, that are gone now.
        mended: heads, occurrence records and claims put right.
        unarmed: definitions that should have a chain, for which no due was given.
    """

    cursor: str | None
    looked_at: int = 0
    armed: int = 0
    dropped: int = 0
    mended: int = 0
    unarmed: tuple[points.ScheduleId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStats:
    """How full one shard is.

    Attributes:
        lag_us: how long the oldest unclaimed point has been due; 0 when none is.
    """

    shard: ShardId
    points: int
    due: int
    claimed: int
    claims: int
    outcomes: int
    dead: int
    lag_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What one step of looking for unused blobs has marked or removed.

    Attributes:
        texts_removed: interned rules and digests that are gone now.
    """

    marked: int = 0
    removed: int = 0
    texts_removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How full the whole index is.

    Attributes:
        points: those that wait; the ones that a worker holds are not among them.
        lag_us: how long the oldest of them has been due; 0 when none is.
    """

    points: int
    due: int
    outcomes: int
    dead: int
    lag_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeEntry:
    """One entry of a shard's ``runs`` stream, as the reporter reads it.

    Attributes:
        is_lost: told by a claim that was not there (any more): its slots are for others to end.
        back_us: not outcomes, but that the server went back; 0 = outcomes.
    """

    shard: ShardId
    id: str
    outcomes: bytes
    is_lost: bool = False
    back_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEntry:
    """One entry of a shard's ``dead`` stream."""

    shard: ShardId
    id: str
    member: bytes
    entry: dict[str, str]
