"""Due points: the entries of the delay queue, their identities and their encoding in bytes.

Defines the id of a schedule in the queue and the member formats. A *chain* point (12 bytes:
id, timing version) stands for "the first slot not yet handed over" of an armed schedule; an
*occurrence* (21 bytes, or 25 with a run tag: id, timing version, kind, slot in microseconds
[, run tag]) is one slot on its own: a retry, a planned catch-up slot, a queued one, a manual or
backfilled run, a check, the *expiry* of a member that has ended. Integers are big-endian, so that
a range by id finds all occurrences of a schedule in byte order.

Pure. Only ``parse_member`` reads the members made here. These formats are stored: a change needs
a new record format number and a reader for the old one.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from dataclasses import dataclass
from typing import NewType

import msgspec


class SetIdentity(msgspec.Struct, frozen=True, order=True):
    """The identity of a ScheduleSet; ``spread`` bits of its members' ids spread them in a shard."""

    uid: str
    namespace: str
    name: str
    spread: int = 0

    @property
    def text(self) -> bytes:
        """The identity in the names of lanes; ``parse_set`` reads it."""
        return f"{self.uid}/{self.namespace}/{self.name}/{self.spread}".encode()


@functools.lru_cache(maxsize=16_384)
def parse_set(text: bytes) -> SetIdentity:
    """Return the identity in a text of ``SetIdentity.text``; raises ValueError for any other."""
    uid, namespace, name, spread = text.decode().split("/")
    return SetIdentity(uid, namespace, name, int(spread))


# -- ids of points ---------------------------------------------------------------------------------

ScheduleId = NewType("ScheduleId", bytes)
"""8 bytes, big-endian; its low bits choose the shard."""

TimingVersion = NewType("TimingVersion", bytes)
"""4 bytes; new at create and at each change of a timing field, and only then."""

RunTag = NewType("RunTag", bytes)
"""First 4 bytes of SHA-256 of a ScheduleRun's uid; empty for regular slots."""

NO_RUN = RunTag(b"")
#: The timing version of points that no edit supersedes.
NO_VERSION = TimingVersion(bytes(4))

CHAIN_LENGTH = 12
OCCURRENCE_LENGTH = 21
TAGGED_OCCURRENCE_LENGTH = 25

#: Dues lie in [0, DUE_LIMIT_US); higher scores are claims (lease expiry + DUE_LIMIT_US).
DUE_LIMIT_US = 2**52

# Bits 2-15 of an id come from the namespace: with 64 shards (bits 0-5) a namespace uses four.
_NAMESPACE_BITS = 0xFFFC


class PointKind(enum.IntEnum):
    """Why a point exists. The numbers are stored."""

    CHAIN = 0
    RETRY = 1
    PLANNED = 2
    QUEUED = 3
    MANUAL = 4
    BACKFILL = 5
    CHECK = 6
    EXPIRY = 7


#: Kinds of points that come from a ScheduleRun.
RUN_KINDS = frozenset({PointKind.MANUAL, PointKind.BACKFILL})
#: Kinds of occurrences that attempt a slot, or wait to attempt it.
TRIED_KINDS = RUN_KINDS | {PointKind.RETRY, PointKind.PLANNED, PointKind.QUEUED}
#: Kinds that an edit of the timing supersedes; the others continue with the newest definition.
TIMED_KINDS = frozenset({PointKind.CHAIN, PointKind.PLANNED, PointKind.QUEUED, PointKind.EXPIRY})


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePoint:
    """One entry of the queue.

    Attributes:
        slot_us: the slot's UTC time; for a chain point the newest slot at or before its due.
        due_us: when it may be claimed (slot + jitter, or the time of a retry).
    """

    schedule_id: ScheduleId
    timing_version: TimingVersion
    kind: PointKind
    due_us: int
    slot_us: int
    run_tag: RunTag = NO_RUN

    @property
    def member(self) -> bytes:
        """The bytes of this point in a sorted set."""
        head = self.schedule_id + self.timing_version
        if self.kind is PointKind.CHAIN:
            return head
        return head + bytes([self.kind]) + self.slot_us.to_bytes(8, "big") + self.run_tag


def chain(schedule_id: ScheduleId, version: TimingVersion, due_us: int) -> DuePoint:
    """Return the chain point of a schedule; after a claim its slot is derived from the due."""
    return DuePoint(
        schedule_id=schedule_id,
        timing_version=version,
        kind=PointKind.CHAIN,
        due_us=due_us,
        slot_us=due_us,
    )


def check(schedule_id: ScheduleId, version: TimingVersion, generation: int) -> DuePoint:
    """Return the point to check what a generation refers to; its slot is the generation.

    So each generation has a check of its own, even if an older one's is still in flight.
    """
    return DuePoint(
        schedule_id=schedule_id,
        timing_version=version,
        kind=PointKind.CHECK,
        due_us=0,
        slot_us=generation,
    )


def manual(schedule_id: ScheduleId, slot_us: int, run_uid: str, kind: PointKind) -> DuePoint:
    """Return the point for a slot of a ScheduleRun; ``kind`` is MANUAL or BACKFILL.

    No edit supersedes it, so it has no timing version: added again after an edit, it is the same
    point.
    """
    return DuePoint(
        schedule_id=schedule_id,
        timing_version=NO_VERSION,
        kind=kind,
        due_us=0,
        slot_us=slot_us,
        run_tag=run_tag(run_uid),
    )


def parse_member(member: bytes, due_us: int) -> DuePoint | None:
    """Return the point of a stored member, or None if the bytes are not one of ours."""
    if len(member) == CHAIN_LENGTH:
        return chain(ScheduleId(member[:8]), TimingVersion(member[8:12]), due_us)
    if len(member) not in (OCCURRENCE_LENGTH, TAGGED_OCCURRENCE_LENGTH):
        return None
    slot_us = int.from_bytes(member[13:21], "big")
    if not PointKind.RETRY <= member[12] <= PointKind.EXPIRY or slot_us >= DUE_LIMIT_US:
        return None
    return DuePoint(
        schedule_id=ScheduleId(member[:8]),
        timing_version=TimingVersion(member[8:12]),
        kind=PointKind(member[12]),
        due_us=due_us,
        slot_us=slot_us,
        run_tag=RunTag(member[21:]),
    )


def slot_of(member: bytes) -> int:
    """Return the slot of an occurrence; 0 for an unknown member, which becomes a dead letter."""
    point = parse_member(member, 0)
    return 0 if point is None else point.slot_us


def schedule_id(uid: str, namespace: str) -> ScheduleId:
    """Return the id of a Schedule: 64 bits of its uid's hash, with 14 replaced by its namespace's.

    Of 100,000 Schedules in one namespace, two have the same id once in 200,000 installations.
    """
    own = hashlib.sha256(uid.encode()).digest()
    return ScheduleId(own[:6] + _last_bytes(namespace)[own[7] & 3])


@functools.lru_cache(maxsize=10_000)
def _last_bytes(namespace: str) -> tuple[bytes, ...]:
    """Return the last two bytes of an id, for each value of the two bits that are its own."""
    digest = hashlib.sha256(namespace.encode()).digest()
    bits = int.from_bytes(digest[6:8], "big") & _NAMESPACE_BITS
    return tuple((bits | own).to_bytes(2, "big") for own in range(4))


#: Bits 0-5 of a member's id are its own, so that a set uses all of 64 shards.
_MEMBERS_OWN_BITS = 6


def member_id(owner: SetIdentity, name: str) -> ScheduleId:
    """Return the id of a member: 64 bits of a hash of set and member, some of them the set's.

    Bits 0-5 and 16-63 are the member's own, and so are ``spread`` bits from bit 6 on. The others
    up to bit 15 are the set's. So the members of a set lie in few populations of a shard, and all
    of them can be listed.
    """
    own = hashlib.sha256(f"{owner.uid}/{name}".encode()).digest()
    kept, of_set = member_bits(owner.uid, owner.spread)
    low = int.from_bytes(own[6:8], "big") & kept | of_set
    return ScheduleId(own[:6] + low.to_bytes(2, "big"))


@functools.lru_cache(maxsize=10_000)
def member_bits(set_uid: str, spread: int) -> tuple[int, int]:
    """Return a mask of a member's own bits in the last two bytes of its id, and its set's bits."""
    own = (1 << _MEMBERS_OWN_BITS + spread) - 1
    digest = hashlib.sha256(set_uid.encode()).digest()
    return own, int.from_bytes(digest[6:8], "big") & ~own & 0xFFFF


def timing_version(uid: str, timing_generation: int) -> TimingVersion:
    """Return the tag of all points armed since the last edit of a timing field."""
    digest = hashlib.sha256(f"{uid}/{timing_generation}".encode()).digest()
    return TimingVersion(digest[:4])


def run_tag(run_uid: str) -> RunTag:
    """Return a tag that distinguishes two manual runs of one slot."""
    return RunTag(hashlib.sha256(run_uid.encode()).digest()[:4])
