"""Random histories with faults, judged by what was fired: the driver and its ground truth.

Schedules in several namespaces have slots that are all overdue. Workers claim, plan, split, fire,
fail, settle twice, come too late and die at every step; an operator edits and deletes; the server
falls back to an older state or loses everything, after which everything is compared and swept as
the operator does: chains go on from the watermark, and what is open is stored with them. A slot has
ended when it was fired; one whose try failed is open. What workers held back after a fallback is
compared with what was fired, and none of that is fired again (*again*). At the end every slot of
every living schedule has been fired (none *lost*), nothing of a deleted or superseded timing was
handed out to be fired (*ghost*), and no key holds a leftover (*orphan*). Without faults no slot is
fired twice (*doubled*).
"""

from __future__ import annotations

import collections
import dataclasses
import random

import msgspec

from duepoint.delayqueue import messages
from duepoint.delayqueue.repair import fallbacks
from duepoint.runs.watermark import Watermark
from duepoint.schedules import definition, points
from tests.support import queueing

SLOTS = 12
PERIOD_US = 1_000
LEASE_SECONDS = 0.15
_TIMED = points.TIMED_KINDS
Occurrence = messages.Occurrence


class History:
    """One history on one shard."""

    def __init__(self, harness, seed, *, with_faults, server):
        self.harness = harness
        self.queue = harness.queue
        self.dice = random.Random(seed)
        self.with_faults = with_faults
        self.server = server
        self.base_us = harness.now_us() - 100_000_000
        self.stored: dict[bytes, definition.Definition] = {}
        self.first: dict[bytes, int] = {}  # id -> first slot of the present timing
        self.deleted: set[bytes] = set()
        self.fired: collections.Counter[tuple[bytes, bytes, int]] = collections.Counter()
        self.ghosts: list[bytes] = []
        self.late: list[tuple[messages.Claim, messages.Settlement]] = []
        self.snapshot = None
        self.rollbacks = 0
        #: Slots that had ended, each timing's up to a number, when the server fell back last.
        self.ended: dict[tuple[bytes, bytes], int] = {}
        self.again: list[tuple[str, int]] = []
        self.lives = 1
        self.handed: dict[tuple[bytes, bytes], int] = {}  # newest slot that left its chain

    # -- the operator ---------------------------------------------------------------------------

    async def arm(self, number):
        new = self.harness.definition(name=f"s{number}", namespace=f"team-{number % 3}")
        await self._upsert(new, 0)

    async def edit(self):
        old = self.dice.choice(list(self.stored.values()))
        generation = old.generation + 1
        if self.dice.random() < 0.5:
            new = msgspec.structs.replace(old, generation=generation)
            arming = messages.Arming(definition=new, due_us=None, keep_chain=True)
            assert await self._apply(arming) is messages.Armed.APPLIED
            self.stored[old.id] = new
        else:
            new = msgspec.structs.replace(
                old,
                generation=generation,
                timing_generation=generation,
                state=definition.State.ARMED,
            )
            await self._upsert(new, self.dice.randrange(SLOTS))

    async def delete(self):
        old = self.dice.choice(list(self.stored.values()))
        await self.queue.writer.remove(old.id, old.uid, old.namespace, queueing.EPOCH)
        del self.stored[old.id]
        self.deleted.add(old.id)

    async def _upsert(self, new, first):
        arming = messages.Arming(definition=new, due_us=self.slot_us(first))
        assert await self._apply(arming) is messages.Armed.APPLIED
        self.stored[new.id] = new
        self.first[new.id] = first

    async def _apply(self, arming):
        (armed,) = await self.queue.writer.upsert([(arming, queueing.BLOB)], queueing.EPOCH)
        return armed

    async def roll_back(self):
        """The server is as it was a while ago; the operator compares all objects, then sweeps."""
        if self.snapshot is None or self.dice.random() < 0.4:
            self.snapshot = await self.server.dump()
            return
        await self.server.restore(self.snapshot)
        await self.server.become_another(self.harness.server.shard(messages.ShardId(0)).meta)
        self.rollbacks += 1
        await self.compare()
        for known in self.stored.values():
            ended = self.number_of(self.watermark_us(known))
            self.ended[known.id, known.timing_version] = ended
        await self.put_again()

    async def lose_everything(self):
        """The server is empty; the operator makes the index again and fills it."""
        await self.server.restore({})
        await self.queue.membership.open(1, queueing.EPOCH)
        self.lives += 1
        await self.compare()

    async def compare(self):
        seen = {}
        async for one in queueing.stored(self.queue, messages.ShardId(0)):
            seen[one.id] = one
        for schedule_id, one in seen.items():
            if schedule_id not in self.stored:
                await self.queue.writer.remove(schedule_id, one.uid, one.namespace, queueing.EPOCH)
        for schedule_id, wanted in self.stored.items():
            there = seen.get(schedule_id)
            if there is None or there.timing_generation != wanted.timing_generation:
                ended = self.settled(wanted)
                due = self.due_after(wanted, ended.through_us)
                arming = messages.Arming(
                    definition=wanted, due_us=due, open=self.reopened(wanted, ended)
                )
                await self._apply(arming)
            elif there.generation != wanted.generation:
                arming = messages.Arming(definition=wanted, due_us=None, keep_chain=True)
                await self._apply(arming)
        await self.sweep()

    async def put_again(self):
        """What the leader does with a server that went back."""
        for doubt in await self.queue.fallbacks.doubts():
            async for part in self.queue.fallbacks.overdue(doubt):
                wanted = [self._again(one) for one in part]
                await self.queue.fallbacks.put_again(doubt, wanted, queueing.EPOCH)
            await self.queue.fallbacks.end(doubt, queueing.EPOCH)

    def _again(self, one):
        known = one.definition
        settled_us, due_us = self.watermark_us(known), one.chain_due_us
        if due_us is not None:
            first = max(self.number_of(settled_us) + 1, self.number_of(due_us))
            due_us = self.slot_us(first) if first < SLOTS else None
        fired = [each.member for each in one.occurrences if self._has_been_fired(each)]
        return fallbacks.PutAgain(overdue=one, due_us=due_us, gone=fired)

    def _has_been_fired(self, point):
        timing = point.schedule_id, point.timing_version
        return self.fired[*timing, self.number_of(point.slot_us)] > 0

    async def sweep(self):
        await self.harness.sweep(
            due_of=lambda known: self.due_after(
                known, max(known.not_before_us, self.watermark_us(known))
            )
        )

    # -- slots ----------------------------------------------------------------------------------

    def slot_us(self, number):
        return self.base_us + number * PERIOD_US

    def number_of(self, slot_us):
        return (slot_us - self.base_us) // PERIOD_US

    def settled(self, known):
        """What has ended, as the status would say: what left its chain, but for what is open."""
        first = self.first[known.id]
        newest = self.handed.get((known.id, known.timing_version), first - 1)
        return Watermark(
            self.slot_us(newest),
            started_us=tuple(
                self.slot_us(number)
                for number in range(first, newest + 1)
                if not self.fired[known.id, known.timing_version, number]
            ),
        )

    def reopened(self, known, ended):
        return tuple(
            Occurrence(
                point=points.DuePoint(
                    schedule_id=known.id,
                    timing_version=known.timing_version,
                    kind=points.PointKind.RETRY,
                    due_us=self.base_us,
                    slot_us=slot_us,
                ),
                record=messages.OccurrenceRecord(attempt=1),
            )
            for slot_us in ended.open_us
        )

    def watermark_us(self, known):
        """The newest slot up to which all have been fired: what a sweep may arm a chain from."""
        number = self.first[known.id]
        while self.fired[known.id, known.timing_version, number]:
            number += 1
        return self.slot_us(number - 1)

    def _hand_over(self, point, slot_us):
        key = point.schedule_id, point.timing_version
        self.handed[key] = max(self.handed.get(key, -1), self.number_of(slot_us))

    def due_after(self, known, after_us):
        number = max(self.number_of(after_us) + 1, self.first[known.id])
        return self.slot_us(number) if number < SLOTS else None

    # -- workers --------------------------------------------------------------------------------

    async def work(self):
        lease = self.dice.choice([0.0, LEASE_SECONDS]) if self.with_faults else 60.0
        (answer,) = await self.queue.claims.claim(
            [messages.ShardId(0)], worker="w", batch=self.dice.randint(1, 12), lease_seconds=lease
        )
        if answer.claim is None:
            return False
        claim = answer.claim
        living = set(self.stored)
        known = await self.queue.definitions.read_definitions(
            claim.shard, {p.schedule_id for p in claim.points}
        )
        if set(known) - living:
            self.ghosts += list(set(known) - living)
        if self._fault(0.1):
            return True  # died before it fired anything
        if self._fault(0.1):
            claim = await self.queue.claims.extend(claim, LEASE_SECONDS) or claim
        if self._fault(0.05):
            await self.queue.claims.release(claim)
            return True
        await self._carry_out(claim, known)
        return True

    async def _carry_out(self, claim, known):
        fired, finished, chains, ended, plans = [], [], [], [], []
        for point in claim.points:
            mine = known.get(point.schedule_id)
            stale = mine and point.timing_version != mine.timing_version
            if mine is None or (stale and point.kind in _TIMED):
                finished.append(point.member)
            elif point.kind is not points.PointKind.CHAIN:
                fired.append((point, point.slot_us))
            elif self.dice.random() < 0.5:
                plans.append(self._planning(point))
            else:
                fired.append((point, point.due_us))
        fired += await self._plan(claim, plans)
        retries = []
        for point, slot_us in fired:
            self._hand_over(point, slot_us)
            if self.dice.random() < 0.2:
                retries.append(self._retry(point, slot_us))
                again = retries[-1].point.member == point.member
            else:
                self._fire(point, slot_us)
                again = False
            following = self.number_of(slot_us) + 1
            if point.kind is not points.PointKind.CHAIN:
                finished += [] if again else [point.member]
            elif following < SLOTS:
                chains.append((point.member, self.slot_us(following)))
            else:
                finished.append(point.member)
                ended.append(point.member)
        if self._fault(0.1):
            return  # died after firing
        settlement = messages.Settlement(
            finished=tuple(finished), chains=tuple(chains), ended=tuple(ended),
            occurrences=tuple(retries), outcomes=b"told",
        )  # fmt: skip
        await self._settle(claim, settlement)

    async def _settle(self, claim, settlement):
        if self._fault(0.15):
            self.late.append((claim, settlement))
            return
        settled = await self.queue.settlements.settle(claim, settlement)
        if self._fault(0.2):  # the reply was lost: said once more
            again = await self.queue.settlements.settle(claim, settlement)
            assert again.lost or again.applied == 0
        if settled.remaining and not settled.lost and self._fault(0.5):
            await self.queue.claims.release(claim)

    async def settle_late(self):
        if self.late:
            claim, settlement = self.late.pop(self.dice.randrange(len(self.late)))
            await self.queue.settlements.settle(claim, settlement)
            if self.dice.random() < 0.5:
                await self.queue.claims.release(claim)

    def _planning(self, chain):
        first = self.number_of(chain.due_us)
        last = min(first + self.dice.randint(1, 4), SLOTS)
        return messages.Planning(
            chain=chain,
            slots=tuple(
                queueing.a_planned(chain, self.slot_us(number)) for number in range(first, last)
            ),
            next_due_us=self.slot_us(last) if last < SLOTS else None,
        )

    async def _plan(self, claim, plans):
        if not plans:
            return []
        held = await self.queue.settlements.split(claim, plans)
        if self._fault(0.2):  # the reply was lost: asked once more
            assert await self.queue.settlements.split(claim, plans) == held
        return [
            (slot.point, slot.point.slot_us)
            for planning, kept in zip(plans, held, strict=True)
            for slot in planning.slots
            if kept
        ]

    def _retry(self, point, slot_us):
        again = dataclasses.replace(
            point, kind=points.PointKind.RETRY, slot_us=slot_us, due_us=self.base_us
        )
        record = messages.OccurrenceRecord(attempt=1)
        return Occurrence(point=again, record=record, source=point.member)

    def _fire(self, point, slot_us):
        timing = point.schedule_id, point.timing_version
        if self.number_of(slot_us) <= self.ended.get(timing, -1):
            self.again.append((timing[0].hex(), self.number_of(slot_us)))
        self.fired[point.schedule_id, point.timing_version, self.number_of(slot_us)] += 1

    def _fault(self, chance):
        return self.with_faults and self.dice.random() < chance

    # -- the whole ------------------------------------------------------------------------------

    async def run(self, *, steps=120, schedules=9):
        for number in range(schedules):
            await self.arm(number)
        for _ in range(steps):
            await self.work()
            if self.with_faults:
                await self._trouble()
        await self.drain()

    async def _trouble(self):
        await self.dice.choices(
            [
                self.settle_late,
                self.edit,
                self.delete,
                self.roll_back,
                self.lose_everything,
                self.sweep,
                self._pause,
            ],
            [4, 1.5, 0.3, 2, 0.5, 0.5, 0.5],
        )[0]() if self.dice.random() < 0.4 and len(self.stored) > 3 else None

    async def _pause(self):
        await self.harness.pass_time(LEASE_SECONDS / 3)

    async def drain(self):
        """No more faults: everything comes to its end."""
        self.with_faults = False
        for _ in range(3):
            await self.harness.pass_time(LEASE_SECONDS * 1.2)
            while await self.work() or await self.queue.fallbacks.doubts():
                await self.put_again()
                await self.harness.pass_time(0.001)

    def lost(self):
        return [
            (known.name, number)
            for known in self.stored.values()
            for number in range(self.first[known.id], SLOTS)
            if not self.fired[known.id, known.timing_version, number]
        ]

    def doubled(self):
        return [slot for slot, times in self.fired.items() if times > 1]


class ServerState:
    """Everything under a prefix of a server, taken and put back."""

    def __init__(self, client, prefix):
        self._client = client
        self._prefix = prefix

    async def dump(self):
        keys = sorted([key async for key in self._client.scan_iter(match=self._pattern())])
        return {key: await self._client.dump(key) for key in keys}

    async def restore(self, state):
        keys = [key async for key in self._client.scan_iter(match=self._pattern())]
        if keys:
            await self._client.delete(*keys)
        for key, value in state.items():
            await self._client.restore(key, 0, value)

    async def become_another(self, meta):
        """What was restored is the state of another process than that which is there."""
        await self._client.hset(meta, "server", "another")

    async def forget(self, claims):
        await self._client.zremrangebyscore(claims, "-inf", "(+inf")

    async def leftovers(self, names, lanes):
        """What should be gone when every schedule has ended."""
        found = {}
        for key in (names.claims, names.occ, *(names.lane(lane) for lane in lanes)):
            found[key] = [m for m in await self._client.zrange(key, 0, -1) if m]
        for key in (names.leases, names.occrec):
            found[key] = [field for field in await self._client.hkeys(key) if field]
        found[names.heads] = [m for m in await self._client.zrange(names.heads, 0, -1) if m]
        return {key: rest for key, rest in found.items() if rest}

    def _pattern(self):
        return self._prefix.replace("[", "\\[") + "*"
