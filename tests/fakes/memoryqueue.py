"""The delay queue in memory, with virtual time: ``DelayQueue`` for tests.

It passes the conformance suite that the Redis queue passes. Time is the given clock's for the
server and the worker alike; ``available`` set to False makes every operation raise
QueueUnavailable, ``flush`` forgets everything as FLUSHALL would. Shards are made by
``open_layout`` as with the real one.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

from duepoint import clock as clocks
from duepoint import errors, settings
from duepoint.delayqueue import (
    activeruns,
    deadletters,
    layouts,
    ledger,
    membership,
    messages,
    sharding,
    wakeups,
)
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import quotas as quotas_
from duepoint.delayqueue.claims import claiming
from duepoint.delayqueue.definitions import (
    codec,
    columns,
    occurrences,
    reading,
    records,
    signedblobs,
)
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.inspection import counts
from duepoint.delayqueue.repair import collector, mending, suspectpoints
from duepoint.delayqueue.resharding import export, resharding
from duepoint.delayqueue.wire import scripting
from duepoint.runs import circuit
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from tests.fakes import (
    memoryactive,
    memorycircuits,
    memoryledger,
    memorymoves,
    memorysets,
    memoryshard,
)
from tests.support import shardstats

BLOB_KEY = b"a key for tests!"
_AWAY = errors.QueueUnavailable("the test took the server of this shard away")


class MemoryWakeups(wakeups.Alarms):
    """Alarms that the queue rings itself."""

    async def start(self) -> None:
        self.ring_all()

    async def close(self) -> None:
        pass


class Service:
    """One service's share of the methods of a queue."""

    def __init__(self, queue: MemoryDelayQueue, names: Mapping[str, str]) -> None:
        self.__dict__.update(_queue=queue, _names=names)

    def __getattr__(self, name: str) -> object:
        return getattr(self._queue, self._names.get(name, name))

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._queue, self._names.get(name, name), value)


#: Services, and their methods that have another name here.
SERVICES: Mapping[str, Mapping[str, str]] = {
    "layouts": {"read": "layout", "known": "known_layout", "wanted_shards": "wanted"},
    "membership": {"open": "open_layout"},
    "health": {"hosts": "server_hosts"},
    "definitions": {},
    "columns": {},
    "signed_blobs": {},
    "writer": {},
    "occurrences": {},
    "claims": {},
    "settlements": {},
    "concurrency": {},
    "streams": {"enlist": "enlist_stream"},
    "circuits": {"report": "tell_circuits", "read": "read_circuits"},
    "dead_letters": {},
    "resharding": {
        "ask": "ask_partition",
        "progress": "partitioning",
        "announce": "announce_partition",
        "end": "end_partition",
        "close": "close_shard",
        "record_progress": "note_progress",
    },
    "export": {},
    "sweeper": {},
    "collector": {},
    "suspect_points": {
        "shards": "suspect_shards",
        "set_aside": "set_aside",
        "held": "held_points",
        "apply": "apply_compared",
        "end": "end_suspicion",
    },
    "counts": {},
    "index": {"shard": "_shard", "clock": "_clock"},
}


class MemoryDelayQueue:
    """``DelayQueue`` over dictionaries."""

    def __init__(
        self,
        clock: clocks.Clock,
        *,
        blob_key: bytes = BLOB_KEY,
        quotas: quotas_.Quotas = quotas_.USUAL,
    ) -> None:
        self.available = True
        #: Shards of another server, which does not answer.
        self.away: set[messages.ShardId] = set()
        self.upheavals = 0
        #: Run id of the server.
        self.server = os.urandom(8).hex()
        self._marks: dict[messages.ShardId, int] = {}
        self.shards: dict[messages.ShardId, memoryshard.MemoryShard] = {}
        self.stream_entries: dict[str, list[dict[str, bytes | str]]] = {}
        self._stream_sizes: dict[str, int] = {}
        self._enlisted: dict[str, set[str]] = {}
        self._clock = clock
        self._quotas = quotas
        self._signed_blobs = signedblobs.SignedBlobs(blob_key)
        self._layout: messages.Layout | None = None
        self._incarnation = ""
        self._opened_by = ""
        self._seen_us = 0
        self._mark = ""
        self._owner: layouts.Owner | None = None
        self._workers: dict[str, int] = {}
        self._circuits = memorycircuits.MemoryCircuits(clock)
        self._moves = memorymoves.Record()
        self.active = memoryactive.ActiveSets()
        self._wakeups: list[MemoryWakeups] = []
        self.ledgers: list[memoryledger.MemoryLedger] = []
        self.stored_sets = memorysets.StoredSets(check=self._check)
        self.sets = self.set_removals = memorysets.MemorySets(self.stored_sets)
        self.members = memorysets.MemoryMembers(self.stored_sets)
        self.durability = memorysets.MemoryDurability()

    def __getattr__(self, name: str) -> Service:
        """The services of ``delayqueue.DelayQueue``."""
        if name not in SERVICES:
            raise AttributeError(name)
        return Service(self, SERVICES[name])

    # -- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        self._check()

    async def close(self) -> None:
        pass

    async def problems(self, *, fills: bool = False) -> tuple[str, ...]:
        self._check()
        return ()

    async def time_us(self) -> int:
        self._check()
        return self._clock.now_us()

    async def keepalive(self) -> tuple[messages.ShardId, ...]:
        self._check()
        return ()

    def wakeups(self, before_due: wakeups.BeforeDue | None = None) -> wakeups.Wakeups:
        shards = sharding.all_shards(self._known_layout())
        self._wakeups.append(MemoryWakeups(self._clock, shards, before_due))
        return self._wakeups[-1]

    def ledger(self) -> ledger.Ledger:
        self.ledgers.append(memoryledger.MemoryLedger(self.shards, self._check, self._clock))
        return self.ledgers[-1]

    async def newest(
        self, shard: messages.ShardId, *, count: int = 200
    ) -> list[deadletters.DeadEntry]:
        self._check()
        return self.shards[shard].dead[::-1][:count]

    def flush(self) -> None:
        """Everything is gone, as after FLUSHALL."""
        self.active.forget()
        self.shards.clear()
        self.stream_entries.clear()
        self._stream_sizes.clear()
        self._enlisted.clear()
        self._workers.clear()
        self._circuits = memorycircuits.MemoryCircuits(self._clock)
        for reader in self.ledgers:
            reader.flush()
        self._incarnation = ""
        self._opened_by = ""
        self._mark = ""
        self._layout = None
        self._moves = memorymoves.Record()
        self.stored_sets.lose_everything()

    def change_blob_key(self, key: bytes) -> None:
        """What is stored from now on is sealed with this key, and asked for under it."""
        self._signed_blobs = signedblobs.SignedBlobs(key)

    def snapshot(self) -> dict[messages.ShardId, memoryshard.MemoryShard]:
        """What a server would write to its disk."""
        return copy.deepcopy(self.shards)

    def fall_back(self, state: dict[messages.ShardId, memoryshard.MemoryShard]) -> None:
        """Another process of the server has loaded this; its readers have read nothing yet."""
        self.server = os.urandom(8).hex()
        self.upheavals += 1
        for number, shard in copy.deepcopy(state).items():
            shard.added = max(shard.added, self.shards[number].added)  # as ids that are times
            self.shards[number] = shard
        for reader in self.ledgers:
            reader.flush()
        for alarm in self._wakeups:
            alarm.ring_all()

    # -- layout and membership ------------------------------------------------------------------

    async def open_layout(
        self,
        shards: int,
        epoch: messages.Epoch,
        *,
        noted: messages.Layout | None = None,
        by: str = "",
    ) -> messages.Layout:
        self._check()
        self._check_owner()
        silent_us = self._clock.now_us() - self._seen_us
        is_silent = silent_us >= membership.ABANDONED_SECONDS * 1_000_000
        if by and self._opened_by not in ("", by) and not is_silent:
            raise queue_errors.Foreign(f"the installation {self._opened_by} looks after the index")
        if self._layout is None:
            self._layout = noted or messages.Layout(number=1, shards=shards)
            self._incarnation = os.urandom(8).hex()
        if self._owner is not None:
            self._mark = self._mark or self._owner.mark
        self._make_shards(self._layout, epoch)
        if by:
            self._opened_by, self._seen_us = by, self._clock.now_us()
        return self._layout

    async def stay(self, by: str) -> bool:
        self._check()
        if self._opened_by != by:
            return False
        self._seen_us = self._clock.now_us()
        return True

    def belong_to(self, owner: layouts.Owner) -> None:
        self._owner = owner

    def _make_shards(self, layout: messages.Layout, epoch: messages.Epoch) -> None:
        for shard in sharding.all_shards(layout):
            if shard not in self.shards:
                made = self.shards[shard] = memoryshard.MemoryShard(shard, epoch)
                is_former = sharding.layout_of(shard) != layout.number
                made.state = "draining" if is_former else "filling" if layout.former else "open"
                made.mark = self._clock.now_us()
                made.share = self._quotas.of_shard(layout.shards)
                made.members_share = self._quotas.of_shard(layout.shards, of_members=True)
            if self.shards[shard].state != "closed":
                self._fenced(shard, epoch)

    def known_layout(self) -> messages.Layout:
        return self._known_layout()

    @property
    def wanted(self) -> int:
        return self._moves.wanted

    async def layout(self) -> messages.Layout:
        self._check()
        self._check_owner()
        return self._known_layout()

    async def beat(self, worker: str, *, trouble: str = "") -> messages.Beat:
        self._check()
        self._check_owner()
        now = self._clock.now_us()
        self._moves.knows[worker] = 0 if self._layout is None else self._layout.number
        latest = now + int(membership.WORKER_TTL_SECONDS * 1_000_000)
        self._workers[worker] = latest
        self._workers = {name: min(end, latest) for name, end in self._workers.items() if end > now}
        return messages.Beat(
            workers=tuple(sorted(self._workers)),
            layout=self._layout,
            incarnation=self._incarnation,
            time_us=now,
        )

    async def goodbye(self, worker: str) -> None:
        self._check()
        self._workers.pop(worker, None)

    # -- arming ---------------------------------------------------------------------------------

    def digest(self, namespace: str, blob: bytes) -> str:
        return self._signed_blobs.digest(namespace, blob)

    async def upsert(
        self, wanted: Sequence[tuple[messages.Arming, bytes]], epoch: messages.Epoch
    ) -> list[messages.Armed]:
        for arming, blob in wanted:
            definition = arming.definition
            if definition.target != self.digest(definition.namespace, blob):
                raise errors.Bug(f"{definition.identity}: its target is not the digest of its blob")
            if arming.due_us is not None and not records.is_due(arming.due_us):
                error = errors.FieldError(
                    reason="OutOfRange", path="spec.schedule", message="too far"
                )
                raise errors.InvalidSpec((error,))
        return [self._upsert_one(arming, blob, epoch) for arming, blob in wanted]

    def _upsert_one(
        self, arming: messages.Arming, blob: bytes, epoch: messages.Epoch
    ) -> messages.Armed:
        schedule_id = arming.definition.id
        shard = next(
            shard
            for shard in self._homes(schedule_id, epoch)
            if shard.state != "draining" or schedule_id in shard.definitions
        )
        armed = shard.upsert(arming, blob, self._clock.now_us())
        if armed is messages.Armed.APPLIED:
            self._tell(shard)
        return armed

    async def enqueue(
        self,
        definition: definitions.Definition,
        point: points.DuePoint,
        record: messages.OccurrenceRecord,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        (armed,) = await self.enqueue_many(definition, [(point, record)], epoch)
        return armed

    async def enqueue_many(
        self,
        definition: definitions.Definition,
        wanted: Sequence[tuple[points.DuePoint, messages.OccurrenceRecord]],
        epoch: messages.Epoch,
    ) -> list[messages.Armed]:
        shard = self._fenced(sharding.shard_of(definition.id, self._known_layout().shards), epoch)
        armed = shard.enqueue(definition, wanted, self._clock.now_us())
        if armed is None:
            raise errors.WorldChanged(f"{definition.identity}: its definition is gone")
        self._tell(shard)
        return armed

    async def withdraw(
        self,
        definition: definitions.Definition,
        point: points.DuePoint,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        for shard in self._homes(definition.id, epoch):
            withdrawn = shard.withdraw(point.member)
            if withdrawn is not messages.Armed.UNCHANGED:
                return withdrawn
        return messages.Armed.UNCHANGED

    async def remove(
        self,
        schedule_id: points.ScheduleId,
        uid: str,
        namespace: str,
        epoch: messages.Epoch,
    ) -> messages.Armed:
        removed = [shard.remove(schedule_id, uid) for shard in self._homes(schedule_id, epoch)]
        is_removed = messages.Armed.APPLIED in removed
        return messages.Armed.APPLIED if is_removed else messages.Armed.UNCHANGED

    def _homes(
        self, schedule_id: points.ScheduleId, epoch: messages.Epoch
    ) -> list[memoryshard.MemoryShard]:
        """Where the schedule may be, the former shard first."""
        homes = sharding.homes(schedule_id, self._known_layout())
        return [self._fenced(shard, epoch) for shard in homes if not self._is_closed(shard)]

    def _is_closed(self, shard: messages.ShardId) -> bool:
        return self._shard(shard).state == "closed"

    async def definition(self, schedule_id: points.ScheduleId) -> definitions.Definition | None:
        for home in sharding.homes(schedule_id, self._known_layout()):
            if (found := self._shard(home).definitions.get(schedule_id)) is not None:
                return found
        return None

    async def known(self, shard: messages.ShardId) -> AsyncIterator[list[codec.StoredIdentity]]:
        yield [
            codec.StoredIdentity(
                one.uid, one.namespace, one.name, one.generation, one.collision, one.fingerprint
            )
            for one in list(self._shard(shard).definitions.values())
        ]

    async def all_definitions(
        self, shard: messages.ShardId
    ) -> AsyncIterator[reading.StoredDefinition]:
        state = self._shard(shard)
        for schedule_id, stored in list(state.definitions.items()):
            chain = state.members.get(schedule_id + stored.timing_version)
            claimed = chain is not None and chain.holder is not None
            yield reading.StoredDefinition(
                id=schedule_id,
                shard=shard,
                uid=stored.uid,
                namespace=stored.namespace,
                name=stored.name,
                generation=stored.generation,
                timing_generation=stored.timing_generation,
                state=stored.state,
                due_us=None if chain is None or claimed else chain.due_us,
                claimed=claimed,
            )

    async def all_occurrences(
        self, shard: messages.ShardId, of: points.ScheduleId | None = None
    ) -> AsyncIterator[occurrences.StoredOccurrence]:
        state = self._shard(shard)
        for member, record in sorted(state.records.items()):
            point = points.parse_member(member, 0)
            if point is not None and of in (None, point.schedule_id):
                yield occurrences.StoredOccurrence(
                    schedule_id=point.schedule_id,
                    timing_version=point.timing_version,
                    kind=point.kind,
                    slot_us=point.slot_us,
                    record=record,
                )

    # -- claiming and settling ------------------------------------------------------------------

    async def claim(
        self,
        shards: Sequence[messages.ShardId],
        *,
        worker: str,
        batch: int = claiming.BATCH,
        lease_seconds: float = claiming.LEASE_SECONDS,
        standby: Collection[messages.ShardId] = (),
        skip_suspects: bool = False,
    ) -> list[messages.Claimed]:
        await asyncio.sleep(0)  # a claim is never instantaneous for the others
        answers = [
            self._looked_at(
                shard, batch, lease_seconds, standby=shard in standby, skip_suspects=skip_suspects
            )
            for shard in shards
        ]
        troubles = [answer.trouble for answer in answers if answer.trouble is not None]
        if troubles and len(troubles) == len(answers):
            raise troubles[0]
        return answers

    def _looked_at(
        self, shard: messages.ShardId, batch: int, lease_seconds: float, **how: bool
    ) -> messages.Claimed:
        try:
            return self._claim_one(self._shard(shard), batch, lease_seconds, **how)
        except errors.QueueUnavailable as trouble:
            return messages.Claimed(
                shard=shard, claim=None, wait_seconds=claiming.AWAY_SECONDS, trouble=trouble
            )

    def expected(self, shard: messages.ShardId) -> int:
        return 0

    def elsewhere(self, shards: Collection[messages.ShardId]) -> tuple[messages.ShardId, ...]:
        is_away = not self.away.isdisjoint(shards)
        return tuple(shard for shard in self.shards if is_away and shard not in self.away)

    async def read_definitions(
        self, shard: messages.ShardId, ids: Collection[points.ScheduleId]
    ) -> messages.FoundDefinitions:
        state = self._shard(shard)
        here = state.definitions
        found = messages.FoundDefinitions({i: here[i] for i in dict.fromkeys(ids) if i in here})
        if state.state in ("draining", "closed"):
            for schedule_id in ids:
                home = self._shard(sharding.home(schedule_id, self._known_layout()))
                if schedule_id in home.definitions:
                    found.setdefault(schedule_id, home.definitions[schedule_id])
        return found

    async def read_columns(
        self, shard: messages.ShardId, chains: Sequence[bytes]
    ) -> columns.Columns:
        stored = self._shard(shard).definitions
        known = {
            index: one
            for index, chain in enumerate(chains)
            if (one := stored.get(points.ScheduleId(chain[:8]))) is not None
            and one.state is definitions.State.ARMED
            and one.timing_version == chain[8:]
            and one.rule.timing.max_runs is None
        }
        kinds = [
            columns.DefinitionKind(one.namespace, one.rule, one.target) for one in known.values()
        ]
        return columns.Columns(
            indexes=list(known),
            uids=[one.uid for one in known.values()],
            names=[one.name for one in known.values()],
            generations=[one.generation for one in known.values()],
            created_us=[one.created_us for one in known.values()],
            kinds=kinds,
            kind_of={kind: kind for kind in kinds},
        )

    async def blob(self, namespace: str, digest: str, shard: messages.ShardId) -> bytes:
        places = (shard, *sharding.fed_by(shard, self._known_layout()))
        sealed = (self._shard(place).blobs.get(digest) for place in places)
        found = next((one for one in sealed if one is not None), None)
        if found is None:
            raise queue_errors.BlobMissing(f"the index holds no blob {digest} of {namespace}")
        if self._signed_blobs.digest(namespace, found[1]) != digest:
            raise queue_errors.BlobForged(f"blob {digest} is not of {namespace}")
        return found[1]

    async def settle(
        self, claim: messages.Claim, settlement: messages.Settlement
    ) -> messages.Settled:
        _check_dues(settlement)
        shard = self._shard(claim.shard)
        settled = shard.settle(claim.id, settlement, now_us=self._clock.now_us())
        self._tell(shard, ran=bool(settlement.outcomes or settled.buried))
        return settled

    async def split(
        self, claim: messages.Claim, splits: Sequence[messages.Planning]
    ) -> tuple[bool, ...]:
        shard = self._shard(claim.shard)
        answers = shard.plan(claim.id, splits)
        self._tell(shard, ran=any(planning.outcomes for planning in splits))
        return tuple(answers)

    async def admit(
        self, claim: messages.Claim, entry: activeruns.AdmissionRequest
    ) -> activeruns.AdmissionAnswer:
        shard = self._shard(claim.shard)
        answer = self.active.admit(shard, claim.id, entry, self._clock.now_us())
        self._tell(shard)
        return answer

    async def leave(
        self,
        claim: messages.Claim,
        known: definitions.Definition,
        runs: Sequence[activeruns.Run] = (),
        *,
        jobs: Collection[str] = (),
        look: activeruns.Run | None = None,
    ) -> activeruns.Finished:
        shard, told = self._shard(claim.shard), memoryactive.Told(runs=runs, jobs=jobs, look=look)
        finished = self.active.finish(shard, known, told, self._clock.now_us())
        self._tell(shard)
        return finished

    async def finish(
        self,
        known: definitions.Definition,
        jobs: Collection[str],
        epoch: messages.Epoch,
        *,
        every: bool = False,
    ) -> activeruns.Finished:
        removed = called = 0
        for shard in self._homes(known.id, epoch):
            told = memoryactive.Told(jobs=jobs, every=every)
            finished = self.active.finish(shard, known, told, self._clock.now_us())
            removed, called = removed + finished.removed, called + finished.called
            self._tell(shard)
        return activeruns.Finished(removed=removed, called=called)

    async def extend(self, claim: messages.Claim, lease_seconds: float) -> messages.Claim | None:
        now = self._clock.now_us()
        lease_us = int(lease_seconds * 1_000_000)
        latest_us = now + 2 * settings.LONGEST_LEASE_SECONDS * 1_000_000
        token = self._shard(claim.shard).extend(
            claim.id, now_us=now, expiry_us=now + lease_us, latest_us=latest_us
        )
        if token is None:
            return None
        held_until = self._clock.monotonic() + (token - now) / 1_000_000
        return dataclasses.replace(claim, token_us=token, held_until=held_until)

    async def release(self, claim: messages.Claim, members: Collection[bytes] | None = None) -> int:
        shard = self._shard(claim.shard)
        given = messages.ClaimId(os.urandom(12))
        released = shard.release(claim.id, members, given=given, now_us=self._clock.now_us())
        self._tell(shard)
        return len(released)

    async def isolate(self, claim: messages.Claim, *, alone: bool) -> bool:
        return self._shard(claim.shard).isolate(claim.id, alone=alone)

    @property
    def settles_entries(self) -> bool:
        return True

    async def deliver(
        self,
        claim: messages.Claim,
        settlement: messages.Settlement,
        *entries: messages.StreamEntries,
    ) -> messages.DeliveryResult:
        shard = self._shard(claim.shard)
        lease = shard.leases.get(claim.id)
        if lease is not None and settlement.number <= lease.number:
            return messages.DeliveryResult(done=True)
        now_held = set(shard.held(claim.id))
        held = tuple(member in now_held for group in entries for member in group.members)
        if not all(held):
            return messages.DeliveryResult(done=False, held=held, lost=lease is None)
        for group in entries:
            await self.append(group)
        await self.settle(claim, settlement)
        shard.add_outcomes(group.outcomes for group in entries)
        self._tell(shard, ran=any(group.outcomes for group in entries))
        return messages.DeliveryResult(done=True)

    async def append(self, entries: messages.StreamEntries) -> list[str]:
        self._check()
        same = dict(zip(entries.same[::2], entries.same[1::2], strict=True))
        ids = []
        for values in entries.values:
            fields = {str(name): value for name, value in same.items()}
            fields.update(zip(entries.names, values, strict=True))
            ids.append(self._append_entry(entries, fields))
        return ids

    def _append_entry(self, into: messages.StreamEntries, fields: Mapping[str, bytes | str]) -> str:
        key = f"{into.namespace}/{into.name}"
        entries = self.stream_entries.setdefault(key, [])
        entries.append(dict(fields))
        trimmed = entries[: -into.max_length]
        del entries[: -into.max_length]
        gone = sum(quotas_.entry_bytes(one.values()) for one in trimmed)
        size = self._stream_sizes.get(key, 0) + quotas_.entry_bytes(fields.values()) - gone
        while size > self._quotas.of_stream:
            size -= quotas_.entry_bytes(entries.pop(0).values())
        self._stream_sizes[key] = size
        return f"{self._clock.now_us() // 1_000}-{len(entries)}"

    async def enlist_stream(self, namespace: str, name: str, *, anyhow: bool = False) -> bool:
        self._check()
        listed = self._enlisted.setdefault(namespace, set())
        if name not in listed and not anyhow and len(listed) >= self._quotas.streams:
            listed &= {one for one in listed if f"{namespace}/{one}" in self.stream_entries}
            if len(listed) >= self._quotas.streams:
                return False
        listed.add(name)
        self.stream_entries.setdefault(f"{namespace}/{name}", [])
        return True

    # -- partitioning ---------------------------------------------------------------------------

    async def ask_partition(self, shards: int) -> resharding.ReshardingAnswer:
        self._check()
        memorymoves.check_number(shards)
        layout = self._known_layout()
        if layout.former is not None:
            is_same = shards == layout.shards
            return (
                resharding.ReshardingAnswer.MOVING if is_same else resharding.ReshardingAnswer.OTHER
            )
        self._moves.wanted = 0 if shards == layout.shards else shards
        return (
            resharding.ReshardingAnswer.ASKED
            if self._moves.wanted
            else resharding.ReshardingAnswer.DONE
        )

    async def partitioning(self) -> resharding.ReshardingProgress:
        self._check()
        layout, record = self._known_layout(), self._moves
        return resharding.ReshardingProgress(
            layout=layout.number,
            shards=layout.shards,
            former_shards=layout.former.shards if layout.former else 0,
            wanted=record.wanted,
            phase=record.phase,
            moved=record.moved,
            left=record.left,
            waiting=record.waiting,
        )

    async def announce_partition(self, shards: int, epoch: messages.Epoch) -> messages.Layout:
        self._check()
        layout = self._known_layout()
        if layout.former is None:
            former = messages.Layout(number=layout.number, shards=layout.shards)
            layout = messages.Layout(number=layout.number + 1, shards=shards, former=former)
        self._make_shards(layout, epoch)
        self._layout, self._moves.wanted = layout, 0
        return layout

    async def unaware_workers(self) -> tuple[str, ...]:
        self._check()
        number = self._known_layout().number
        return tuple(sorted(w for w in self._workers if self._moves.knows.get(w, 0) < number))

    async def note_progress(
        self,
        epoch: messages.Epoch,
        *,
        phase: resharding.Phase,
        moved: int,
        left: int,
        waiting: str = "",
    ) -> None:
        self._check()
        record = self._moves
        record.phase, record.moved, record.left = phase, moved, left
        record.waiting = waiting

    async def shard_state(self, shard: messages.ShardId) -> str:
        return self._shard(shard).state

    async def count_definitions(self, shard: messages.ShardId) -> int:
        return len(self._shard(shard).definitions)

    async def move(
        self,
        shard: messages.ShardId,
        cursor: str | None,
        epoch: messages.Epoch,
        *,
        hold_seconds: float = 0.0,
    ) -> export.Moved:
        self._fenced(shard, epoch)
        layout = self._known_layout()
        moved = memorymoves.move(self.shards, shard, layout)
        for target in sharding.fed_by(shard, layout):
            self._tell(self._shard(target))
        return moved

    async def close_shard(self, shard: messages.ShardId, epoch: messages.Epoch) -> str:
        state = self._fenced(shard, epoch)
        reason = memorymoves.why_not_closed(state)
        if not reason:
            state.state = "closed"
            state.leases.clear()
        return reason

    async def unlink_closed(self, shard: messages.ShardId) -> None:
        self._shard(shard)

    async def open_own(self, layout: messages.Layout, epoch: messages.Epoch) -> None:
        for shard in sharding.own_shards(layout):
            self._fenced(shard, epoch).state = "open"

    async def end_partition(self, epoch: messages.Epoch, *, moved: int = 0) -> messages.Layout:
        layout = self._known_layout()
        await self.open_own(layout, epoch)
        self._layout = messages.Layout(number=layout.number, shards=layout.shards)
        self._moves = memorymoves.Record(moved=moved, knows=self._moves.knows)
        return self._layout

    # -- maintenance ----------------------------------------------------------------------------

    async def sweep(
        self,
        shard: messages.ShardId,
        cursor: str | None,
        epoch: messages.Epoch,
        *,
        due_of: Callable[[definitions.Definition], int | None] | None = None,
    ) -> mending.Swept:
        state = self._fenced(shard, epoch)
        if state.state == "draining":
            return mending.Swept(cursor=None)
        armed, unarmed = 0, []
        for schedule_id, stored in state.definitions.items():
            chain = schedule_id + stored.timing_version
            if stored.state is not definitions.State.ARMED or chain in state.members:
                continue
            due = due_of(stored) if due_of else None
            if due is None:
                unarmed.append(schedule_id)
            else:
                state.members[chain] = memoryshard.Point(stored.namespace, due)
                armed += 1
        strays = [member for member in state.members if _is_stray(member, state)]
        for member in strays:
            state.drop(member)
        self._tell(state)
        return mending.Swept(
            cursor=None,
            looked_at=len(state.definitions) + len(state.members),
            armed=armed,
            dropped=len(strays),
            unarmed=tuple(unarmed),
        )

    async def suspect_shards(
        self, *, every: bool = False
    ) -> tuple[suspectpoints.SuspectShard, ...]:
        del every  # every dictionary answers
        self._check()
        for shard in self.shards.values():
            if shard.look_at_server(self.server, 0, self._clock.now_us()):
                self._tell(shard)
        return tuple(
            suspectpoints.SuspectShard(shard=number, back_us=shard.back_us)
            for number, shard in self.shards.items()
            if shard.back_us or shard.held_points()
        )

    async def set_aside(self, suspect: suspectpoints.SuspectShard, epoch: messages.Epoch) -> int:
        return self._fenced(suspect.shard, epoch).set_aside()

    async def held_points(
        self, shard: messages.ShardId
    ) -> AsyncIterator[Sequence[suspectpoints.HeldPoint]]:
        state = self._shard(shard)
        held = [
            suspectpoints.HeldPoint(
                lane=lane,
                point=point,
                record=state.records.get(point.member, messages.OccurrenceRecord()),
                definition=state.definitions.get(point.schedule_id),
            )
            for lane, point in state.held_points()
        ]
        if held:
            yield held

    async def apply_compared(
        self,
        shard: messages.ShardId,
        compared: suspectpoints.PointComparison,
        epoch: messages.Epoch,
        *,
        outcomes: bytes = b"",
    ) -> int:
        state = self._fenced(shard, epoch)
        changed = state.compare(compared, self._clock.now_us())
        state.add_outcomes([outcomes])
        self._tell(state)
        return changed

    async def end_suspicion(
        self, suspect: suspectpoints.SuspectShard, epoch: messages.Epoch
    ) -> str:
        return self._fenced(suspect.shard, epoch).end_suspicion(suspect.back_us)

    async def stats(self) -> list[shardstats.ShardStats]:
        self._check()
        return [self._stats_of(shard) for shard in self.shards.values()]

    async def collect(
        self,
        shard: messages.ShardId,
        epoch: messages.Epoch,
        *,
        patience_seconds: float = 86_400.0,
    ) -> AsyncIterator[collector.Collected]:
        self._check()
        yield collector.Collected()  # blobs are kept for as long as the queue

    async def tell_circuits(
        self,
        news: Sequence[circuit.News] = (),
        gone: Sequence[circuit.GoneReceiver] = (),
        *,
        known: int = -1,
        rule: circuit.CircuitRule,
    ) -> circuit.Board:
        self._check()
        return self._circuits.tell(news, gone, known=known, rule=rule)

    async def read_circuits(self) -> circuit.Board:
        return await self.tell_circuits(rule=circuit.CircuitRule())

    async def totals(self) -> counts.Totals:
        stats = await self.stats()
        return counts.Totals(
            points=sum(each.points - each.claimed for each in stats),
            due=sum(each.due for each in stats),
            outcomes=sum(each.outcomes for each in stats),
            dead=sum(each.dead for each in stats),
            lag_us=max((each.lag_us for each in stats), default=0),
            first_due_us=None,
        )

    # -- steps ----------------------------------------------------------------------------------

    def _claim_one(
        self,
        shard: memoryshard.MemoryShard,
        batch: int,
        lease_seconds: float,
        *,
        standby: bool,
        skip_suspects: bool,
    ) -> messages.Claimed:
        now = self._clock.now_us()
        cap = now - (claiming.STANDBY_DUE_DELAY_US[0] if standby else 0)
        claim_id = messages.ClaimId(os.urandom(12))
        if shard.look_at_server(self.server, self._marks.get(shard.number, 0), now):
            self._tell(shard, ran=True)
        left = shard.suspect_claims(now) if skip_suspects else set()
        members = shard.claim(
            claim_id,
            now_us=now,
            cap_us=cap,
            batch=batch,
            lease_us=int(lease_seconds * 1_000_000),
            without=left,
        )
        self._marks[shard.number] = max(shard.mark, self._marks.get(shard.number, 0))
        wait = shard.wait_us(now_us=now, cap_us=cap, without=left)
        return messages.Claimed(
            shard=shard.number,
            claim=self._as_claim(shard, claim_id, members, now) if members else None,
            wait_seconds=None if wait is None else wait / 1_000_000,
            more=shard.count_due(now_us=now, cap_us=cap, without=left) if members else 0,
            has_suspects=bool(left),
        )

    def _as_claim(
        self,
        shard: memoryshard.MemoryShard,
        claim_id: messages.ClaimId,
        members: list[bytes],
        now_us: int,
    ) -> messages.Claim:
        lease = shard.leases[claim_id]
        found = [(m, points.parse_member(m, shard.members[m].due_us)) for m in members]
        known = sorted((point for _, point in found if point), key=lambda point: point.due_us)
        return messages.Claim(
            id=claim_id,
            shard=shard.number,
            points=tuple(known),
            reclaimed=lease.attempts,
            alone=lease.alone,
            now_us=now_us,
            first_us=lease.first_us,
            token_us=lease.expiry_us,
            held_until=self._clock.monotonic() + (lease.expiry_us - now_us) / 1_000_000,
            records={m: shard.records[m] for m in members if m in shard.records},
            unknown_members=tuple(
                (m, float(shard.members[m].due_us)) for m, point in found if not point
            ),
            back_us=shard.back_us,
        )

    def _tell(self, shard: memoryshard.MemoryShard, *, ran: bool = False) -> None:
        """Ring for the earliest unclaimed point; rather once too often than too late."""
        now = self._clock.now_us()
        dues = [
            point.due_us
            for point in shard.members.values()
            if point.holder is None and point.due_us != points.HELD_US
        ]
        dues += [lease.expiry_us for lease in shard.leases.values() if lease.is_given]
        for alarm in self._wakeups if dues else ():
            alarm.wake(shard.number, (min(dues) - now) / 1_000_000)
        for reader in self.ledgers if ran else ():
            reader.tell(shard.number)

    def _stats_of(self, shard: memoryshard.MemoryShard) -> shardstats.ShardStats:
        now = self._clock.now_us()
        waiting = [
            p.due_us
            for p in shard.members.values()
            if p.holder is None and p.due_us != points.HELD_US
        ]
        return shardstats.ShardStats(
            shard=shard.number,
            points=len(shard.members),
            due=sum(due <= now for due in waiting),
            claimed=len(shard.members) - len(waiting),
            claims=len(shard.leases),
            outcomes=len(shard.outcomes),
            dead=len(shard.dead),
            lag_us=max(0, now - min(waiting, default=now)),
        )

    def _check(self) -> None:
        if not self.available:
            raise errors.QueueUnavailable("the test took the queue away")

    def _check_owner(self) -> None:
        if self._owner is not None and self._mark and not self._owner.is_of(self._mark):
            raise queue_errors.Foreign(f"the index is of another cluster; {scripting.OTHER_INDEX}")

    def _known_layout(self) -> messages.Layout:
        if self._layout is None:
            raise queue_errors.Uninitialised("there is no index yet: the operator makes it")
        return self._layout

    def _shard(self, shard: messages.ShardId) -> memoryshard.MemoryShard:
        self._check()
        self._check_owner()
        if shard in self.away:
            raise _AWAY
        found = self.shards.get(shard)
        if found is None:
            raise queue_errors.Uninitialised(f"shard {shard} holds no index")
        return found

    def _fenced(self, shard: messages.ShardId, epoch: messages.Epoch) -> memoryshard.MemoryShard:
        found = self._shard(shard)
        if epoch < found.epoch:
            raise queue_errors.Fenced(f"term {epoch} is older than {found.epoch}")
        found.epoch = epoch
        return found


def _is_stray(member: bytes, shard: memoryshard.MemoryShard) -> bool:
    stored = shard.definitions.get(points.ScheduleId(member[:8]))
    is_chain = len(member) == points.CHAIN_LENGTH
    return stored is None or (is_chain and member[8:] != stored.timing_version)


def _check_dues(settlement: messages.Settlement) -> None:
    for point in (*settlement.chains, *(each.point for each in settlement.occurrences)):
        records.checked_due(point.due_us)


def _holds_to_the_port(queue: MemoryDelayQueue) -> DelayQueue:
    """Fails type checking where the class and the port differ."""
    return queue
