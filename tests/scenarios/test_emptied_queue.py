"""After a loss, the queue is rebuilt with every slot that had not ended, and with no other."""

from __future__ import annotations

import asyncio
import collections

import pytest

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.kube import errors as kube_errors
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome as outcomes
from tests.fakes.recordingtarget import RecordingTarget
from tests.scenarios.test_completions import workers
from tests.scenarios.test_falling_back import a_cluster
from tests.unit.controller.status.test_openslots import a_worker, put_off
from tests.unit.controller.status.test_reporter import FIRST
from tests.unit.controller.world import World

S = 1_000_000
REFUSED = outcomes.Retry(reason=Reason.REJECTED, message="503", started=True, http_status=503)
SECRET = {"connectionSecretRef": {"name": "elsewhere"}}
#: Targets whose deliveries may fail and are retried.
TARGETS = {
    "webhook": {"webhook": {"url": "https://hooks.example.com/x"}},
    "stream-elsewhere": {"stream": {"name": "ticks", **SECRET}},
    "kafka": {"kafka": {"topic": "ticks", **SECRET}},
}
each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


class Receiver:
    """A webhook receiver that refuses some slots and records the others."""

    def __init__(self, world: World, refuses=lambda _slot_us: False) -> None:
        self.refuses = refuses
        self.took: collections.Counter[tuple[str, int]] = collections.Counter()
        self.asked: list[tuple[str, int]] = []
        self.target = RecordingTarget(world.clock)
        self.target.always_reply(self._answer)
        self._clock = world.clock

    def _answer(self, firing):
        key = (firing.name, firing.slot_us)
        self.asked.append(key)
        if self.refuses(firing.slot_us):
            return REFUSED
        self.took[key] += 1
        return outcomes.Delivered(accepted_us=self._clock.now_us())

    def forget(self) -> None:
        self.asked.clear()
        self.took.clear()


async def emptied(world: World, epoch: int = 1) -> None:
    """Empty the queue, and let the leader notice it and compare everything."""
    world.queue.flush()
    await world.queue.membership.open(world.shards, messages.Epoch(epoch))
    await world.resync.compare()


@each_target
async def test_a_delivery_whose_first_try_failed_is_tried_again_after_the_queue_was_emptied(target):
    world = World()
    receiver = Receiver(world, refuses=lambda slot_us: slot_us == FIRST)
    async with world.leader():
        await world.apply(**target)
        async with a_worker(world, receiver.target):
            await world.clock.advance(FIRST_AFTER + 310)
        assert world.status()["openSlots"]["started"] == ["2026-03-01T12:05:00Z"]
        assert world.status()["settledThrough"] == "2026-03-01T12:10:00Z"
        receiver.refuses = lambda _slot_us: False
        receiver.forget()
        await emptied(world)
        async with a_worker(world, receiver.target):
            await world.clock.advance(60)
        assert receiver.asked == [("nightly", FIRST)]
        assert "openSlots" not in world.status()


async def test_a_one_shot_that_waits_for_another_try_survives_an_emptied_queue():
    world = World()
    receiver = Receiver(world, refuses=lambda _slot_us: True)
    async with world.leader():
        await world.apply(schedule="@at 2026-03-01T12:05:00Z")
        async with a_worker(world, receiver.target):
            await world.clock.advance(FIRST_AFTER + 5)
    receiver.refuses = lambda _slot_us: False
    world.queue.flush()
    async with world.leader(epoch=2):
        async with a_worker(world, receiver.target):
            await world.clock.advance(60)
        assert receiver.took == {("nightly", FIRST): 1}
        assert world.ready() == ("True", "Completed")


async def test_a_slot_that_waits_is_given_up_when_it_is_too_old_and_stays_given_up():
    world = World()
    receiver = Receiver(world, refuses=lambda _slot_us: True)
    async with world.leader():
        await world.apply(
            schedule="@at 2026-03-01T12:05:00Z",
            webhook={"url": "https://hooks.example.com/x", "retry": {"maxAge": "60s"}},
        )
        async with a_worker(world, receiver.target):
            await world.clock.advance(FIRST_AFTER + 5)
            await emptied(world)
            await world.clock.advance(120)
        assert world.status()["lastRun"]["outcome"] == "Failed"
        assert "openSlots" not in world.status()
        receiver.forget()
        await emptied(world)
        async with a_worker(world, receiver.target):
            await world.clock.advance(120)
        assert receiver.asked == []


@each_target
async def test_a_delivery_that_was_rejected_stays_rejected_after_the_queue_was_emptied(target):
    world = World()
    receiver = Receiver(world, refuses=lambda _slot_us: True)
    async with world.leader():
        await world.apply(**target, schedule="5 12 1 3 *")
        async with a_worker(world, receiver.target):
            await world.clock.advance(FIRST_AFTER + 5)
        assert world.status()["openSlots"]["count"] == 1
        await emptied(world)
        receiver.target.always_reply(outcomes.Rejected(reason=Reason.REJECTED, message="410"))
        async with a_worker(world, receiver.target):
            await world.clock.advance(60)
        assert world.status()["lastRun"]["outcome"] == "Failed"
        assert "openSlots" not in world.status()
        tries = len(receiver.target.fired)
        await emptied(world)
        async with a_worker(world, receiver.target):
            await world.clock.advance(60)
        assert len(receiver.target.fired) == tries
        assert world.status()["runs"]["failed"] == 1


async def test_a_settlement_under_way_while_the_queue_is_emptied_doubles_no_job():
    """Its outcome belongs to the lost index, so history must not delete the Job that proves it."""
    world = World()
    settle, may_settle = world.queue.settlements.settle, asyncio.Event()

    async def late(*of):
        await may_settle.wait()
        return await settle(*of)

    async def away(*_of, **_named):
        raise errors.QueueUnavailable("no further claim of this worker comes through")

    async with world.leader(), a_cluster(world) as cluster:
        await world.apply_job(successfulJobsHistoryLimit=0, schedule="5 12 1 3 *")
        with pytest.MonkeyPatch.context() as slow:
            slow.setattr(world.queue.settlements, "settle", late)
            async with workers(world, "a"):
                await world.clock.advance(FIRST_AFTER + 2)
                assert sum(cluster.made.values()) == 1
                slow.setattr(world.queue.claims, "claim", away)
                await emptied(world)
                await world.clock.advance(1)
                may_settle.set()
                await world.clock.advance(5)
        await world.clock.advance(30)  # the Job has ended, and its history may keep none
        async with workers(world, "b"):
            await world.clock.advance(30)
        assert sum(cluster.made.values()) == 1
        assert world.status()["runs"]["started"] == 1
        assert world.status()["runs"]["succeeded"] == 1
        # The slot had an owner before, whose request may still create its Job for this long.
        await world.clock.advance(kube_errors.LATE_US / S)
        assert world.api.all_stored("jobs") == []


async def test_what_the_leader_knows_counts_although_no_status_tells_it_yet():
    world = World(writes_per_second=1)
    receiver = Receiver(world)
    async with world.leader():
        for number in range(40):
            await world.apply(f"s{number}", schedule="*/5 * * * * *")
        await world.clock.advance(50)
        world.is_arming = True  # from here on no status is written
        async with a_worker(world, receiver.target):
            await world.clock.advance(60)
            await world.clock.advance(1)
        delivered = len(receiver.took)
        assert delivered >= 480
        await emptied(world)
        async with a_worker(world, receiver.target):
            await world.clock.advance(20)
        assert [count for count in receiver.took.values() if count > 1] == []
        assert len(receiver.took) > delivered


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "not-written-yet"])
async def test_an_edit_that_does_not_touch_the_timing_keeps_what_is_open(is_written):
    world = World()
    receiver = Receiver(world, refuses=lambda slot_us: slot_us == FIRST)
    async with world.leader():
        await world.apply(catchUpPolicy="All")
        async with a_worker(world, receiver.target):
            await world.clock.advance(FIRST_AFTER + 310)
        if not is_written:
            world.is_arming = True
        await world.apply(catchUpPolicy="All", payload={"edited": True})
        await world.clock.advance(2)
    assert (world.status()["observedGeneration"] == 2) is is_written
    receiver.refuses = lambda _slot_us: False
    receiver.forget()
    world.queue.flush()
    await world.clock.advance(300)  # a slot passes while nothing is armed
    async with world.leader(epoch=2):
        async with a_worker(world, receiver.target):
            await world.clock.advance(60)
        assert [slot_us for _, slot_us in receiver.asked] == [FIRST, FIRST + 600 * S]


async def test_an_edit_of_the_timing_keeps_retries_and_starts_from_itself():
    world = World()
    receiver = Receiver(world, refuses=lambda slot_us: slot_us == FIRST)
    async with world.leader():
        made = await world.apply(catchUpPolicy="All")
        async with a_worker(world, receiver.target):
            await world.clock.advance(FIRST_AFTER + 310)
        planned = put_off(made, FIRST + 300 * S, reason="", message="")
        await world.tell(made["metadata"]["uid"], planned)
    world.queue.flush()
    await world.apply(schedule="*/7 * * * *", catchUpPolicy="All")
    receiver.refuses = lambda _slot_us: False
    receiver.forget()
    async with world.leader(epoch=2):
        async with a_worker(world, receiver.target):
            await world.clock.advance(60)
        assert [slot_us for _, slot_us in receiver.asked] == [FIRST]


async def test_hundreds_of_planned_slots_are_all_run_though_a_status_lists_fewer():
    world = World()
    receiver = Receiver(world)
    async with world.leader():
        await world.apply(schedule="* * * * *", catchUpPolicy="All", catchUpLimit=1_000)
        await world.clock.advance(300 * 60)
        receiver.target.hold()
        async with a_worker(world, receiver.target):
            await world.clock.advance(11)
        status = world.status()
        assert status["openSlots"]["count"] <= 200
        receiver.target.let_go()
        receiver.forget()
        await emptied(world)
        async with a_worker(world, receiver.target):
            await world.clock.advance(30)
        assert len(receiver.took) >= 300
        assert set(receiver.took.values()) == {1}


FIRST_AFTER = 300  # seconds from the beginning of a world to its first slot
