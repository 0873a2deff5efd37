"""Concurrency policies as a worker carries them out, in virtual time, with an API server."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest

from duepoint import telemetry
from duepoint.delayqueue import activeruns, messages
from duepoint.kube import errors, jobbuilder, jobs
from duepoint.runs import outcome as outcomes
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import actions, definition, points
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from tests.support.builders import a_rule
from tests.support.jobworkplace import DOWN, JOB, NOON, SECOND, JobWorkplace, name
from tests.support.workplace import EPOCH, WEBHOOK

STREAM = actions.Action(target=actions.StreamAction(name="events", max_length=100))
UNREACHABLE = outcomes.Retry(reason=Reason.NETWORK, message="connection refused")


@pytest.fixture
async def place():
    made = JobWorkplace()
    await made.queue.membership.open(4, EPOCH)
    return made


def gets(place: JobWorkplace) -> int:
    return sum(1 for request in place.api.requests if request[0] == "GET")


# -- Forbid ------------------------------------------------------------------------------------


async def test_a_slot_is_skipped_for_good_while_a_job_runs(place):
    await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(25)
        await place.end(10)
        await place.clock.advance(4)
        assert place.jobs_there() == [name(10)]  # what was skipped stays skipped
        await place.clock.advance(2)
    assert place.jobs_there() == [name(10), name(30)]
    assert await place.told() == [
        (10, RunState.RUNNING, Reason.CREATED),
        (20, RunState.SKIPPED, Reason.CONCURRENCY_FORBIDDEN),
        (30, RunState.RUNNING, Reason.CREATED),
    ]


async def test_a_skipped_slot_says_what_was_in_its_way_and_moves_the_watermark(place):
    await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(21)
    (skipped,) = [e for e in await place.events() if e.state is RunState.SKIPPED]
    assert (skipped.message, skipped.settled_us) == (
        "a former run is active", NOON + 20 * SECOND,
    )  # fmt: skip


async def test_a_job_that_ended_while_nobody_watched_holds_nobody_up(place):
    await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        place.api.end_job("default", name(10))
        await place.clock.advance(10)
    assert place.jobs_there() == [name(10), name(20)]


async def test_a_job_that_was_deleted_by_hand_holds_nobody_up(place):
    await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        await place.api.request("DELETE", jobs.path("default", name(10)), {})
        await place.clock.advance(10)
    assert place.jobs_there() == [name(20)]


async def test_several_may_run_where_the_limit_says_so(place):
    await place.schedule("Forbid", also={"max_concurrency": 3})
    async with place.working(place.a_worker("a"), place.a_worker("b")):
        await place.clock.advance(62)
    assert place.jobs_there() == [name(10), name(20), name(30)]


async def test_two_workers_that_catch_up_start_no_more_than_may_run(place):
    await place.schedule("Forbid", also={"catch_up": "All"})
    await place.clock.advance(55)
    async with place.working(place.a_worker("a"), place.a_worker("b")):
        await place.clock.advance(1)
    assert place.jobs_there() == [name(10)]
    skipped = [slot for slot, state, _ in await place.told() if state is RunState.SKIPPED]
    assert skipped == [20, 30, 40, 50]


async def test_a_slot_is_not_skipped_unless_the_jobs_can_be_looked_at(place):
    await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        place.api.end_job("default", name(10))
        for _ in range(3):
            place.api.fail_next(DOWN, verb="GET")
        await place.clock.advance(17)
    told = await place.told()
    assert (20, RunState.RUNNING, Reason.CREATED) in told
    assert not [one for one in told if one[1] is RunState.SKIPPED]


async def test_jobs_are_known_again_after_redis_lost_everything(place):
    known = await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
    place.queue.flush()
    await place.queue.membership.open(4, EPOCH)
    await place.arm(msgspec.structs.replace(known, not_before_us=NOON + 10 * SECOND), JOB)
    async with place.working(place.a_worker("b")):
        await place.clock.advance(10)
    assert place.jobs_there() == [name(10)]
    assert (20, RunState.SKIPPED, Reason.CONCURRENCY_FORBIDDEN) in await place.told()


async def test_jobs_are_known_after_redis_came_back_with_an_older_copy(place):
    await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        place.queue.fail_over()  # the run came after the copy
        await place.clock.advance(10)
    assert place.jobs_there() == [name(10)]


async def test_a_job_made_before_the_policy_counts(place):
    known = await place.schedule("Allow")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        edited = a_rule("@every 10s", whole_seconds=True, policy={"concurrency": "Forbid"})
        await place.queue.writer.upsert(
            [
                (
                    messages.Arming(
                        definition=msgspec.structs.replace(known, rule=edited, generation=2),
                        due_us=None,
                        keep_chain=True,
                    ),
                    actions.encode(JOB),
                )
            ],
            EPOCH,
        )
        await place.clock.advance(10)
    assert place.jobs_there() == [name(10)]


async def test_a_slot_whose_job_exists_already_is_no_other_run(place):
    """Redis lost the slot's end, and the slot is due again while its own Job runs."""
    known = await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
    place.queue.flush()
    await place.queue.membership.open(4, EPOCH)
    await place.arm(known, JOB)
    async with place.working(place.a_worker("b")):
        await place.clock.advance(1)
    told = await place.told()
    assert told == [(10, RunState.RUNNING, Reason.CREATED)]


async def test_a_job_that_the_quota_refuses_is_tried_again_and_not_in_its_own_way(place):
    await place.schedule("Forbid", schedule="@every 10m")
    place.api.job_quota["default"] = 0
    async with place.working(place.a_worker()):
        await place.clock.advance(605)
        del place.api.job_quota["default"]
        await place.clock.advance(120)
    assert place.jobs_there() == [name(600)]


async def test_a_worker_that_dies_with_a_slot_let_in_leaves_no_run_behind(place):
    await place.schedule("Forbid", WEBHOOK)
    place.webhooks.hold()
    async with place.working(place.a_worker()):
        await place.clock.advance(10.5)
        assert place.fired() == [10]
    place.webhooks.let_go()  # the worker was killed in the middle of it
    async with place.working(place.a_worker("b")):
        await place.clock.advance(22)
    assert place.fired() == [10, 10, 30] or place.fired() == [10, 10, 20, 30]


async def test_a_webhook_s_slot_is_skipped_while_another_delivery_is_tried(place):
    await place.schedule("Forbid", WEBHOOK)
    place.webhooks.reply(UNREACHABLE, UNREACHABLE, UNREACHABLE)
    async with place.working(place.a_worker()):
        await place.clock.advance(10.5)
        place.webhooks.always_reply(UNREACHABLE)
        await place.clock.advance(10)
    assert set(place.fired()) == {10}
    assert (20, RunState.SKIPPED, Reason.CONCURRENCY_FORBIDDEN) in await place.told()


async def test_webhooks_that_are_caught_up_with_are_delivered_one_after_the_other(place):
    await place.schedule("Forbid", WEBHOOK, also={"catch_up": "All"})
    await place.clock.advance(45)
    async with place.working(place.a_worker()):
        await place.clock.advance(1)
    assert place.fired() == [10, 20, 30, 40]


async def test_a_bug_of_ours_is_one_slot_s_trouble(place, monkeypatch):
    await place.schedule("Forbid")
    asked = place.jobs.of_schedule

    async def broken(*_):
        monkeypatch.setattr(place.jobs, "of_schedule", asked)
        raise RuntimeError("a bug")

    monkeypatch.setattr(place.jobs, "of_schedule", broken)
    async with place.working(place.a_worker()):
        await place.clock.advance(15)
    assert place.jobs_there() == [name(10)]


# -- Replace -----------------------------------------------------------------------------------


async def test_the_newer_job_takes_the_place_of_the_one_that_runs(place):
    await place.schedule("Replace")
    async with place.working(place.a_worker()):
        await place.clock.advance(31)
    assert place.jobs_there() == [name(30)]
    states = [(slot, state) for slot, state, _ in await place.told()]
    running, replacing = RunState.RUNNING, RunState.REPLACING
    assert states == [
        (10, running),
        (10, replacing),
        (20, running),
        (20, replacing),
        (30, running),
    ]


async def test_what_is_replaced_is_told_before_it_is_deleted(place, monkeypatch):
    """Who sees the deletion, finds the word of it already there, whoever dies in between."""
    known = await place.schedule("Replace")
    before: list[list[RunEvent]] = []
    delete = place.jobs.delete

    async def delete_later(*asked: str) -> None:
        before.append(await place.events())
        await delete(*asked)

    monkeypatch.setattr(place.jobs, "delete", delete_later)
    async with place.working(place.a_worker()):
        await place.clock.advance(21)
    assert place.jobs_there() == [name(20)]
    (told,) = [one for one in before[0] if one.state is RunState.REPLACING]
    assert (told.uid, told.job_name, told.reason) == (known.uid, name(10), Reason.REPLACED)
    assert told.message == "the slot of 2026-03-01T12:00:20Z took its place"


async def test_nothing_is_deleted_by_a_worker_that_cannot_say_so(place):
    await place.schedule("Replace")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)

        async def lost(_settler, _closed):
            return False

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("duepoint.worker.settler.Settler.report", lost)
            await place.clock.advance(10)
            assert place.jobs_there() == [name(10)]


async def test_a_finished_job_is_not_replaced(place):
    await place.schedule("Replace")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        place.api.end_job("default", name(10))
        await place.clock.advance(10)
    assert place.jobs_there() == [name(10), name(20)]


async def test_nothing_starts_where_the_former_job_cannot_be_deleted(place):
    await place.schedule("Replace", schedule="@every 60s")
    async with place.working(place.a_worker()):
        await place.clock.advance(61)
        for _ in range(2):
            place.api.fail_next(DOWN, verb="DELETE")
        await place.clock.advance(59.2)
        assert place.jobs_there() == [name(60)]
        await place.clock.advance(20)
    assert place.jobs_there() == [name(120)]


async def test_a_slot_whose_job_exists_already_replaces_nothing(place):
    known = await place.schedule("Replace", schedule="@every 60s")
    async with place.working(place.a_worker()):
        await place.clock.advance(61)
    before = place.api.stored("jobs", "default", name(60))
    place.queue.flush()
    await place.queue.membership.open(4, EPOCH)
    await place.arm(known, JOB)
    async with place.working(place.a_worker("b")):
        await place.clock.advance(5)
    assert place.api.stored("jobs", "default", name(60)) == before


@pytest.mark.parametrize("newer", ["active", "over", "not made"])
async def test_a_replaced_job_is_not_made_again_after_redis_lost_everything(place, newer):
    """It was deleted in favour of a newer one, and the last status written has it as started."""
    known = await place.schedule("Replace")
    async with place.working(place.a_worker()):
        await place.clock.advance(21)
    assert place.jobs_there() == [name(20)]
    if newer == "over":
        place.api.end_job("default", name(20))
    elif newer == "not made":  # its worker died in between
        await place.jobs.delete("default", known.name, known.uid, name(20))
    await place.lose_redis()
    await place.rearm_started(known, 10, settled=20 if newer != "not made" else 10)
    async with place.working(place.a_worker("b")):
        await place.clock.advance(5)
    assert place.jobs_there() == [name(20)]
    assert [one for one in await place.told() if one[0] == 10] == [
        (10, RunState.SKIPPED, Reason.REPLACED)
    ]


@pytest.mark.parametrize("newer", ["active", "over"])
async def test_a_replaced_job_is_not_made_again_where_a_newer_slot_is_judged_first(place, newer):
    """Redis lost everything, and the newest slot, on time, has listed the Jobs by then."""
    known = await place.schedule("Replace")
    async with place.working(place.a_worker()):
        await place.clock.advance(21)
    assert place.jobs_there() == [name(20)]  # that of 10 was deleted
    await place.lose_redis()
    place.api.end_job("default", name(20))
    await place.rearm_started(known, 10, settled=20, due=32)
    async with place.working(place.a_worker("b")):
        await place.clock.advance(10)
        assert name(30) in place.jobs_there()
        if newer == "over":
            place.api.end_job("default", name(30))
        await place.clock.advance(4)
    assert place.jobs_there() == [name(20), name(30)]
    assert [one for one in await place.told() if one[0] == 10] == [
        (10, RunState.SKIPPED, Reason.REPLACED)
    ]


async def test_a_newer_job_follows_a_deletion_whose_answer_was_lost_at_once(place):
    """Until it exists, nothing but Redis shows that the older slot had a Job."""
    await place.schedule("Replace", schedule="@every 60s")
    async with place.working(place.a_worker()):
        await place.clock.advance(61)
        lost = errors.Unavailable("no answer", sent=True)
        place.api.fail_next(lost, verb="DELETE", resource="jobs", applied=True)
        await place.clock.advance(59.1)
    assert place.jobs_there() == [name(120)]


class _CountedJobs:
    """The target, with the slots of the Jobs that it made; a deletion may precede a request."""

    def __init__(self, place: JobWorkplace) -> None:
        self.place, self.target = place, place.target.job
        self.made: list[int] = []
        self.deleted_before = 0

    async def check(self, firing):
        return await self.target.check(firing)

    async def fire(self, firing):
        slot = (firing.slot_us - NOON) // SECOND
        if slot == self.deleted_before:
            await self.place.api.request("DELETE", jobs.path("default", name(slot)), {})
        before = set(self.place.jobs_there())
        answer = await self.target.fire(firing)
        if name(slot) in set(self.place.jobs_there()) - before:
            self.made.append(slot)
        return answer


def counted(place: JobWorkplace) -> _CountedJobs:
    made = _CountedJobs(place)
    place.target = dataclasses.replace(place.target, job=made)
    return made


async def test_a_job_that_runs_is_not_made_again_when_redis_went_back_behind_it(place):
    """The queue has its slot as started and to be tried again, while a newer slot is due.

    It was deleted as a replaced one, and then asked for: so the slot had two Jobs.
    """
    known = await place.schedule("Replace")
    jobs_made = counted(place)
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
    assert jobs_made.made == [10]
    await place.lose_redis()
    await place.clock.advance(9.5)
    await place.rearm_started(known, 10, settled=30)
    async with place.working(place.a_worker("b")):
        await place.clock.advance(1)
        assert place.jobs_there() == [name(10)]
        await place.clock.advance(20)
    assert jobs_made.made == [10, 40]


async def test_a_job_that_was_seen_is_not_asked_for_again(place):
    """A newer slot may delete it in between."""
    known = await place.schedule("Replace", schedule="@every 60s")
    jobs_made = counted(place)
    async with place.working(place.a_worker()):
        await place.clock.advance(61)
    await place.lose_redis()
    await place.arm(known, JOB)
    jobs_made.deleted_before = 60
    async with place.working(place.a_worker("b")):
        await place.clock.advance(5)
    assert jobs_made.made == [60]
    assert (60, RunState.RUNNING, Reason.CREATED) in await place.told()


async def test_a_job_whose_creation_was_not_answered_is_looked_for_before_it_is_asked_for(place):
    await place.schedule("Replace", schedule="@every 60s")
    jobs_made = counted(place)
    place.api.fail_next(DOWN, verb="POST", resource="jobs", applied=True)
    async with place.working(place.a_worker()):
        await place.clock.advance(60.1)
        assert jobs_made.made == [60]
        jobs_made.deleted_before = 60  # the next request comes after a newer slot's deletion
        await place.clock.advance(20)
    assert jobs_made.made == [60]


async def test_a_started_job_without_a_due_successor_is_made_after_redis_lost_everything(place):
    known = await place.schedule("Replace")
    await place.clock.advance(11)
    await place.lose_redis()
    await place.rearm_started(known, 10, settled=10)
    async with place.working(place.a_worker()):
        await place.clock.advance(5)
    assert place.jobs_there() == [name(10)]


async def test_the_retries_of_a_replaced_delivery_end_as_a_replaced_run(place):
    await place.schedule("Replace", WEBHOOK)
    place.webhooks.reply(outcomes.Retry(reason=Reason.NETWORK, message="x", after_us=60 * SECOND))
    async with place.working(place.a_worker()):
        await place.clock.advance(21)
    assert place.fired() == [10, 20]
    told = await place.told()
    assert (10, RunState.REPLACED, Reason.REPLACED) in told
    assert (20, RunState.SUCCEEDED, Reason.SUCCEEDED) in told


async def test_a_delivery_under_way_is_not_cut_by_the_one_that_replaces_it(place):
    await place.schedule("Replace", WEBHOOK, schedule="@every 2s")
    place.webhooks.hold()
    async with place.working(place.a_worker()):
        await place.clock.advance(4.5)
        place.webhooks.let_go()
        await place.clock.advance(0.1)
    assert place.fired() == [2, 4]
    ended = [state for _, state, _ in await place.told() if state is not RunState.RUNNING]
    assert ended == [RunState.SUCCEEDED] * 2


class _SlowJobs:
    """An API server whose first answer to a POST is late, while the Job is not there yet."""

    def __init__(self, target_: target.Target) -> None:
        self._target = target_
        self.open = asyncio.Event()
        self.began = 0

    async def fire(self, firing: target.Firing) -> outcomes.Outcome:
        self.began += 1
        if self.began == 1:
            await self.open.wait()
        return await self._target.fire(firing)


async def test_a_job_that_comes_into_being_after_it_was_replaced_goes(place):
    await place.schedule("Replace", schedule="@every 2s")
    slow = _SlowJobs(place.target.job)
    place.target = dataclasses.replace(place.target, job=slow)
    async with place.working(place.a_worker()):
        await place.clock.advance(4.5)
        assert place.jobs_there() == [name(4)]
        slow.open.set()
        await place.clock.advance(0.2)
        assert place.jobs_there() == [name(4)]
        await place.clock.advance(1.6)
        assert place.jobs_there() == [name(6)]


# -- Queue -------------------------------------------------------------------------------------


async def test_a_waiting_slot_starts_when_the_active_job_ends_and_keeps_its_time(place):
    await place.schedule("Queue")
    async with place.working(place.a_worker()):
        await place.clock.advance(25)
        assert place.jobs_there() == [name(10)]
        await place.end(10)
        await place.clock.advance(0.1)
        assert place.jobs_there() == [name(10), name(20)]
    job = place.api.stored("jobs", "default", name(20))
    assert job["metadata"]["annotations"][jobbuilder.SCHEDULED_TIME] == "2026-03-01T12:00:20Z"


async def test_waiting_is_no_lateness(place):
    await place.schedule("Queue")

    def count() -> float:
        (histogram,) = telemetry.start_lateness_seconds.collect()
        return next(s.value for s in histogram.samples if s.name.endswith("_count"))

    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        before = count()
        await place.clock.advance(14)
        await place.end(10)
        await place.clock.advance(0.1)
        assert place.active() == [name(20)]
    assert count() == before


async def test_beyond_the_limit_the_oldest_waiting_slot_is_skipped(place):
    await place.schedule("Queue")
    async with place.working(place.a_worker()):
        await place.clock.advance(35)
        await place.end(10)
        await place.clock.advance(0.1)
    assert place.jobs_there() == [name(10), name(30)]
    assert (20, RunState.SKIPPED, Reason.QUEUE_FULL) in await place.told()


async def test_waiting_slots_start_in_their_order(place):
    await place.schedule("Queue", also={"queue_limit": 10})
    async with place.working(place.a_worker("a"), place.a_worker("b")):
        await place.clock.advance(41)
        for slot in (10, 20, 30):
            assert place.active() == [name(slot)]
            await place.end(slot)
            await place.clock.advance(0.1)
        assert place.active() == [name(40)]


async def test_without_anybody_to_tell_of_it_a_waiting_slot_finds_the_end_by_itself(place):
    await place.schedule("Queue", schedule="@every 5m")
    async with place.working(place.a_worker()):
        await place.clock.advance(605)
        assert place.active() == [name(300)]
        place.api.end_job("default", name(300))
        await place.clock.advance(31)
        assert place.active() == [name(600)]


async def test_a_slot_that_waits_long_looks_ever_less_often(place):
    await place.schedule("Queue", schedule="@every 20m", also={"queue_limit": 2})
    async with place.working(place.a_worker()):
        await place.clock.advance(2_401)
        looks = gets(place)
        await place.clock.advance(1_199)
    assert 4 <= (gets(place) - looks) / 2 <= 8  # its own Job, and the one that runs


async def test_a_waiting_slot_is_missed_once_its_deadline_has_passed(place):
    await place.schedule("Queue", schedule="@every 5m", also={"deadline_seconds": 45})
    async with place.working(place.a_worker()):
        await place.clock.advance(646)
        assert (600, RunState.MISSED, Reason.DEADLINE_EXCEEDED) in await place.told()
        await place.end(300)
        await place.clock.advance(1)
    assert place.jobs_there() == [name(300)]


@pytest.mark.parametrize(
    ("also", "run", "missed"),
    [
        ({}, [50], {20: "CatchUpPolicy", 30: "CatchUpPolicy", 40: "CatchUpPolicy"}),
        ({"catch_up": "All"}, [20, 30, 40, 50], {}),
        (
            {"catch_up": "All", "catch_up_limit": 2},
            [40, 50],
            {20: "CatchUpLimit", 30: "CatchUpLimit"},
        ),
        (
            {"catch_up": "None"},
            [50],
            {20: "CatchUpPolicy", 30: "CatchUpPolicy", 40: "CatchUpPolicy"},
        ),
    ],
    ids=["Latest", "All", "All but a limit", "None"],
)
async def test_an_edit_that_lets_nothing_wait_starts_what_catch_up_allows(place, also, run, missed):
    known = await place.schedule("Queue", also={"queue_limit": 10, **also})
    async with place.working(place.a_worker("a"), place.a_worker("b")):
        await place.clock.advance(51)
        assert place.active() == [name(10)]
        edited = msgspec.structs.replace(
            known,
            generation=2,
            rule=a_rule("@every 10s", whole_seconds=True, policy={"concurrency": "Allow", **also}),
        )
        arming = messages.Arming(definition=edited, due_us=None, keep_chain=True)
        await place.queue.writer.upsert([(arming, actions.encode(JOB))], EPOCH)
        await place.queue.concurrency.finish(edited, [], EPOCH, every=True)
        await place.clock.advance(1)
    assert place.active() == [name(slot) for slot in (10, *run)]
    told = await place.told()
    assert {slot: reason for slot, state, reason in told if state is RunState.MISSED} == missed


async def test_a_waiting_slot_is_over_its_deadline_after_an_edit_too(place):
    known = await place.schedule("Queue", schedule="@every 5m", also={"deadline_seconds": 400})
    async with place.working(place.a_worker()):
        await place.clock.advance(605)
        edited = msgspec.structs.replace(
            known,
            generation=2,
            rule=a_rule("@every 5m", whole_seconds=True, policy={"deadline_seconds": 2}),
        )
        arming = messages.Arming(definition=edited, due_us=None, keep_chain=True)
        await place.queue.writer.upsert([(arming, actions.encode(JOB))], EPOCH)
        await place.queue.concurrency.finish(edited, [], EPOCH, every=True)
        await place.clock.advance(1)
    assert place.jobs_there() == [name(300)]
    assert (600, RunState.MISSED, Reason.DEADLINE_EXCEEDED) in await place.told()


async def test_what_waits_when_its_schedule_is_suspended_is_counted_as_skipped(place):
    known = await place.schedule("Queue", also={"queue_limit": 10})
    async with place.working(place.a_worker()):
        await place.clock.advance(41)
        timing = msgspec.structs.replace(known.rule.timing, suspend=True)
        edited = msgspec.structs.replace(
            known,
            generation=2,
            timing_generation=2,
            state=definition.State.SUSPENDED,
            rule=msgspec.structs.replace(known.rule, timing=timing),
        )
        place.known = await place.arm(edited, JOB)
        finished = await place.queue.concurrency.finish(place.known, [], EPOCH, every=True)
        assert finished.called == 3
        await place.clock.advance(1)
    assert place.jobs_there() == [name(10)]
    assert [one for one in await place.told() if one[1] is not RunState.RUNNING] == [
        (slot, RunState.SKIPPED, Reason.SUSPENDED) for slot in (20, 30, 40)
    ]


async def test_a_timing_edit_supersedes_what_waits(place):
    known = await place.schedule("Queue", schedule="@every 5m")
    async with place.working(place.a_worker()):
        await place.clock.advance(605)
        edited = msgspec.structs.replace(
            known,
            generation=2,
            timing_generation=2,
            rule=dataclasses_replace_rule(known.rule, "@every 7m"),
            not_before_us=place.clock.now_us(),
        )
        place.known = await place.arm(edited, JOB)
        await place.end(300)
        await place.clock.advance(1)
    assert place.jobs_there() == [name(300)]
    assert (600, RunState.SUPERSEDED, Reason.STALE_VERSION) in await place.told()


def dataclasses_replace_rule(rule, schedule):
    import msgspec

    timing = msgspec.structs.replace(rule.timing, schedules=(schedule,))
    return msgspec.structs.replace(rule, timing=timing)


async def test_a_deleted_schedule_s_waiting_slots_go_with_it(place):
    known = await place.schedule("Queue")
    async with place.working(place.a_worker()):
        await place.clock.advance(25)
        await place.queue.writer.remove(known.id, known.uid, known.namespace, EPOCH)
        place.api.end_job("default", name(10))
        await place.queue.concurrency.finish(known, [name(10)], EPOCH)
        await place.clock.advance(600)
    assert place.jobs_there() == [name(10)]
    assert not any(shard.members for shard in place.queue.shards.values())


async def test_deliveries_queue_one_behind_the_other(place):
    await place.schedule("Queue", WEBHOOK, schedule="@every 2s", also={"queue_limit": 5})
    place.webhooks.hold()
    async with place.working(place.a_worker("a"), place.a_worker("b")):
        await place.clock.advance(6.5)
        assert place.fired() == [2]
        place.webhooks.let_go()
        await place.clock.advance(0.5)
    assert place.fired() == [2, 4, 6]


async def test_a_slot_that_cannot_be_judged_waits_in_the_queue(place):
    await place.schedule("Queue", schedule="@every 5m")
    async with place.working(place.a_worker()):
        await place.clock.advance(301)
        place.api.fail_next(DOWN, verb="GET")
        await place.clock.advance(300)
        assert place.jobs_there() == [name(300)]
        place.api.end_job("default", name(300))
        await place.clock.advance(31)
    assert place.jobs_there() == [name(300), name(600)]


# -- whom it does not concern --------------------------------------------------------------------


async def test_nothing_is_asked_for_where_everything_is_allowed(place, monkeypatch):
    async def never(*_):
        raise AssertionError("a schedule that allows everything was judged")

    monkeypatch.setattr(place.queue.concurrency, "admit", never)
    monkeypatch.setattr(place.queue.concurrency, "leave", never)
    await place.schedule("Allow")
    async with place.working(place.a_worker()):
        await place.clock.advance(31)
    assert len(place.jobs_there()) == 3
    assert gets(place) == 0


@pytest.mark.parametrize("policy", ["Forbid", "Replace", "Queue"])
async def test_a_stream_s_entries_end_at_once_and_no_policy_holds_them_up(
    place, monkeypatch, policy
):
    async def never(*_):
        raise AssertionError("a stream was judged")

    monkeypatch.setattr(place.queue.concurrency, "admit", never)
    await place.schedule(policy, STREAM)
    async with place.working(place.a_worker()):
        await place.clock.advance(31)
    assert place.fired() == [10, 20, 30]


async def test_a_run_by_hand_may_have_another_policy(place):
    known = await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        for uid, policy in (("uid-1", ""), ("uid-2", "Allow")):
            await place.queue.occurrences.enqueue(
                known, _manual(known, uid), _record(uid, policy), EPOCH
            )
        await place.clock.advance(1)
    manual = [one for one in place.jobs_there() if one != name(10)]
    assert len(manual) == 1
    skipped = [e for e in await place.events() if e.state is RunState.SKIPPED]
    assert [(e.reason, e.trigger, e.settled_us) for e in skipped] == [
        (Reason.CONCURRENCY_FORBIDDEN, "Manual", 0)
    ]


async def test_a_run_by_hand_waits_and_is_found_among_the_jobs(place):
    known = await place.schedule("Queue", schedule="@every 5m")
    async with place.working(place.a_worker()):
        await place.clock.advance(301)
        await place.queue.occurrences.enqueue(
            known, _manual(known, "uid-1"), _record("uid-1", ""), EPOCH
        )
        await place.clock.advance(10)
        assert place.jobs_there() == [name(300)]
        await place.end(300)
        await place.clock.advance(0.1)
        (manual,) = place.active()
        run = activeruns.run_of_job(manual, "report", NOON)
        assert run[8:] == points.run_tag("uid-1")


def _manual(known, uid):
    return points.DuePoint(
        schedule_id=known.id,
        timing_version=known.timing_version,
        kind=points.PointKind.MANUAL,
        due_us=0,
        slot_us=NOON,
        run_tag=points.run_tag(uid),
    )


def _record(uid, policy):
    return messages.OccurrenceRecord(trigger="Manual", run_uid=uid, concurrency=policy)


def test_a_job_s_run_is_read_from_its_name_and_slot():
    slot_us = NOON + 10 * SECOND
    regular = activeruns.run_of_job(name(10), "report", slot_us)
    assert regular == slot_us.to_bytes(8, "big")
    facts = jobbuilder.SlotFacts(
        namespace="default", schedule_name="report", schedule_uid="u", slot_us=slot_us,
        previous_us=None, trigger="Manual", payload=None, time_zone="Etc/UTC", run_uid="uid-1",
    )  # fmt: skip
    manual = activeruns.run_of_job(jobbuilder.job_name(facts), "report", slot_us)
    assert manual == regular + points.run_tag("uid-1")


@pytest.mark.parametrize("slot_us", [None, -1, NOON, 2**60])
def test_a_job_of_another_s_making_is_a_run_of_its_own(slot_us):
    run = activeruns.run_of_job("by-hand", "report", slot_us)
    assert len(run) == 8
    assert int.from_bytes(run, "big") >= points.DUE_LIMIT_US
