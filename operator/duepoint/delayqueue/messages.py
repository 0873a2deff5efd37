"""What goes into the delay queue and what comes out of it, as frozen values.

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
"""12 random bytes, made by the worker; who holds it owns the points claimed under it."""
Epoch = NewType("Epoch", int)
"""Number of the leader's term; a maintenance script refuses one below the newest it has seen."""

#: Of the record of an occurrence.
RECORD_FORMAT = 1
#: A point that so many owners died of with nothing else in hand belongs to the dead letters.
POISON_RECLAIMS = 3
#: Points taken over so often have lost two owners: a worker has one such claim in hand at a time.
SUSPECT_RECLAIMS = 2

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
        replaces: fingerprint of the definition from which this was decided: that one is replaced
            whatever its generation, and another one only by a newer generation; empty = none was
            there.
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


class FoundDefinitions(dict[points.ScheduleId, definition.Definition]):
    """Definitions by id; an id without one (deleted) is absent.

    Attributes:
        unreadable: ids under which something stands that this version cannot read: no deleted
            schedules, and none whose points may disappear unseen.
    """

    unreadable: frozenset[points.ScheduleId] = frozenset()


# -- claiming (worker) ----------------------------------------------------------------------


class OccurrenceRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """State of an occurrence beside its member; the order of the fields is stored.

    Attributes:
        format: of the stored record (``definitions.records``).
        attempt: how many attempts were made before this one.
        first_try_us: time of the first attempt.
        trigger: ``Schedule``, ``CatchUp``, ``Manual`` or ``Backfill``.
        run_uid: uid of the ScheduleRun, or empty.
        last_error: error class of the last attempt, or empty.
        last_cause: the same in words, cut to ``run.CAUSE_LIMIT``; or empty.
        concurrency: a policy in place of the schedule's (``Forbid``, ...), or empty.
        payload: JSON text in place of the schedule's payload, or empty.
        signature: proves that an operator of this installation wrote ``payload``
            (``records.signed_content``).
        replayed_us: when it was taken back from the dead letters; 0 = never. Ages count from it.
        unanswered_us: when a request to make a Job was last given up without an answer; 0 = never.
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
        first_us: that time of the first claim of these points: what was claimed, and not settled,
            is judged as of then, however often it was taken over or given back. 0 = ``now_us``.
        held_until: monotonic seconds from before the request; nothing is sent after it.
        records: state of the occurrences among the points, by member.
        unknown_members: those whose bytes are of no known format; they belong to the dead letters.
        lanes, by_lane: the lane of each schedule among the points, and the members that the
            claim began with; as the next two the queue's own, pass it back.
        stored: the record of each schedule as it was when this was claimed; None = there is none.
            Empty: they are to be read again.
        entries: what the shard said of the set of each lane; None of a namespace's lane.
        alone: how many owners that had this one point in hand and nothing else were not heard of
            again; 0 for several points.
        unreadable: members of occurrences whose record is of no known format; they belong to the
            dead letters.
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
        """Whether its owners vanished so often with nothing else in hand that it is given up on."""
        return self.alone >= POISON_RECLAIMS

    @property
    def is_suspect(self) -> bool:
        """Whether two owners have lost these points: one of them may be what ends workers."""
        return self.reclaimed >= SUSPECT_RECLAIMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """Answer to one look at one shard: a claim, or how long to wait.

    Attributes:
        claim: None when nothing was due.
        wait_seconds: time to the next due or claim expiry, above 0; None when the shard is empty.
        more: so many points are due that the batch could not take, as far as is known.
        has_suspects: there are points here that have lost two owners, and the caller skipped them.
        trouble: why this shard could not be looked at, though others could.
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
    (a chain's slot was given up on and the chain goes on): it is written all the same.
    """

    member: bytes
    entry: dict[str, str]


class Leaving(enum.IntEnum):
    """Why a member that has come to its end may leave the queue. The numbers are known to Lua."""

    ENDED = 0  # at once, or when it was kept for as long as its set says
    EXPIRED = 1  # now: it was kept so long
    DEAD = 2  # its slot is a dead letter, which may be replayed: it is kept for longer


@dataclass(slots=True, kw_only=True)
class Settlement:
    """What becomes of some or all points of a claim: filled step by step, applied in one script.

    Order inside the script: retries and planned slots are stored first, then chains move, then
    what is finished goes, so that a crash of the server between any two writes loses nothing.
    Every member named here that the claim does not hold any more is left alone.

    Attributes:
        occurrences: new occurrences (a retry of a settled point, ...); stored unclaimed.
        chains: chain members, each with the due at which it goes on.
        finished: members that are done and disappear (occurrences, chains without a next slot).
        ended: those of them that are the chains of Schedules without a further slot: the state of
            the definition becomes completed in the same script.
        counted: members whose slots have started by this, of schedules with maxRuns: each raises
            the run count of its schedule's definition by one.
        leaving: members of sets that may have come to their end: one that is completed, and of
            which no occurrence is left, leaves the queue.
        dead: members given up on: they go to the ``dead`` stream and disappear.
        events: the news of all that; packed into ``outcomes`` when they are sent.
        outcomes: packed outcomes for the ``runs`` stream; empty = none. Written even when the
            claim is lost, and marked so: they tell of runs, and end no slot.
        left: runs that counted for the concurrency policy of their Schedule and have ended.
        number: number of a partial settlement, rising within the claim, from 1; repeating one
            changes nothing.
    """

    occurrences: list[Occurrence] = field(default_factory=list)
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
        """The chain goes on at this slot; None = it has no further one, and its Schedule ends."""
        if following is None:
            self.finished.append(chain)
            self.ended.append(chain)
        else:
            self.chains.append((chain, following.due_us))

    def finish(self, member: bytes) -> None:
        """The point is done."""
        self.finished.append(member)

    def retry(self, occurrence: Occurrence) -> None:
        """The slot is due again, at this occurrence."""
        self.occurrences.append(occurrence)

    def bury(self, letter: DeadLetter) -> None:
        """The point is given up on."""
        self.dead.append(letter)

    def leave(self, schedule_id: points.ScheduleId, why: Leaving) -> None:
        """The member of a set may have come to its end."""
        self.leaving.append((schedule_id, why))

    def report(self, *events: run.RunEvent | run.Together) -> None:
        """Tell this of the slots."""
        self.events += events

    def add(self, other: Settlement) -> None:
        """What the other one does, too."""
        for name in _GATHERED:
            if more := getattr(other, name):
                getattr(self, name).extend(more)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was put into it."""
        return not any(getattr(self, name) for name in _GATHERED)


_GATHERED = tuple(
    one.name
    for one in dataclasses.fields(Settlement)
    if one.name not in {"outcomes", "history", "number"}
)


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
class StreamEntries:
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
class DeliveryResult:
    """What became of entries and the settlement that goes with them: both or neither.

    Attributes:
        done: they are in, now or by an earlier call under this number.
        held: where not done: whether the claim still holds each member.
        lost: the claim is gone: it ran out, or it ended with this very settlement and the reply to
            that was lost. Otherwise what is not held was taken out of the queue, undelivered.
    """

    done: bool
    held: tuple[bool, ...] = ()
    lost: bool = False


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
        former: while the index is being resharded, the layout whose shards still hold some of it.
    """

    number: int
    shards: int
    former: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Answer to a worker's keepalive: who lives, and what the index looks like.

    ``incarnation`` changes whenever the layout was created anew (an emptied Redis).
    """

    workers: tuple[str, ...]
    layout: Layout | None
    incarnation: str
    time_us: int
