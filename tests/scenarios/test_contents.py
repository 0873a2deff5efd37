"""The queue's content matches the objects: content is compared, not only the generation."""

from __future__ import annotations

import pytest

from duepoint.controller import plan
from duepoint.controller.schedules import store
from tests.fakes.recordingtarget import RecordingTarget
from tests.support import virtualqueue
from tests.support.builders import at
from tests.unit.controller.status.test_openslots import a_worker
from tests.unit.controller.world import EPOCH, World

S = 1_000_000
FIVE, SEVEN = {"schedule": "*/5 * * * *"}, {"schedule": "*/7 * * * *"}


def texts(world: World, name: str = "nightly") -> tuple[str, ...]:
    """Return the expressions in the queue."""
    (held,) = [one for one in world.definitions() if one.name == name]
    return held.rule.timing.schedules


async def compared(world: World) -> None:
    """Wait until a complete list has been compared with the queue and the changes applied."""
    world.resync.request()
    await world.clock.advance(5)


def counting(world: World) -> list[object]:
    """Return a list that records everything armed from here on."""
    armed: list[object] = []
    upsert = world.queue.writer.upsert

    async def counted(wanted, *rest):
        armed.extend(arming for arming, _ in wanted)
        return await upsert(wanted, *rest)

    world.queue.writer.upsert = counted
    return armed


# -- nothing has changed ---------------------------------------------------------------------------


async def test_equal_content_is_compared_and_not_armed_again():
    world = World()
    async with world.leader():
        await world.apply()
        await world.apply_job("job", timeZone="Europe/Berlin")
        await world.apply("stream", stream={"name": "s"}, payload={"b": 1, "a": [1.5, None]})
        await world.clock.advance(5)
        armed = counting(world)
        await compared(world)
    async with world.leader(epoch=2):
        await compared(world)
    assert armed == []


@pytest.mark.parametrize("changed", ["zone data", "engine"])
async def test_another_version_that_reads_a_spec_otherwise_writes_it_again(monkeypatch, changed):
    world = World()
    async with world.leader():
        await world.apply(timeZone="Europe/Berlin")
        await world.clock.advance(5)
    armed = counting(world)
    if changed == "engine":
        monkeypatch.setattr(store, "MEANING", store.MEANING + 1)
    else:
        monkeypatch.setattr(store, "_zone_data", lambda _zone: "other data")
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        await compared(world)
    assert len(armed) == 1
    assert armed[0].keep_chain


# -- the key of the blobs --------------------------------------------------------------------------


async def test_another_blob_key_arms_every_schedule_again_and_its_chain_goes_on():
    world = World()
    async with world.leader():
        uid = (await world.apply())["metadata"]["uid"]
        await world.clock.advance(5)
        due_us, target = world.chain_due_us(uid), world.definition(uid).target
        version = world.definition(uid).timing_version
    world.queue.change_blob_key(b"another key of more than 32 bytes")
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        assert world.definition(uid).target != target
        assert world.definition(uid).timing_version == version
        assert world.chain_due_us(uid) == due_us
        fired = RecordingTarget(world.clock)
        async with a_worker(world, fired):
            await world.clock.advance(310)
        assert len(fired.fired) == 1


@pytest.mark.parametrize("passes", [0.2, 1.5, 4.0])
async def test_a_slot_that_is_run_while_its_content_is_replaced_is_not_run_twice(passes):
    """The chain moves on between the leader's decision and its write."""
    world = World()
    async with world.leader():
        await world.apply(schedule="@every 1s")
        await world.clock.advance(4.9)
    world.queue.change_blob_key(b"another key of more than 32 bytes")
    upsert = world.queue.writer.upsert

    async def late(*of):
        await world.clock.sleep(passes)
        return await upsert(*of)

    world.queue.writer.upsert = late
    target = RecordingTarget(world.clock)
    async with a_worker(world, target), world.leader(epoch=2):
        await world.clock.advance(20)
    slots = sorted(firing.slot_us for firing in target.fired)
    assert slots == list(range(slots[0], slots[0] + len(slots) * S, S))
    assert slots[-1] > world.clock.now_us() - 2 * S


@pytest.mark.parametrize("ahead", [-400_000, 0, 400_000], ids=["behind", "equal", "ahead"])
async def test_no_slot_is_lost_while_its_content_is_replaced_by_a_leader_with_another_clock(ahead):
    world = World()
    async with world.leader():
        await world.apply(schedule="@every 1s", catchUpPolicy="All")
        await world.clock.advance(4.8)
    world.queue.change_blob_key(b"another key of more than 32 bytes")
    target = RecordingTarget(world.clock)
    now_us = world.clock.now_us
    decide = plan.decide

    def late(*given, **named):
        return decide(*given, **{**named, "acts_us": now_us() + ahead})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "decide", late)
        async with a_worker(world, target), world.leader(epoch=2):
            await world.clock.advance(20)
    slots = sorted(firing.slot_us for firing in target.fired)
    assert slots == list(range(slots[0], slots[0] + len(slots) * S, S))
    assert slots[-1] > now_us() - 2 * S


async def test_workers_with_another_key_than_the_operator_are_told_where_a_slot_is_overdue():
    world = World()
    target = RecordingTarget(world.clock)
    async with world.leader():
        await world.apply()
        await world.clock.advance(5)
        world.queue.change_blob_key(b"the key of the workers alone")
        async with a_worker(world, target):
            await world.clock.advance(370)
            overdue = world.condition("Overdue")
            assert overdue["status"] == "True"
            assert "blob key" in overdue["message"]
            world.queue.change_blob_key(virtualqueue.BLOB_KEY)
            await world.clock.advance(60)
            assert world.condition("Overdue") is None
        assert [firing.slot_us for firing in target.fired] == [at("2026-03-01 12:05:00")]


# -- objects that were restored --------------------------------------------------------------------


@pytest.mark.parametrize("is_new_leader", [False, True], ids=["running-leader", "new-leader"])
@pytest.mark.parametrize("keeps_timing", [False, True], ids=["other-timing", "same-timing"])
async def test_a_restore_of_the_objects_takes_the_queue_back(is_new_leader, keeps_timing):
    world = World()
    later = {**FIVE, "payload": {"later": True}} if keeps_timing else SEVEN
    async with world.leader():
        await world.apply(**FIVE)
        await world.clock.advance(5)
        old = world.object()
        for _ in range(2):
            await world.apply(**later)
            await world.apply(**later, jitter="1s")
        await world.clock.advance(5)
        assert world.status()["observedGeneration"] == 5
        world.api.restore("schedules", old)
        if not is_new_leader:
            await compared(world)
            await judge_restored(world, keeps_timing=keeps_timing)
    if is_new_leader:
        async with world.leader(epoch=2):
            await compared(world)
            await judge_restored(world, keeps_timing=keeps_timing)


async def judge_restored(world: World, *, keeps_timing: bool) -> None:
    assert texts(world) == ("*/5 * * * *",)
    (held,) = world.definitions()
    assert held.generation == 1
    assert world.ready() == ("True", "Armed")
    assert world.status()["observedGeneration"] == 1
    # and later edits apply, even under generations that were used before
    versions = {held.timing_version}
    for schedule in ("*/11 * * * *", "*/13 * * * *", "*/17 * * * *", "*/19 * * * *"):
        await world.apply(schedule=schedule)
        await world.clock.advance(3)
        (held,) = world.definitions()
        assert texts(world) == (schedule,)
        assert held.timing_version not in versions
        versions.add(held.timing_version)
    assert world.status()["observedGeneration"] == 5
    target = RecordingTarget(world.clock)
    async with a_worker(world, target):
        await world.clock.advance(19 * 60)
    assert {firing.slot_us % (19 * 60 * S) for firing in target.fired} != set()
    assert world.status()["runs"]["succeeded"] == len(target.fired) > 0


async def test_an_edit_that_a_server_lost_is_applied_again_while_its_leader_lives():
    """It applies from the last slot ended in the status on: it is not an edit seen only now."""
    async with World().leader() as world:
        await world.apply(**FIVE)
        await world.clock.advance(5)
        before = world.queue.snapshot()
        await world.apply(**SEVEN)
        await world.clock.advance(5)
        uid = world.object()["metadata"]["uid"]
        due_us, status = world.chain_due_us(uid), world.status()
        world.queue.fall_back(before)
        assert texts(world) == ("*/5 * * * *",)
        await world.clock.advance((due_us - world.clock.now_us()) / S + 1)
        await compared(world)
        assert texts(world) == ("*/7 * * * *",)
        assert world.chain_due_us(uid) == due_us
        assert world.status()["runs"] == status["runs"]


async def test_a_deletion_that_a_server_lost_is_made_again_while_its_leader_lives():
    async with World().leader() as world:
        await world.apply(**FIVE)
        await world.clock.advance(5)
        before = world.queue.snapshot()
        await world.delete()
        await world.clock.advance(5)
        assert world.definitions() == []
        world.queue.fall_back(before)
        assert len(world.definitions()) == 1
        await compared(world)
        assert world.definitions() == []


async def test_what_ended_before_a_restore_is_not_fired_again():
    world = World()
    target = RecordingTarget(world.clock)
    async with world.leader():
        await world.apply(**FIVE, catchUpPolicy="All")
        await world.clock.advance(5)
        old = world.object()
        async with a_worker(world, target):
            await world.clock.advance(620)
            await world.apply(**FIVE, catchUpPolicy="All", payload={"later": True})
            await world.clock.advance(5)
            world.api.restore("schedules", old)
            await compared(world)
            assert world.status()["settledThrough"] >= "2026-03-01T12:10:00Z"
            world.queue.flush()
            await world.queue.membership.open(world.shards, EPOCH)
            await compared(world)
            await world.clock.advance(300)
    slots = [firing.slot_us for firing in target.fired]
    assert slots == [at("2026-03-01 12:05:00") + number * 300 * S for number in range(3)]


# -- uids that come back ---------------------------------------------------------------------------


async def test_a_deleted_schedule_that_is_restored_is_armed_by_the_running_leader():
    async with World().leader() as world:
        await world.apply()
        await world.clock.advance(5)
        old = world.object()
        await world.delete()
        await world.clock.advance(5)
        assert world.definitions() == []
        world.api.restore("schedules", old)
        await compared(world)
        assert texts(world) == ("*/5 * * * *",)
        await world.apply(**SEVEN)
        await world.clock.advance(5)
        assert texts(world) == ("*/7 * * * *",)
        assert world.status()["observedGeneration"] == 2
