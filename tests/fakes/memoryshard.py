"""One shard of the delay queue in dictionaries: what each Lua script does, without Redis.

Each method is one script: it happens at once, and answers as the script does. The state mirrors
the keys (points, claims, occurrences, definitions, blobs, streams), so that a difference between
this and Redis shows in the suite that runs on both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from duepoint import telemetry
from duepoint.delayqueue import deadletters, messages, quotas
from duepoint.delayqueue.claims import settling
from duepoint.delayqueue.definitions import records
from duepoint.delayqueue.repair import suspectpoints
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from tests.fakes import memorydeadletters

#: How much longer than it was made for a lease may be, before a clock that was ahead made it.
_LEASE_TOLERANCE_US = 1_000_000

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
    first_us: int
    length_us: int
    attempts: int = 0
    suspects: tuple[messages.ClaimId, ...] = ()
    number: int = 0
    is_alone: bool = False
    is_given: bool = False
    began_with: frozenset[bytes] = frozenset()

    @property
    def alone(self) -> int:
        """How many owners were not heard of again that had only the one point in hand."""
        return len(self.suspects)


def _is_no_news(old: _Definition, arming: messages.Arming) -> bool:
    is_newer = arming.definition.generation > old.generation
    return not is_newer and old.fingerprint != arming.replaces


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
    #: Entries of ``outcomes`` that were told by lost claims, and those that tell of a fallback.
    lost: set[int] = field(default_factory=set)
    fallbacks: dict[int, int] = field(default_factory=dict)
    server: str = ""
    mark: int = 0
    back_us: int = 0
    compared: set[bytes] = field(default_factory=set)
    dropped: int = 0
    dead: list[deadletters.DeadEntry] = field(default_factory=list)
    share: quotas.Share = field(default_factory=lambda: quotas.USUAL.of_shard(1))
    members_share: quotas.Share = field(default_factory=lambda: quotas.USUAL.of_shard(1))
    added: int = 0
    state: str = "open"

    # -- arming ---------------------------------------------------------------------------------

    def upsert(self, arming: messages.Arming, blob: bytes, now_us: int) -> messages.Armed:
        new = arming.definition
        old = self.definitions.get(new.id)
        if old is not None and old.uid != new.uid:
            return messages.Armed.COLLISION
        if old is not None and _is_no_news(old, arming):
            return messages.Armed.UNCHANGED
        if old is not None and None not in (old.runs_left, new.runs_left):
            new = msgspec.structs.replace(new, started=max(old.started, new.started))
        if arming.keep_chain:
            if old is None or old.timing_version != new.timing_version:
                return messages.Armed.CHANGED
            if not self._can_move(arming, now_us):
                return messages.Armed.HELD
            new = msgspec.structs.replace(new, state=old.state)
        self.blobs.setdefault(new.target, (new.namespace, blob))
        self.definitions[new.id] = new
        if not arming.keep_chain:
            self._arm(arming, old)
        return messages.Armed.APPLIED

    def _can_move(self, arming: messages.Arming, now_us: int) -> bool:
        """Gives a chain that goes on its other due, if there is one; False where it has to wait."""
        known = arming.definition
        chain = self.members.get(known.id + known.timing_version)
        if arming.due_us is None or chain is None:
            return True
        if chain.holder is not None:
            return False
        if chain.due_us <= max(now_us, arming.after_us):
            return True
        if arming.due_us <= now_us:
            return False
        chain.due_us = arming.due_us
        return True

    def _arm(self, arming: messages.Arming, old: _Definition | None) -> None:
        new = arming.definition
        if old is not None:
            self.members.pop(old.id + old.timing_version, None)
        if arming.due_us is not None:
            self.members[new.id + new.timing_version] = Point(new.namespace, arming.due_us)
        if arming.undone_after_us is not None:
            self._drop_undone(new, arming.undone_after_us)
        for one in arming.open:
            if one.point.member not in self.members:
                self.members[one.point.member] = Point(new.namespace, one.point.due_us)
                self.records[one.point.member] = one.record

    def _drop_undone(self, new: _Definition, after_us: int) -> None:
        for member in [member for member in self.records if member.startswith(new.id)]:
            point = points.parse_member(member, 0)
            is_timed = (
                point is not None and not point.run_tag and point.kind is not points.PointKind.CHECK
            )
            if is_timed and point.timing_version != new.timing_version and point.slot_us > after_us:
                self.drop(member)

    def enqueue(
        self,
        definition: _Definition,
        wanted: Sequence[tuple[points.DuePoint, messages.OccurrenceRecord]],
        now_us: int,
    ) -> list[messages.Armed] | None:
        """None: no definition of this uid is stored."""
        stored = self.definitions.get(definition.id)
        if stored is None or stored.uid != definition.uid:
            return None
        armed = []
        for due_us, (point, record) in enumerate(wanted, now_us - len(wanted) + 1):
            is_new = point.member not in self.members
            armed.append(messages.Armed.APPLIED if is_new else messages.Armed.UNCHANGED)
            if is_new:
                self.members[point.member] = Point(stored.namespace, due_us)
                self.records[point.member] = record
        return armed

    def withdraw(self, member: bytes) -> messages.Armed:
        point = self.members.get(member)
        self.drop(member)
        if point is None:
            return messages.Armed.UNCHANGED
        return messages.Armed.APPLIED if point.holder is None else messages.Armed.HELD

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

    def suspect_claims(self, now_us: int) -> set[messages.ClaimId]:
        """Claims that have ended, of points that had lost an owner before."""
        return {
            other
            for other, lease in self.leases.items()
            if lease.expiry_us <= now_us and lease.attempts
        }

    def look_at_server(self, server: str, mark: int, now_us: int) -> bool:
        """Whether the shard is in doubt by this, which was told of."""
        has_changed, self.server, known = self.server != server, server, self.server
        if not (has_changed and known) and mark <= self.mark:
            return False
        self.mark = max(self.mark, mark)
        self.back_us = max(self.back_us, now_us)
        self.compared.clear()
        self.added += 1
        self.outcomes[self.added], self.fallbacks[self.added] = b"", self.back_us
        return True

    def _must_wait(self, member: bytes, due_us: int) -> bool:
        point = points.parse_member(member, due_us)
        if point is None or point.kind in (points.PointKind.CHAIN, points.PointKind.CHECK):
            return False
        is_queued = point.kind is points.PointKind.QUEUED and member not in self.compared
        return due_us <= self.back_us or (is_queued and point.slot_us <= self.back_us)

    def _without_waiting(self, members: list[bytes]) -> list[bytes]:
        """The others are set aside, where the shard is in doubt."""
        waiting = [
            m for m in members if self.back_us and self._must_wait(m, self.members[m].due_us)
        ]
        for member in waiting:
            self.members[member] = Point(self.members[member].lane, points.HELD_US)
        return [member for member in members if member not in waiting]

    def set_aside(self) -> int:
        """Slots that wait for others are set aside, whenever they are due; how many."""
        queued = [
            member
            for member, one in self.members.items()
            if one.holder is None
            and (point := points.parse_member(member, one.due_us)) is not None
            and point.kind is points.PointKind.QUEUED
            and one.due_us != points.HELD_US
        ]
        return len(queued) - len(self._without_waiting(queued))

    def compare(self, compared: suspectpoints.PointComparison, now_us: int) -> int:
        changed = 0
        at_once_us = max(now_us, self.back_us + 1)
        for one, lost in compared.added:
            if lost.point.member not in self.members:
                self.members[lost.point.member] = Point(str(one.lane), at_once_us)
                self.records[lost.point.member] = lost.record
                changed += 1
        for one in compared.gone:
            if self._is_held(one.point.member):
                self.drop(one.point.member)
                changed += 1
        for one, record in compared.due:
            member = one.point.member
            if self._is_held(member):
                self.members[member].due_us = at_once_us
                self.records[member] = record or self.records[member]
                self.compared.add(member)
                changed += 1
        for schedule_id, count in compared.started:
            stored = self.definitions.get(schedule_id)
            if stored is not None and stored.runs_left is not None and stored.started < count:
                self.definitions[schedule_id] = msgspec.structs.replace(stored, started=count)
        for one, due_us in compared.chains:
            if self._is_held(one.point.member):
                self.members[one.point.member].due_us = max(due_us, self.back_us + 1)
                changed += 1
        return changed

    def _is_held(self, member: bytes) -> bool:
        return member in self.members and self.members[member].due_us == points.HELD_US

    def held_points(self) -> list[tuple[str, points.DuePoint]]:
        held = [(m, one) for m, one in self.members.items() if one.due_us == points.HELD_US]
        parsed = [(one.lane, points.parse_member(m, points.HELD_US)) for m, one in sorted(held)]
        return [(lane, point) for lane, point in parsed if point is not None]

    def end_suspicion(self, back_us: int) -> str:
        if self.back_us != back_us:
            return "due"
        if self.held_points():
            return "held"
        old = [one for one in self.members.values() if one.due_us <= back_us]
        if old:
            return "due" if any(one.holder is None for one in old) else "claimed"
        self.back_us = 0
        return ""

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
        for lease in self.leases.values():
            longest_us = now_us + lease.length_us
            if lease.expiry_us > longest_us + _LEASE_TOLERANCE_US:
                lease.expiry_us = self._free_token(longest_us)
        while True:
            expired = sorted(
                (lease.expiry_us, other) for other, lease in self.leases.items()
                if lease.expiry_us <= now_us and other not in without
            )  # fmt: skip
            if not expired:
                break
            members = self._reclaim(expired[0][1], claim_id, batch, now_us, lease_us)
            if members:
                return members
        members = self._without_waiting(self._share(cap_us, batch))
        if members:
            self._own(
                members, claim_id, Lease(self._free_token(now_us + lease_us), now_us, lease_us)
            )
        return members

    def wait_us(
        self, *, now_us: int, cap_us: int, without: Collection[messages.ClaimId] = ()
    ) -> int | None:
        """Until the next due or the first expiry, at least a millisecond."""
        waits = [
            point.due_us - cap_us
            for point in self.members.values()
            if point.holder is None and point.due_us != points.HELD_US
        ]
        waits += [
            lease.expiry_us - now_us for other, lease in self.leases.items() if other not in without
        ]
        return max(1_000, min(waits)) if waits else None

    def count_due(
        self, *, now_us: int, cap_us: int, without: Collection[messages.ClaimId] = ()
    ) -> int:
        """Points that are due, and one more for claims that have ended."""
        due = sum(
            point.holder is None and point.due_us <= cap_us for point in self.members.values()
        )
        return due + any(
            lease.expiry_us <= now_us
            for other, lease in self.leases.items()
            if other not in without
        )

    def held(self, claim_id: messages.ClaimId) -> list[bytes]:
        return sorted(m for m, point in self.members.items() if point.holder == claim_id)

    def extend(
        self, claim_id: messages.ClaimId, *, now_us: int, expiry_us: int, latest_us: int
    ) -> int | None:
        lease = self.leases.get(claim_id)
        if lease is None:
            return None
        lease.length_us = max(lease.length_us, expiry_us - now_us)
        if expiry_us > lease.expiry_us or lease.expiry_us > latest_us:
            lease.expiry_us = self._free_token(expiry_us)
        return lease.expiry_us

    def isolate(self, claim_id: messages.ClaimId, *, alone: bool) -> bool:
        lease = self.leases.get(claim_id)
        if lease is not None:
            lease.is_alone = alone
        return lease is not None

    def release(
        self,
        claim_id: messages.ClaimId,
        members: Collection[bytes] | None,
        *,
        given: messages.ClaimId,
        now_us: int,
    ) -> list[bytes]:
        if claim_id not in self.leases and members is None:
            for lease in self.leases.values():
                lease.suspects = tuple(one for one in lease.suspects if one != claim_id)
        released = [m for m in self.held(claim_id) if members is None or m in members]
        chains = [member for member in released if len(member) == points.CHAIN_LENGTH]
        for member in released:
            self.members[member].holder = None
        if chains:
            first_us = self.leases[claim_id].first_us
            lease = Lease(self._free_token(now_us), first_us, 0, is_given=True)
            self._own(chains, given, lease)
        self._end_if_empty(claim_id)
        return released

    # -- settling -------------------------------------------------------------------------------

    def settle(
        self, claim_id: messages.ClaimId, settlement: messages.Settlement, *, now_us: int
    ) -> messages.Settled:
        lease = self.leases.get(claim_id)
        if lease is None:
            before = self.added
            self.add_outcomes([settlement.outcomes])
            self.lost.update(range(before + 1, self.added + 1))
            return messages.Settled(lost=True, applied=0, remaining=0)
        held = set(self.held(claim_id))
        if settlement.number <= lease.number:
            return messages.Settled(lost=False, applied=0, remaining=len(held))
        lease.number = settlement.number
        named = held if settlement.whole else _named(settlement) & held
        tried = {member for member in lease.began_with if self._was_edited_away(member)}
        self._store(settlement.occurrences, held, {member[:8] for member in named}, tried)
        for chain in settlement.chains:
            if chain.member in held:
                self.members[chain.member] = Point(self.members[chain.member].lane, chain.due_us)
        for member, due_us in settlement.next_dues:
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
        while sum(map(len, self.outcomes.values())) > settling.runs_bytes(shards=1):
            del self.outcomes[min(self.outcomes)]
            self.dropped += 1

    # -- steps ----------------------------------------------------------------------------------

    def _reclaim(
        self,
        expired: messages.ClaimId,
        claim_id: messages.ClaimId,
        batch: int,
        now_us: int,
        lease_us: int,
    ) -> list[bytes]:
        lease = self.leases[expired]
        held = self.held(expired)
        taken = held[: math.ceil(batch / 8**lease.attempts)]
        if len(taken) == len(held):
            del self.leases[expired]
        for member in taken:
            self.members[member].holder = None
        taken = self._without_waiting(taken)
        if taken:
            suspects = self._suspects(expired, lease, held)
            attempts = lease.attempts if lease.is_given else lease.attempts + 1
            token = self._free_token(now_us + lease_us)
            self._own(taken, claim_id, Lease(token, lease.first_us, lease_us, attempts, suspects))
        if len(taken) < len(held):
            lease.is_alone, lease.suspects = False, ()
        return taken

    @staticmethod
    def _suspects(
        expired: messages.ClaimId, lease: Lease, held: list[bytes]
    ) -> tuple[messages.ClaimId, ...]:
        """The owners that had nothing in hand but the one point that is left."""
        if len(held) != 1:
            return ()
        before = lease.suspects if held[0] in lease.began_with else ()
        return (*before, expired) if lease.is_alone else before

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
        self.mark += 1
        self.leases[claim_id] = lease
        lease.began_with = frozenset(members)
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

    def _was_edited_away(self, member: bytes) -> bool:
        """A chain whose slot was being tried when an edit of the timing took it away."""
        is_chain = len(member) == points.CHAIN_LENGTH
        return is_chain and member not in self.members and member[:8] in self.definitions

    def _store(
        self,
        occurrences: Iterable[messages.Occurrence],
        held: set[bytes],
        settled: set[bytes],
        tried: Collection[bytes],
    ) -> None:
        for occurrence in occurrences:
            point = occurrence.point
            may_follow = (
                occurrence.source in held if occurrence.source else point.schedule_id in settled
            )
            is_retry = point.kind is points.PointKind.RETRY and occurrence.source in tried
            if point.member not in held and not (may_follow or is_retry):
                continue
            if point.member in held or point.member not in self.members:
                lane = self.definitions_lane(point.schedule_id, held)
                self.members[point.member] = Point(lane, point.due_us)
                self.records[point.member] = occurrence.record

    def definitions_lane(self, schedule_id: points.ScheduleId, held: set[bytes]) -> str:
        """The lane of the schedule: that of any of its held points, if there are any."""
        lanes = (self.members[m].lane for m in held if m.startswith(schedule_id))
        return next(lanes, "") or self.definitions[schedule_id].namespace

    def _bury(self, letters: Iterable[messages.DeadLetter]) -> None:
        for letter in letters:
            self.added += 1
            self.dead.append(
                deadletters.DeadEntry(
                    shard=self.number,
                    id=f"{self.added}-0",
                    member=letter.member,
                    entry=dict(letter.entry),
                )
            )
            dropped = memorydeadletters.make_room(self.dead, self.share, self.members_share)
            for namespace, count in dropped.items():
                telemetry.dead_letters_dropped_total.labels(namespace).inc(count)

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
            entry = {"given_up_us": str(now_us), **records.buried_entry(occurrence)}
            for member in self._crowded_out(schedule_id, occurrence.most_open):
                slot_us = int.from_bytes(member[13:21], "big")
                self._bury(
                    [messages.DeadLetter(member=member, entry={"slot_us": str(slot_us), **entry})]
                )
                self.add_outcomes(
                    [records.buried_event(entry, member, records.pack(self.records[member]))]
                )
                buried.append((member, self.records[member]))
                self.drop(member)
        return buried

    def _crowded_out(self, schedule_id: points.ScheduleId, most: int) -> list[bytes]:
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
        return waiting[: max(0, len(retries) - most)]

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
        *(member for member, _ in settlement.next_dues),
        *(occurrence.point.member for occurrence in settlement.occurrences),
        *settlement.finished,
        *(letter.member for letter in settlement.dead),
    }
