"""One shard of the delay queue in dictionaries: what each Lua script does, without Redis.

Each method is one script: it happens at once, and answers as the script does. The state mirrors
the keys (points, claims, occurrences, definitions, blobs, streams), so that a difference between
this and Redis shows in the suite that runs on both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.firing import crowding
from duepoint.schedules import definition as definitions
from duepoint.schedules import points

_Definition = definitions.Definition  # the shard has a field of the module's name


@dataclass(slots=True)
class Point:
    """A member: where it is, when it is due, and who holds it."""

    lane: str
    due_us: int
    holder: messages.ClaimId | None = None


@dataclass(slots=True)
class Lease:
    """A claim as the shard knows it."""

    expiry_us: int
    attempts: int = 0
    suspects: tuple[messages.ClaimId, ...] = ()
    number: int = 0

    @property
    def alone(self) -> int:
        """How many owners were not heard of again that held the one point alone."""
        return len(self.suspects)


@dataclass(slots=True)
class MemoryShard:
    """The state of one shard."""

    number: messages.ShardId
    epoch: int
    definitions: dict[points.ScheduleId, definitions.Definition] = field(default_factory=dict)
    blobs: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    members: dict[bytes, Point] = field(default_factory=dict)
    records: dict[bytes, messages.OccurrenceRecord] = field(default_factory=dict)
    leases: dict[messages.ClaimId, Lease] = field(default_factory=dict)
    outcomes: dict[int, bytes] = field(default_factory=dict)
    dead: list[messages.DeadEntry] = field(default_factory=list)
    added: int = 0
    state: str = "open"

    # -- arming ---------------------------------------------------------------------------------

    def upsert(self, arming: messages.Arming, blob: bytes) -> messages.Armed | None:
        """None: the chain that was to be kept is not there."""
        new = arming.definition
        old = self.definitions.get(new.id)
        if old is not None and old.uid != new.uid:
            return messages.Armed.COLLISION
        if old is not None and new.generation <= old.generation:
            return messages.Armed.UNCHANGED
        if old is not None and None not in (old.runs_left, new.runs_left):
            new = msgspec.structs.replace(new, started=max(old.started, new.started))
        if arming.keep_chain:
            if old is None or old.timing_version != new.timing_version:
                return None
            new = msgspec.structs.replace(new, state=old.state)
        self.blobs.setdefault(new.target, (new.namespace, blob))
        self.definitions[new.id] = new
        if not arming.keep_chain:
            if old is not None:
                self.members.pop(old.id + old.timing_version, None)
            if arming.due_us is not None:
                self.members[new.id + new.timing_version] = Point(new.namespace, arming.due_us)
        return messages.Armed.APPLIED

    def enqueue(
        self,
        definition: _Definition,
        point: points.DuePoint,
        record: messages.OccurrenceRecord,
        now_us: int,
    ) -> messages.Armed | None:
        """None: no definition of this uid is stored."""
        stored = self.definitions.get(definition.id)
        if stored is None or stored.uid != definition.uid:
            return None
        if point.member in self.members:
            return messages.Armed.UNCHANGED
        self.members[point.member] = Point(stored.namespace, now_us)
        self.records[point.member] = record
        return messages.Armed.APPLIED

    def withdraw(self, member: bytes) -> bool:
        """Whether the occurrence was there."""
        was_there = member in self.members
        self.drop(member)
        return was_there

    def remove(self, schedule_id: points.ScheduleId, uid: str) -> messages.Armed:
        stored = self.definitions.get(schedule_id)
        if stored is not None and stored.uid != uid:
            return messages.Armed.UNCHANGED
        occurrences = [member for member in self.records if member.startswith(schedule_id)]
        for member in occurrences:
            self.drop(member)
        if stored is not None:
            del self.definitions[schedule_id]
            self.drop(schedule_id + stored.timing_version)
        found = stored is not None or occurrences
        return messages.Armed.APPLIED if found else messages.Armed.UNCHANGED

    def drop(self, member: bytes) -> None:
        self.members.pop(member, None)
        self.records.pop(member, None)

    # -- claiming -------------------------------------------------------------------------------

    def doubtful(self, now_us: int) -> set[messages.ClaimId]:
        """Claims that have ended, of points that had lost an owner before."""
        return {
            other
            for other, lease in self.leases.items()
            if lease.expiry_us <= now_us and lease.attempts
        }

    def claim(
        self,
        claim_id: messages.ClaimId,
        *,
        now_us: int,
        cap_us: int,
        batch: int,
        lease_us: int,
        without: Collection[messages.ClaimId] = (),
    ) -> list[bytes]:
        """Members that are the claim's now; empty when nothing is due."""
        while True:
            expired = sorted(
                (lease.expiry_us, other) for other, lease in self.leases.items()
                if lease.expiry_us <= now_us and other not in without
            )  # fmt: skip
            if not expired:
                break
            members = self._reclaim(expired[0][1], claim_id, batch, now_us + lease_us)
            if members:
                return members
        members = self._share(cap_us, batch)
        if members:
            self._own(members, claim_id, Lease(self._free_token(now_us + lease_us)))
        return members

    def wait_us(
        self, *, now_us: int, cap_us: int, without: Collection[messages.ClaimId] = ()
    ) -> int | None:
        """Until the next due or the first expiry, at least a millisecond."""
        waits = [point.due_us - cap_us for point in self.members.values() if point.holder is None]
        waits += [
            lease.expiry_us - now_us for other, lease in self.leases.items() if other not in without
        ]
        return max(1_000, min(waits)) if waits else None

    def is_due(
        self, *, now_us: int, cap_us: int, without: Collection[messages.ClaimId] = ()
    ) -> bool:
        return any(
            point.holder is None and point.due_us <= cap_us for point in self.members.values()
        ) or any(
            lease.expiry_us <= now_us
            for other, lease in self.leases.items()
            if other not in without
        )

    def held(self, claim_id: messages.ClaimId) -> list[bytes]:
        return sorted(m for m, point in self.members.items() if point.holder == claim_id)

    def extend(self, claim_id: messages.ClaimId, *, expiry_us: int) -> int | None:
        lease = self.leases.get(claim_id)
        if lease is None:
            return None
        if expiry_us > lease.expiry_us:
            lease.expiry_us = self._free_token(expiry_us)
        return lease.expiry_us

    def release(self, claim_id: messages.ClaimId, members: Collection[bytes] | None) -> list[bytes]:
        if claim_id not in self.leases and members is None:
            for lease in self.leases.values():
                lease.suspects = tuple(one for one in lease.suspects if one != claim_id)
        released = [m for m in self.held(claim_id) if members is None or m in members]
        for member in released:
            self.members[member].holder = None
        self._end_if_empty(claim_id)
        return released

    # -- settling -------------------------------------------------------------------------------

    def settle(
        self, claim_id: messages.ClaimId, settlement: messages.Settlement, *, now_us: int
    ) -> messages.Settled:
        lease = self.leases.get(claim_id)
        if lease is None:
            self.add_outcomes([settlement.outcomes])
            return messages.Settled(lost=True, applied=0, remaining=0)
        held = set(self.held(claim_id))
        if settlement.number <= lease.number:
            return messages.Settled(lost=False, applied=0, remaining=len(held))
        lease.number = settlement.number
        named = held if settlement.whole else _named(settlement) & held
        self._store(settlement.occurrences, held, {member[:8] for member in named})
        for chain in settlement.chains:
            if chain.member in held:
                self.members[chain.member] = Point(self.members[chain.member].lane, chain.due_us)
        for member, due_us in settlement.rearmed:
            if member in held:
                self.members[member] = Point(self.members[member].lane, due_us)
        self._bury(
            [letter for letter in settlement.dead if not letter.member or letter.member in held]
        )
        for member in settlement.counted:
            self._count(member, held)
        self._complete(settlement.ended, held)
        finished = named if settlement.whole else settlement.finished
        for member in (*finished, *(letter.member for letter in settlement.dead)):
            if member in held:
                self.drop(member)
        self.add_outcomes([settlement.outcomes])
        buried = self._bury_crowds(settlement.occurrences, held, now_us)
        remaining = self._end_if_empty(claim_id)
        return messages.Settled(
            lost=False, applied=len(named), remaining=remaining, buried=tuple(buried)
        )

    def plan(
        self, claim_id: messages.ClaimId, plannings: Iterable[messages.Planning]
    ) -> list[bool]:
        listed = list(plannings)
        answers = [self._plan_one(claim_id, planning) for planning in listed]
        if any(written for _, written in answers):
            self.add_outcomes(planning.outcomes for planning in listed)
            self._end_if_empty(claim_id)
        return [held for held, _ in answers]

    def add_outcomes(self, entries: Iterable[bytes]) -> None:
        for outcomes in filter(None, entries):
            self.added += 1
            self.outcomes[self.added] = outcomes

    # -- steps ----------------------------------------------------------------------------------

    def _reclaim(
        self,
        expired: messages.ClaimId,
        claim_id: messages.ClaimId,
        batch: int,
        expiry_us: int,
    ) -> list[bytes]:
        lease = self.leases[expired]
        held = self.held(expired)
        taken = held[: math.ceil(batch / 8**lease.attempts)]
        if len(taken) == len(held):
            del self.leases[expired]
        if taken:
            suspects = (*lease.suspects, expired) if len(taken) == 1 else ()
            token = self._free_token(expiry_us)
            self._own(taken, claim_id, Lease(token, lease.attempts + 1, suspects))
        return taken

    def _share(self, cap_us: int, batch: int) -> list[bytes]:
        """The oldest due of each lane, every lane its part."""
        by_lane: dict[str, list[tuple[int, bytes]]] = {}
        for member, point in self.members.items():
            if point.holder is None and point.due_us <= cap_us:
                by_lane.setdefault(point.lane, []).append((point.due_us, member))
        members: list[bytes] = []
        lanes = sorted(by_lane.values(), key=min)
        for index, due in enumerate(lanes):
            share = math.ceil((batch - len(members)) / (len(lanes) - index))
            members += [member for _, member in sorted(due)[:share]]
        return members

    def _own(self, members: list[bytes], claim_id: messages.ClaimId, lease: Lease) -> None:
        self.leases[claim_id] = lease
        for member in members:
            self.members[member].holder = claim_id

    def _free_token(self, token_us: int) -> int:
        taken = {lease.expiry_us for lease in self.leases.values()}
        while token_us in taken:
            token_us += 1
        return token_us

    def _end_if_empty(self, claim_id: messages.ClaimId) -> int:
        remaining = len(self.held(claim_id))
        if not remaining:
            self.leases.pop(claim_id, None)
        return remaining

    def _store(
        self, occurrences: Iterable[messages.Occurrence], held: set[bytes], settled: set[bytes]
    ) -> None:
        for occurrence in occurrences:
            point = occurrence.point
            may_follow = (
                occurrence.source in held if occurrence.source else point.schedule_id in settled
            )
            if point.member not in held and not may_follow:
                continue
            if point.member in held or point.member not in self.members:
                lane = self.definitions_lane(point.schedule_id, held)
                self.members[point.member] = Point(lane, point.due_us)
                self.records[point.member] = occurrence.record

    def definitions_lane(self, schedule_id: points.ScheduleId, held: set[bytes]) -> str:
        """The lane of the schedule: that of any of its held points."""
        return next(self.members[m].lane for m in held if m.startswith(schedule_id))

    def _bury(self, letters: Iterable[messages.DeadLetter]) -> None:
        for letter in letters:
            self.added += 1
            self.dead.append(
                messages.DeadEntry(
                    shard=self.number,
                    id=f"{self.added}-0",
                    member=letter.member,
                    entry=dict(letter.entry),
                )
            )

    def _bury_crowds(
        self, stored: Iterable[messages.Occurrence], held: set[bytes], now_us: int
    ) -> list[tuple[bytes, messages.OccurrenceRecord]]:
        """Of more retries than a schedule may have open, the oldest that wait."""
        newest = {
            one.point.schedule_id: one
            for one in stored
            if one.point.kind is points.PointKind.RETRY and one.point.member not in held
        }
        buried = []
        for schedule_id, occurrence in newest.items():
            entry = {"given_up_us": str(now_us), **crowding.entry(occurrence)}
            for member in self._crowded_out(schedule_id):
                slot_us = int.from_bytes(member[13:21], "big")
                self._bury(
                    [messages.DeadLetter(member=member, entry={"slot_us": str(slot_us), **entry})]
                )
                self.add_outcomes(
                    [crowding.news(entry, member, records.pack(self.records[member]))]
                )
                buried.append((member, self.records[member]))
                self.drop(member)
        return buried

    def _crowded_out(self, schedule_id: points.ScheduleId) -> list[bytes]:
        retries = [
            member
            for member in self.members
            if member.startswith(schedule_id)
            and len(member) > points.CHAIN_LENGTH
            and member[12] == points.PointKind.RETRY
        ]
        waiting = sorted(
            (member for member in retries if self.members[member].holder is None),
            key=lambda member: member[12:],
        )
        return waiting[: max(0, len(retries) - messages.OPEN_RETRIES)]

    def _count(self, member: bytes, held: set[bytes]) -> None:
        stored = self.definitions.get(points.ScheduleId(member[:8]))
        if member in held and stored is not None and stored.runs_left is not None:
            counted = msgspec.structs.replace(stored, started=stored.started + 1)
            self.definitions[stored.id] = counted

    def _complete(self, ended: Iterable[points.ScheduleId], held: set[bytes]) -> None:
        for schedule_id in ended:
            stored = self.definitions.get(schedule_id)
            if stored is None or stored.state is not definitions.State.ARMED:
                continue
            if schedule_id + stored.timing_version in held:
                self.definitions[schedule_id] = msgspec.structs.replace(
                    stored, state=definitions.State.COMPLETED
                )

    def _plan_one(
        self, claim_id: messages.ClaimId, planning: messages.Planning
    ) -> tuple[bool, bool]:
        """Whether the claim holds the slots now, and whether this wrote anything."""
        member = planning.chain.member
        chain = self.members.get(member)
        if claim_id not in self.leases or chain is None or chain.holder != claim_id:
            first = next((slot.point.member for slot in planning.slots), b"")
            return first in self.members and self.members[first].holder == claim_id, False
        for slot in planning.slots:
            self.members[slot.point.member] = Point(chain.lane, slot.point.due_us, claim_id)
            self.records[slot.point.member] = slot.record
        if planning.next_due_us is None:
            self._complete([planning.chain.schedule_id], {member})
            self.drop(member)
        else:
            self.members[member] = Point(chain.lane, planning.next_due_us)
        return True, True


def _named(settlement: messages.Settlement) -> set[bytes]:
    return {
        *(chain.member for chain in settlement.chains),
        *(member for member, _ in settlement.rearmed),
        *(occurrence.point.member for occurrence in settlement.occurrences),
        *settlement.finished,
        *(letter.member for letter in settlement.dead),
    }
