"""Which slots may start beside the active runs of their schedule: what every queue promises."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest

from duepoint.delayqueue import activeruns, messages
from duepoint.delayqueue.activeruns import ActiveRunState, AdmissionFacts, Verdict
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from tests.support import queueing, redisserver
from tests.support.queueing import EPOCH, SECOND_US

SLOT_US = queueing.CREATED_US + 3_600 * SECOND_US


@pytest.fixture(params=[*redisserver.KINDS, "cluster"])
async def gate(request, shared_servers, shared_clusters, key_prefix):
    is_cluster = request.param == "cluster"
    server = shared_clusters("valkey") if is_cluster else shared_servers(request.param)
    made = await queueing.redis_harness(server.url, key_prefix)
    yield Gate(made)
    await made.close()


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
            concurrency=self.policy, max_concurrency=self.most, queue_limit=self.limit
        )
        timing = rules.Timing(schedules=("@every 1m",))
        rule = rules.Rule(timing=timing, policy=policy)
        return self.harness.definition(rule=rule, generation=self.generation, **changes)

    async def arm(self) -> Gate:
        armed = messages.Arming(definition=self.definition(), due_us=self.harness.now_us() - 1)
        await self.queue.writer.upsert([(armed, queueing.BLOB)], EPOCH)
        return self

    async def slots(self, *numbers: int) -> tuple[messages.Claim, list[bytes]]:
        """These slots as planned occurrences of one claim."""
        return await self._planned(await self.harness.claim_one(), numbers)

    async def more_slots(self, *numbers: int) -> tuple[messages.Claim, list[bytes]]:
        """The chain is due again at once, and has these."""
        return await self.slots(*numbers)

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
        plan = messages.Planning(
            chain=chain, slots=tuple(planned), next_due_us=self.harness.now_us() - 1
        )
        assert await self.queue.settlements.split(claim, [plan]) == (True,)
        return claim, [one.point.member for one in planned]

    def entry(self, member: bytes, **facts) -> activeruns.AdmissionRequest:
        run = activeruns.run_of(member)
        number = (int.from_bytes(run[:8], "big") - SLOT_US) // SECOND_US
        job = f"report-{number}" if self.jobs else ""
        facts.setdefault("checked", not self.jobs)
        return activeruns.AdmissionRequest(
            member=member,
            run=activeruns.active(run, points.TimingVersion(member[8:12]), job),
            version=self.definition().timing_version,
            policy=self.policy,
            most=self.most,
            mark=str(self.generation),
            waiting=self._waiting(member) if self.policy == "Queue" else None,
            limit=self.limit,
            facts=AdmissionFacts(**facts),
        )

    def _waiting(self, member: bytes) -> messages.Occurrence:
        point = points.parse_member(member, self.harness.now_us() + 30 * SECOND_US)
        record = messages.OccurrenceRecord(attempt=1)
        queued = dataclasses.replace(point, kind=points.PointKind.QUEUED)
        return messages.Occurrence(point=queued, record=record)

    async def ask(self, claim, member, **facts) -> activeruns.AdmissionAnswer:
        """The answer of somebody who has listed the Jobs where that was wanted."""
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
        """A slot that was let in and whose occurrence has ended, as that of a Job does."""
        claim, (member,) = await self.slots(number)
        assert (await self.ask(claim, member)).verdict is Verdict.IN
        await self.settle(claim, member)
        return member

    async def waiting(self) -> list[bytes]:
        """The queued occurrences."""
        return [
            one.slot_us
            for shard in await self.harness.shards()
            async for one in self.queue.occurrences.all_occurrences(shard)
            if one.kind is points.PointKind.QUEUED
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


async def test_a_job_that_the_list_shows_counts(gate):
    await gate.arm()
    claim, (member,) = await gate.slots(5)
    other = await gate.run(1)
    answer = await gate.ask(
        claim, member, seen=(other,), verified=frozenset({other.run}), checked=True
    )
    assert answer.verdict is Verdict.FORBIDDEN


async def test_a_list_of_another_time_is_no_list(gate):
    await gate.arm()
    claim, (member,) = await gate.slots(0)
    answer = await gate.queue.concurrency.admit(claim, gate.entry(member, listed="something else"))
    assert answer.verdict is Verdict.UNKNOWN


async def test_nothing_is_listed_a_second_time(gate):
    await gate.arm()
    await gate.start(0)
    claim, (member,) = await gate.slots(1)
    answer = await gate.queue.concurrency.admit(claim, gate.entry(member))
    assert answer.verdict is Verdict.CHECK


async def test_an_edit_has_the_jobs_listed_again(gate):
    await gate.arm()
    await gate.start(0)
    edited = dataclasses.replace(gate, generation=2)
    armed = messages.Arming(
        definition=msgspec.structs.replace(edited.definition(), timing_generation=1),
        due_us=None,
        keep_chain=True,
    )
    await gate.queue.writer.upsert([(armed, queueing.BLOB)], EPOCH)
    claim, (member,) = await gate.slots(1)
    again = dataclasses.replace(gate.entry(member), mark="2")
    assert (await gate.queue.concurrency.admit(claim, again)).verdict is Verdict.UNKNOWN


async def test_a_slot_is_refused_only_after_the_job_that_it_is_refused_for_was_looked_at(gate):
    await gate.arm()
    first = await gate.start(0)
    claim, (member,) = await gate.slots(1)
    asked = await gate.ask(claim, member)
    assert asked.verdict is Verdict.CHECK
    assert [one.job for one in asked.runs] == ["report-0"]
    looked = await gate.ask(claim, member, checked=True, verified=frozenset({run_of(first)}))
    assert looked.verdict is Verdict.FORBIDDEN


async def test_a_job_that_is_gone_makes_room(gate):
    await gate.arm()
    await gate.start(0)
    claim, (member,) = await gate.slots(1)
    asked = await gate.ask(claim, member)
    gone = await gate.ask(claim, member, checked=True, over=asked.runs)
    assert gone.verdict is Verdict.IN


async def test_what_is_over_by_an_older_look_is_not_taken_from_a_newer_run(gate):
    await gate.arm()
    await gate.start(0)
    claim, (member,) = await gate.slots(1)
    (known,) = (await gate.ask(claim, member)).runs
    older = dataclasses.replace(known, value=known.value[:6] + b"another-job")
    again = await gate.ask(claim, member, checked=True, over=(older,))
    assert again.verdict is Verdict.CHECK


async def test_a_slot_that_is_being_started_needs_no_look(gate):
    await gate.arm()
    claim, (one, other) = await gate.slots(0, 1)
    assert (await gate.ask(claim, one)).verdict is Verdict.IN
    answer = await gate.ask(claim, other, checked=True)
    assert answer.verdict is Verdict.FORBIDDEN


async def test_a_run_that_was_let_in_is_let_in_again(gate):
    await gate.arm()
    claim, (member,) = await gate.slots(0)
    for _ in range(3):
        assert (await gate.ask(claim, member)).verdict is Verdict.IN


async def test_a_retry_of_a_run_that_was_let_in_is_let_in(gate):
    await gate.arm()
    claim, (member,) = await gate.slots(0)
    assert (await gate.ask(claim, member)).verdict is Verdict.IN
    planned = points.parse_member(member, 0)
    retry = queueing.a_retry(planned, due_us=gate.harness.now_us() - 1)
    await gate.settle(claim, member, occurrences=(retry,))
    again = await gate.harness.claim_one()
    assert retry.point.member in [point.member for point in again.points]
    assert (await gate.ask(again, retry.point.member)).verdict is Verdict.IN


@pytest.mark.parametrize("most", [1, 3])
async def test_no_more_are_let_in_than_may_be(gate, most):
    gate = await with_policy(gate, "Forbid", most=most).arm()
    claim, members = await gate.slots(*range(8))
    answers = await asyncio.gather(*(gate.ask(claim, one, checked=True) for one in members))
    verdicts = [answer.verdict for answer in answers]
    assert verdicts.count(Verdict.IN) == most
    assert verdicts.count(Verdict.FORBIDDEN) == 8 - most


async def test_several_workers_at_once_let_in_no_more(gate):
    gate = await with_policy(gate, "Forbid", most=2).arm()
    claims = [await gate.slots(number) for number in range(6)]
    answers = await asyncio.gather(
        *(gate.ask(claim, member, checked=True) for claim, (member,) in claims)
    )
    assert [answer.verdict for answer in answers].count(Verdict.IN) == 2


async def test_a_member_that_the_claim_does_not_hold_is_let_in_nowhere(gate):
    await gate.arm()
    claim, (member,) = await gate.slots(0)
    await gate.settle(claim, member)
    assert (await gate.ask(claim, member)).verdict is Verdict.LOST


async def test_another_schedule_s_runs_are_its_own(gate):
    await gate.arm()
    await gate.start(0)
    claim, (member,) = await gate.slots(1)
    entry = dataclasses.replace(gate.entry(member, checked=True), most=2)
    assert (await gate.queue.concurrency.admit(claim, entry)).verdict is Verdict.IN


# -- more runs than fit into one question --------------------------------------------------------

MANY = 520  # more than are searched for a name


async def _with_many(gate: Gate) -> tuple[messages.Claim, bytes, list[activeruns.ActiveRun]]:
    """A slot that asks beside many Jobs, all of which a list has shown."""
    claim, (member,) = await gate.slots(MANY + 1)
    runs = _many_runs(gate)
    await gate.ask(claim, member, seen=tuple(runs))
    return claim, member, runs


def _many_runs(gate: Gate) -> list[activeruns.ActiveRun]:
    """Of Jobs as they are called."""
    known = gate.definition()
    return [
        activeruns.active(
            activeruns.Run(slot(number).to_bytes(8, "big")),
            known.timing_version,
            f"{known.name}-{slot(number) // SECOND_US}",
        )
        for number in range(1, MANY + 1)
    ]


async def _asked_to_the_end(gate, claim, member, is_active) -> tuple[Verdict, int]:
    """The answer to who looks at all that is asked for, and how many runs that were."""
    facts, looked_at = {"checked": True}, 0
    while True:
        answer = await gate.ask(claim, member, **facts)
        if answer.verdict is not Verdict.CHECK:
            return answer.verdict, looked_at
        looked_at += len(answer.runs)
        facts = {
            "checked": True,
            "look": facts.get("look") or answer.look,
            "verified": frozenset(one.run for one in answer.runs if is_active(one)),
            "over": tuple(one for one in answer.runs if not is_active(one)),
        }


async def test_beside_many_runs_a_slot_is_refused_after_each_was_looked_at_once(gate):
    gate = await with_policy(gate, "Forbid", most=MANY).arm()
    claim, member, _ = await _with_many(gate)
    verdict, looked_at = await _asked_to_the_end(gate, claim, member, lambda _: True)
    assert (verdict, looked_at) == (Verdict.FORBIDDEN, MANY)
    # Who asks later has them looked at again: some may have ended meanwhile.
    assert await _asked_to_the_end(gate, claim, member, lambda _: True) == (verdict, looked_at)


async def test_one_of_many_runs_that_has_ended_makes_room(gate):
    gate = await with_policy(gate, "Forbid", most=MANY).arm()
    claim, member, runs = await _with_many(gate)
    verdict, _ = await _asked_to_the_end(gate, claim, member, lambda one: one != runs[-1])
    assert verdict is Verdict.IN


async def test_a_list_of_many_jobs_that_was_just_made_is_a_look_at_each(gate):
    gate = await with_policy(gate, "Forbid", most=MANY).arm()
    claim, (member,) = await gate.slots(0)
    runs = tuple(_many_runs(gate))
    verified = frozenset(one.run for one in runs)
    answer = await gate.ask(claim, member, seen=runs, verified=verified, checked=True)
    assert answer.verdict is Verdict.FORBIDDEN


async def test_many_runs_are_replaced_and_all_their_jobs_told_of(gate):
    gate = await with_policy(gate, "Replace").arm()
    claim, member, runs = await _with_many(gate)
    verdict, _ = await _asked_to_the_end(gate, claim, member, lambda _: True)
    assert verdict is Verdict.IN
    told = set()
    while found := (await gate.ask(claim, member, checked=True)).runs:
        assert not told & {one.job for one in found}
        told |= {one.job for one in found}
        await gate.queue.concurrency.leave(
            claim, gate.definition(), jobs=[one.job for one in found]
        )
    assert told == {one.job for one in runs}


async def test_of_many_that_wait_each_that_starts_calls_others(gate):
    gate = await with_policy(gate, "Queue", limit=1000, jobs=False).arm()
    claim, (running, *members) = await gate.slots(*range(130))
    assert (await gate.ask(claim, running)).verdict is Verdict.IN
    for member in members:
        assert (await gate.ask(claim, member)).verdict is Verdict.WAITS
    gate = dataclasses.replace(gate, most=1000)  # an edit of the number of runs
    started = 0
    await gate.settle(claim, running)
    await gate.queue.concurrency.leave(claim, gate.definition(), [run_of(running)])
    while claims := await gate.harness.claim_all():
        for held in claims:
            for point in held.points:
                if point.kind is points.PointKind.QUEUED:
                    assert (await gate.ask(held, point.member)).verdict is Verdict.IN
                    started += 1
            await gate.settle(held, *(point.member for point in held.points), number=2)
    assert started == len(members)


# -- ends --------------------------------------------------------------------------------------


async def test_an_end_makes_room(gate):
    await gate.arm()
    await gate.start(0)
    finished = await gate.queue.concurrency.finish(gate.definition(), ["report-0"], EPOCH)
    assert finished.removed == 1
    claim, (member,) = await gate.slots(1)
    assert (await gate.ask(claim, member)).verdict is Verdict.IN


async def test_an_end_that_is_told_twice_or_of_nobody_changes_nothing(gate):
    await gate.arm()
    await gate.start(0)
    assert (await gate.queue.concurrency.finish(gate.definition(), ["other-1"], EPOCH)).removed == 0
    assert (
        await gate.queue.concurrency.finish(gate.definition(), ["report-0"], EPOCH)
    ).removed == 1
    assert (
        await gate.queue.concurrency.finish(gate.definition(), ["report-0"], EPOCH)
    ).removed == 0


async def test_jobs_that_end_by_the_thousand_make_room(gate):
    """All Jobs of a schedule deleted at once, or ended while nobody could be told."""
    await gate.arm()
    await gate.start(0)
    ended = [f"report-{1_700_000_000 + number}" for number in range(9_000)]
    assert (
        await gate.queue.concurrency.finish(gate.definition(), [*ended, "report-0"], EPOCH)
    ).removed == 1


async def test_a_job_that_ends_before_its_slot_is_settled_makes_room_at_once(gate):
    await gate.arm()
    claim, (member,) = await gate.slots(0)
    await gate.ask(claim, member)
    assert (
        await gate.queue.concurrency.finish(gate.definition(), ["report-0"], EPOCH)
    ).removed == 1


async def test_the_end_of_one_of_many_jobs_is_found_by_its_name(gate):
    gate = await with_policy(gate, "Forbid", most=MANY).arm()
    claim, (member,) = await gate.slots(0)
    runs = _many_runs(gate)
    await gate.ask(claim, member, seen=tuple(runs))
    assert (
        await gate.queue.concurrency.finish(gate.definition(), [runs[-1].job], EPOCH)
    ).removed == 1
    assert (
        await gate.queue.concurrency.finish(gate.definition(), [runs[-1].job], EPOCH)
    ).removed == 0


async def test_a_run_that_is_still_tried_does_not_leave(gate):
    await gate.arm()
    claim, (member,) = await gate.slots(0)
    await gate.ask(claim, member)
    left = await gate.queue.concurrency.leave(
        claim, gate.definition(), [run_of(member)], look=run_of(member)
    )
    assert (left.removed, left.state) == (0, ActiveRunState.ACTIVE)
    await gate.settle(claim, member)
    left = await gate.queue.concurrency.leave(
        claim, gate.definition(), [run_of(member)], look=run_of(member)
    )
    assert (left.removed, left.state) == (1, ActiveRunState.ABSENT)


async def test_a_delivery_that_left_no_occurrence_holds_nobody_up(gate):
    gate = await with_policy(gate, "Forbid", jobs=False).arm()
    await gate.start(0)  # nobody says that it left
    claim, (member,) = await gate.slots(1)
    assert (await gate.ask(claim, member)).verdict is Verdict.IN


async def test_a_delivery_that_waits_for_its_next_try_is_active(gate):
    gate = await with_policy(gate, "Forbid", jobs=False).arm()
    claim, (member,) = await gate.slots(0)
    assert (await gate.ask(claim, member)).verdict is Verdict.IN
    retry = queueing.a_retry(points.parse_member(member, 0), due_us=gate.harness.now_us() + 10**8)
    await gate.settle(claim, member, occurrences=(retry,))
    claim, (member,) = await gate.slots(1)
    assert (await gate.ask(claim, member)).verdict is Verdict.FORBIDDEN


async def test_deliveries_under_way_are_known_to_a_policy_that_comes_later(gate):
    gate = await with_policy(gate, "Forbid", jobs=False).arm()
    claim, (member,) = await gate.slots(0)  # allowed without asking
    retry = queueing.a_retry(points.parse_member(member, 0), due_us=gate.harness.now_us() + 10**8)
    await gate.settle(claim, member, occurrences=(retry,))
    claim, (member,) = await gate.slots(1)
    assert (await gate.ask(claim, member)).verdict is Verdict.FORBIDDEN


# -- Replace -----------------------------------------------------------------------------------


async def test_a_slot_replaces_the_active_run_and_is_told_whose_job_goes(gate):
    gate = await with_policy(gate, "Replace").arm()
    await gate.start(0)
    claim, (member,) = await gate.slots(1)
    asked = await gate.ask(claim, member)
    assert asked.verdict is Verdict.CHECK  # its own Job: one that exists replaces nothing
    answer = await gate.ask(claim, member, checked=True)
    assert answer.verdict is Verdict.IN
    assert [one.job for one in answer.runs] == ["report-0"]


async def test_who_is_let_in_again_is_told_again_what_is_to_go_until_that_is_gone(gate):
    gate = await with_policy(gate, "Replace").arm()
    await gate.start(0)
    claim, (member,) = await gate.slots(1)
    await gate.ask(claim, member, checked=True)
    again = await gate.ask(claim, member)
    assert [one.job for one in again.runs] == ["report-0"]
    await gate.queue.concurrency.leave(claim, gate.definition(), jobs=["report-0"])
    assert (await gate.ask(claim, member)).runs == ()


async def test_nothing_active_replaces_nothing(gate):
    gate = await with_policy(gate, "Replace").arm()
    claim, (member,) = await gate.slots(0)
    answer = await gate.ask(claim, member)
    assert (answer.verdict, answer.runs) == (Verdict.IN, ())


async def test_a_slot_that_was_replaced_while_it_was_started_learns_of_it(gate):
    gate = await with_policy(gate, "Replace").arm()
    claim, (older, newer) = await gate.slots(0, 1)
    assert (await gate.ask(claim, older)).verdict is Verdict.IN
    assert (await gate.ask(claim, newer, checked=True)).verdict is Verdict.IN
    # The newer one found no Job yet: that it tells of its end must not hide that it was replaced.
    await gate.queue.concurrency.leave(claim, gate.definition(), jobs=["report-0"])
    look = await gate.queue.concurrency.leave(claim, gate.definition(), look=run_of(older))
    assert look.state is ActiveRunState.REPLACED
    assert (await gate.ask(claim, older)).verdict is Verdict.REPLACED


async def test_of_two_that_replace_each_other_one_is_left(gate):
    gate = await with_policy(gate, "Replace").arm()
    claim, members = await gate.slots(*range(5))
    for member in members:
        assert (await gate.ask(claim, member, checked=True)).verdict is Verdict.IN
    again = [(await gate.ask(claim, member, checked=True)).verdict for member in members]
    assert again == [Verdict.REPLACED] * 4 + [Verdict.IN]


@pytest.mark.parametrize("jobs", [True, False], ids=["jobs", "webhooks"])
async def test_a_slot_that_comes_late_takes_no_place_back_from_a_newer_one(gate, jobs):
    gate = await with_policy(gate, "Replace", jobs=jobs).arm()
    claim, (older, newer) = await gate.slots(0, 1)
    assert (await gate.ask(claim, newer)).verdict is Verdict.IN
    if jobs:  # its own Job may be there, and then it has started before
        assert (await gate.ask(claim, older)).verdict is Verdict.CHECK
    assert (await gate.ask(claim, older, checked=True)).verdict is Verdict.REPLACED
    again = await gate.ask(claim, newer)
    assert (again.verdict, again.runs) == (Verdict.IN, ())


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
    """The waiting slot that is due now."""
    for claim in await gate.harness.claim_all():
        for point in claim.points:
            if point.kind is points.PointKind.QUEUED:
                return claim, point.member
    raise AssertionError("no slot that waits is due")


async def test_the_end_of_a_job_calls_the_slot_that_waits(gate):
    gate = await with_policy(gate, "Queue").arm()
    await _one_waits(gate)
    told = await gate.queue.concurrency.finish(gate.definition(), ["report-0"], EPOCH)
    assert (told.removed, told.called) == (1, 1)
    claim, member = await _called(gate)
    assert points.parse_member(member, 0).slot_us == slot(1)
    assert (await gate.ask(claim, member)).verdict is Verdict.IN


async def test_all_that_wait_are_called_where_there_is_more_room_than_by_ends(gate):
    gate = await with_policy(gate, "Queue", limit=5).arm()
    first = await gate.start(0)
    for number in (1, 2, 3):
        claim, (member,) = await gate.slots(number)
        await gate.ask(claim, member, checked=True, verified=frozenset({run_of(first)}))
        await gate.settle(claim)
    told = await gate.queue.concurrency.finish(gate.definition(), [], EPOCH, every=True)
    assert (told.removed, told.called) == (0, 3)
    assert (
        await gate.queue.concurrency.finish(gate.definition(), [], EPOCH, every=True)
    ).called == 0


async def test_the_end_of_a_delivery_calls_the_slot_that_waits(gate):
    gate = await with_policy(gate, "Queue", jobs=False).arm()
    claim, (one, other) = await gate.slots(0, 1)
    assert (await gate.ask(claim, one)).verdict is Verdict.IN
    assert (await gate.ask(claim, other)).verdict is Verdict.WAITS
    await gate.settle(claim, one)
    left = await gate.queue.concurrency.leave(claim, gate.definition(), [run_of(one)])
    assert left.called == 1
    claim, member = await _called(gate)
    assert (await gate.ask(claim, member)).verdict is Verdict.IN


@pytest.mark.parametrize("jobs", [True, False])
async def test_a_slot_that_waited_counts_while_it_is_tried(gate, jobs):
    gate = await with_policy(gate, "Queue", jobs=jobs, limit=5).arm()
    claim, (one, other) = await gate.slots(0, 1)
    assert (await gate.ask(claim, one)).verdict is Verdict.IN
    assert (await gate.ask(claim, other, checked=True)).verdict is Verdict.WAITS
    await gate.settle(claim, one)
    later, (third,) = await gate.slots(2)
    await gate.queue.concurrency.leave(claim, gate.definition(), [run_of(one)])
    held, member = await _called(gate)
    assert (await gate.ask(held, member)).verdict is Verdict.IN
    # Another one comes while it is being tried.
    assert (await gate.ask(later, third, checked=True)).verdict is Verdict.WAITS
    again = await gate.ask(held, member)
    assert again.verdict is Verdict.IN


async def test_a_newer_slot_does_not_overtake_one_that_waits(gate):
    gate = await with_policy(gate, "Queue", limit=5).arm()
    await _one_waits(gate)
    await gate.queue.concurrency.finish(gate.definition(), ["report-0"], EPOCH)
    claims = await gate.harness.claim_all()
    chain = next(c for c in claims if any(p.kind is points.PointKind.CHAIN for p in c.points))
    _, (newer,) = await gate._planned(chain, [2])
    assert (await gate.ask(chain, newer, checked=True)).verdict is Verdict.WAITS


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


async def test_a_slot_older_than_all_that_wait_is_the_one_that_goes(gate):
    gate = await with_policy(gate, "Queue").arm()
    first = await gate.start(0)
    verified = frozenset({run_of(first)})
    claim, (newer, older) = await gate.slots(5, 3)
    assert (await gate.ask(claim, newer, checked=True, verified=verified)).verdict is Verdict.WAITS
    assert (await gate.ask(claim, older, checked=True, verified=verified)).verdict is Verdict.FULL
    assert await gate.waiting() == [slot(5)]


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


async def test_a_slot_that_cannot_be_judged_waits(gate):
    gate = await with_policy(gate, "Queue").arm()
    claim, (member,) = await gate.slots(0)
    answer = await gate.queue.concurrency.admit(claim, gate.entry(member, blind=True))
    assert answer.verdict is Verdict.WAITS


async def test_a_waiting_slot_of_an_older_timing_is_in_nobody_s_way(gate):
    gate = await with_policy(gate, "Queue").arm()
    await _one_waits(gate)
    gate = dataclasses.replace(gate, generation=2)
    await gate.arm()
    await gate.queue.concurrency.finish(gate.definition(), ["report-0"], EPOCH)
    claims = await gate.harness.claim_all()
    chain = next(c for c in claims if any(p.kind is points.PointKind.CHAIN for p in c.points))
    _, (newer,) = await gate._planned(chain, [7])
    assert (await gate.ask(chain, newer)).verdict is Verdict.IN


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


async def test_a_slot_that_there_is_room_for_is_not_one_too_many(gate):
    gate = await with_policy(gate, "Queue").arm()
    await _one_waits(gate)
    chain, (newer,) = await gate.slots(2)
    await gate.queue.concurrency.finish(
        gate.definition(), ["report-0"], EPOCH
    )  # the older one's turn
    assert (await gate.ask(chain, newer, checked=True)).verdict is Verdict.WAITS
    claim, older = await _called(gate)
    assert (await gate.ask(claim, older)).verdict is Verdict.IN


async def _forget_lists(gate: Gate) -> None:
    names = gate.harness.server.keys
    for index, shard in enumerate(await gate.harness.shards()):
        tag = names.shard(1, index)
        found = gate.definition().id
        await _delete(gate, tag.active(found), tag.looks(found), tag.waiting(found))
        assert shard == index


async def _delete(gate: Gate, *names: str) -> None:
    for name in names:
        await gate.harness.server.redis.unlink(name)


async def test_a_set_of_the_former_shape_is_made_anew(gate):
    """Runs without the order in which they are looked at, as they were once stored."""
    await gate.arm()
    await gate.start(0)
    names = gate.harness.server.keys
    for index, _ in enumerate(await gate.harness.shards()):
        await _delete(gate, names.shard(1, index).looks(gate.definition().id))
    claim, (member,) = await gate.slots(1)
    first = await gate.queue.concurrency.admit(claim, gate.entry(member))
    assert first.verdict is Verdict.UNKNOWN
    there = await gate.run(0)
    facts = {"listed": first.mark, "seen": (there,), "look": first.look, "checked": True}
    entry = gate.entry(member, verified=frozenset({there.run}), **facts)
    assert (await gate.queue.concurrency.admit(claim, entry)).verdict is Verdict.FORBIDDEN


# -- a run that is started whatever the policy says ----------------------------------------------


async def test_a_run_that_is_allowed_to_start_counts_for_the_others(gate):
    await gate.arm()
    claim, (one, other) = await gate.slots(0, 1)
    allowed = dataclasses.replace(gate.entry(one), policy="Allow")
    assert (await gate.queue.concurrency.admit(claim, allowed)).verdict is Verdict.IN
    assert (await gate.ask(claim, other, checked=True)).verdict is Verdict.FORBIDDEN
