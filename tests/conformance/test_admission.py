"""Concurrency policies on every queue: which slots may start beside active runs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

import pytest

from duepoint.delayqueue import activeruns, messages, overlaps
from duepoint.delayqueue.overlaps import Facts, Verdict
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from tests.support import queueing
from tests.support.queueing import EPOCH, SECOND_US

SLOT_US = queueing.CREATED_US + 3_600 * SECOND_US


@pytest.fixture
def gate(harness):
    return Gate(harness)


@dataclasses.dataclass
class Gate:
    """A queue with one schedule, and slots that ask to start."""

    harness: queueing.Harness
    policy: str = "Forbid"
    most: int = 1
    limit: int = 1
    jobs: bool = True
    generation: int = 1

    @property
    def queue(self):
        return self.harness.queue

    def definition(self, **changes):
        policy = rules.Policy(
            concurrency_policy=self.policy, max_concurrency=self.most, queue_limit=self.limit
        )
        timing = rules.Timing(schedules=("@every 1m",))
        rule = rules.Rule(timing=timing, policy=policy)
        return self.harness.definition(rule=rule, generation=self.generation, **changes)

    async def arm(self) -> Gate:
        armed = messages.Arming(definition=self.definition(), due_us=self.harness.now_us() - 1)
        await self.queue.writer.upsert([(armed, queueing.BLOB)], EPOCH)
        return self

    async def slots(self, *numbers: int) -> tuple[messages.Claim, list[bytes]]:
        """Return these slots as planned occurrences of one claim."""
        return await self._planned(await self.harness.claim_one(), numbers)

    async def _planned(self, claim, numbers):
        chain = next(p for p in claim.points if p.kind is points.PointKind.CHAIN)
        planned = [
            messages.Occurrence(
                point=dataclasses.replace(
                    chain, kind=points.PointKind.PLANNED, slot_us=slot(number)
                ),
                record=messages.OccurrenceRecord(),
            )
            for number in numbers
        ]
        split = messages.Settlement(
            planned=planned, chains=[(chain.member, self.harness.now_us() - 1)], number=0
        )
        assert not (await self.queue.settlements.settle(claim, split)).not_held
        return claim, [one.point.member for one in planned]

    def entry(self, member: bytes, **facts) -> overlaps.Request:
        run = activeruns.run_of(member)
        number = (int.from_bytes(run[:8], "big") - SLOT_US) // SECOND_US
        job = f"report-{number}" if self.jobs else ""
        facts.setdefault("checked", not self.jobs)
        return overlaps.Request(
            member=member,
            run=activeruns.active(run, points.TimingVersion(member[8:12]), job),
            version=self.definition().timing_version,
            policy=self.policy,
            most=self.most,
            mark=str(self.generation),
            waiting=self._waiting(member) if self.policy == "Queue" else None,
            limit=self.limit,
            facts=Facts(**facts),
        )

    def _waiting(self, member: bytes) -> messages.Occurrence:
        point = points.parse_member(member, self.harness.now_us() + 30 * SECOND_US)
        record = messages.OccurrenceRecord(attempt=1)
        queued = dataclasses.replace(point, kind=points.PointKind.QUEUED)
        return messages.Occurrence(point=queued, record=record)

    async def ask(self, claim, member, **facts) -> overlaps.Answer:
        """Return the answer to a worker that has listed the Jobs if the policy needs that."""
        answer = await self.queue.concurrency.admit(claim, self.entry(member, **facts))
        if answer.verdict is not Verdict.UNKNOWN:
            return answer
        return await self.queue.concurrency.admit(
            claim, self.entry(member, **{**facts, "listed": answer.mark})
        )

    async def settle(self, claim, *members, number=1, **more):
        done = messages.Settlement(finished=members, number=number, **more)
        return await self.queue.settlements.settle(claim, done)

    async def start(self, number: int = 0) -> bytes:
        """Start a slot and end its occurrence, as a Job's worker does."""
        claim, (member,) = await self.slots(number)
        assert (await self.ask(claim, member)).verdict is Verdict.IN
        await self.settle(claim, member)
        return member

    async def waiting(self) -> list[bytes]:
        """Return the queued occurrences."""
        return [
            point.slot_us
            for shard in await self.harness.shards()
            async for point, _ in self.queue.occurrences.all_occurrences(shard)
            if point.kind is points.PointKind.QUEUED
        ]

    async def run(self, number: int) -> activeruns.ActiveRun:
        chain = points.chain(self.definition().id, self.definition().timing_version, 0)
        planned = dataclasses.replace(chain, kind=points.PointKind.PLANNED, slot_us=slot(number))
        return self.entry(planned.member).run


def slot(number: int) -> int:
    return SLOT_US + number * SECOND_US


def with_policy(gate: Gate, policy: str, **changes) -> Gate:
    return dataclasses.replace(gate, policy=policy, **changes)


def run_of(member: bytes) -> activeruns.Run:
    return activeruns.run_of(member)


# -- Forbid ------------------------------------------------------------------------------------


async def test_the_first_slot_starts_once_the_jobs_were_listed(gate):
    await gate.arm()
    claim, (member,) = await gate.slots(0)
    first = await gate.queue.concurrency.admit(claim, gate.entry(member))
    assert first.verdict is Verdict.UNKNOWN
    listed = await gate.queue.concurrency.admit(claim, gate.entry(member, listed=first.mark))
    assert listed.verdict is Verdict.IN


async def test_a_job_that_is_gone_makes_room(gate):
    await gate.arm()
    await gate.start(0)
    claim, (member,) = await gate.slots(1)
    asked = await gate.ask(claim, member)
    gone = await gate.ask(claim, member, checked=True, over=frozenset(asked.runs))
    assert gone.verdict is Verdict.IN


@pytest.mark.parametrize("most", [1, 3])
async def test_no_more_are_let_in_than_may_be(gate, most):
    gate = await with_policy(gate, "Forbid", most=most).arm()
    claim, members = await gate.slots(*range(8))
    answers = await asyncio.gather(*(gate.ask(claim, one, checked=True) for one in members))
    verdicts = [answer.verdict for answer in answers]
    assert verdicts.count(Verdict.IN) == most
    assert verdicts.count(Verdict.FORBIDDEN) == 8 - most


async def test_several_workers_at_once_let_in_no_more_and_forget_none(gate, key_prefix):
    """Each worker decides by what it has read; one that read too early decides again."""
    gate = await with_policy(gate, "Queue", most=2, limit=9).arm()
    claims = [await gate.slots(number) for number in range(8)]
    async with contextlib.AsyncExitStack() as stack:
        asking = []
        for claim, (member,) in claims:
            harness = await queueing.redis_harness(gate.harness.server.url, key_prefix)
            stack.push_async_callback(harness.close)
            worker = dataclasses.replace(gate, harness=harness)
            asking.append(worker.ask(claim, member, checked=True))
        verdicts = [answer.verdict for answer in await asyncio.gather(*asking)]
    assert (verdicts.count(Verdict.IN), verdicts.count(Verdict.WAITS)) == (2, 6)
    assert len(await gate.waiting()) == 6


# -- ends --------------------------------------------------------------------------------------


async def test_a_delivery_that_waits_for_its_next_try_is_active(gate):
    gate = await with_policy(gate, "Forbid", jobs=False).arm()
    claim, (member,) = await gate.slots(0)
    assert (await gate.ask(claim, member)).verdict is Verdict.IN
    retry = queueing.a_retry(points.parse_member(member, 0), due_us=gate.harness.now_us() + 10**8)
    await gate.settle(claim, member, occurrences=(retry,))
    claim, (member,) = await gate.slots(1)
    assert (await gate.ask(claim, member)).verdict is Verdict.FORBIDDEN


# -- Replace -----------------------------------------------------------------------------------


async def test_the_retries_of_a_delivery_that_is_replaced_end_at_once(gate):
    gate = await with_policy(gate, "Replace", jobs=False).arm()
    claim, (older,) = await gate.slots(0)
    assert (await gate.ask(claim, older)).verdict is Verdict.IN
    far_us = gate.harness.now_us() + 3_600 * SECOND_US
    retry = queueing.a_retry(points.parse_member(older, 0), due_us=far_us)
    await gate.settle(claim, older, occurrences=(retry,))
    claim, (newer,) = await gate.slots(1)
    assert (await gate.ask(claim, newer)).verdict is Verdict.IN
    claims = await gate.harness.claim_all()
    held = [one for one in claims if retry.point.member in [p.member for p in one.points]]
    assert len(held) == 1
    assert (await gate.ask(held[0], retry.point.member)).verdict is Verdict.REPLACED


# -- Queue -------------------------------------------------------------------------------------


async def test_a_slot_waits_and_is_the_claim_s_no_more(gate):
    gate = await with_policy(gate, "Queue").arm()
    first = await gate.start(0)
    claim, (member,) = await gate.slots(1)
    answer = await gate.ask(claim, member, checked=True, verified=frozenset({run_of(first)}))
    assert answer.verdict is Verdict.WAITS
    assert await gate.waiting() == [slot(1)]
    assert (await gate.ask(claim, member)).verdict is Verdict.LOST


async def _one_waits(gate: Gate) -> bytes:
    first = await gate.start(0)
    claim, (member,) = await gate.slots(1)
    await gate.ask(claim, member, checked=True, verified=frozenset({run_of(first)}))
    await gate.settle(claim)
    return first


async def _called(gate: Gate) -> tuple[messages.Claim, bytes]:
    """Return the waiting slot that is due now."""
    for claim in await gate.harness.claim_all():
        for point in claim.points:
            if point.kind is points.PointKind.QUEUED:
                return claim, point.member
    raise AssertionError("no slot that waits is due")


async def test_the_end_of_a_job_calls_the_slot_that_waits(gate):
    gate = await with_policy(gate, "Queue").arm()
    await _one_waits(gate)
    told = await gate.queue.concurrency.finish(gate.definition(), ["report-0"])
    assert (told.removed, told.called) == (1, 1)
    claim, member = await _called(gate)
    assert points.parse_member(member, 0).slot_us == slot(1)
    assert (await gate.ask(claim, member)).verdict is Verdict.IN


async def test_beyond_the_limit_the_oldest_that_waits_goes(gate):
    gate = await with_policy(gate, "Queue").arm()
    first = await _one_waits(gate)
    claim, (newer,) = await gate.slots(2)
    verified = frozenset({run_of(first)})
    answer = await gate.ask(claim, newer, checked=True, verified=verified)
    assert answer.verdict is Verdict.WAITS
    claim, older = await _called(gate)
    assert points.parse_member(older, 0).slot_us == slot(1)
    assert (await gate.ask(claim, older)).verdict is Verdict.FULL
    assert slot(2) in await gate.waiting()


async def test_those_that_wait_start_oldest_first(gate):
    gate = await with_policy(gate, "Queue", limit=10, jobs=False).arm()
    claim, members = await gate.slots(*range(5))
    for member in members:
        await gate.ask(claim, member)
    started, (running, *_) = [], members
    await gate.settle(claim, running)
    await gate.queue.concurrency.leave(claim, gate.definition(), [run_of(running)])
    for _ in range(4):
        held, member = await _called(gate)
        assert (await gate.ask(held, member)).verdict is Verdict.IN
        started.append(points.parse_member(member, 0).slot_us)
        await gate.settle(held, member)
        await gate.queue.concurrency.leave(held, gate.definition(), [run_of(member)])
    assert started == [slot(n) for n in (1, 2, 3, 4)]


async def test_a_slot_that_waits_is_known_after_its_list_was_lost(gate):
    gate = await with_policy(gate, "Queue", jobs=False).arm()
    claim, (one, other) = await gate.slots(0, 1)
    await gate.ask(claim, one)
    assert (await gate.ask(claim, other)).verdict is Verdict.WAITS
    await _forget_lists(gate)
    claim, (third,) = await gate.slots(2)
    assert (await gate.ask(claim, third)).verdict is Verdict.WAITS  # the older one comes first
    claims = await gate.harness.claim_all()
    due = [p.slot_us for c in claims for p in c.points if p.kind is points.PointKind.QUEUED]
    assert due == [slot(1)]


async def _forget_lists(gate: Gate) -> None:
    names = gate.harness.server.keys
    for index, shard in enumerate(await gate.harness.shards()):
        tag = names.shard(1, index)
        found = gate.definition().id
        await gate.harness.server.redis.unlink(tag.active(found))
        assert shard == index
