"""Members of a ScheduleSet at a worker with a real queue: fired as Schedules are, and removed."""

from __future__ import annotations

import asyncio
import contextlib
import uuid

import msgspec
import pytest

from duepoint import services
from duepoint.delayqueue.members import values
from duepoint.schedules import actions, definition, points
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Reason
from duepoint.schedules.sets import setrecord, setspec
from duepoint.targets import outcome as outcomes
from duepoint.targets.stream import target as streamtarget
from duepoint.worker import claimer, firing
from tests.fakes.nojobs import no_jobs
from tests.fakes.recordingtarget import RecordingTarget
from tests.support import queueing
from tests.support.waiting import LONGEST_SECONDS

WEBHOOK = actions.Action(
    target=actions.WebhookAction(
        url="https://hooks.example.com/x",
        retry=actions.RetryRule(initial_backoff_us=50_000, max_attempts=2),
    )
)
STREAM = actions.Action(target=actions.StreamAction(name="ticks"), payload=msgspec.Raw(b'"usual"'))
ONCE = rules.Rule(timing=rules.Timing(schedules=rules.ONCE))


@pytest.fixture
async def harness(redis_server, key_prefix):
    made = await queueing.redis_harness(redis_server.url, key_prefix, users=False)
    yield made
    await made.close()


class Shop:
    """A set, and a worker for its members."""

    def __init__(self, harness, action, **changes):
        self.harness = harness
        self.queue = harness.queue
        self.target = RecordingTarget(harness.clock)
        self.blob = actions.encode(action)
        self.set = setrecord.SetRecord(
            **{
                "namespace": "shop",
                "name": "reminders",
                "uid": str(uuid.uuid4()),
                "generation": 1,
                "state": setrecord.SetState.READY,
                "spread": 0,
                "target": self.queue.signed_blobs.digest("shop", self.blob),
                "settings": setspec.SetSettings(),
                **changes,
            }
        )

    async def store(self, **changes):
        self.set = msgspec.structs.replace(self.set, **changes)
        await self.queue.sets.store(self.set, self.blob, queueing.EPOCH)

    async def put(self, *writes):
        return await self.queue.members.put(self.set, writes)

    async def put_once(self, *names, after=-0.001, rule=ONCE, **fields):
        at_us = self.harness.now_us() + int(after * 1_000_000)
        await self.put(
            *(values.MemberWrite(id=name, rule=rule, at_us=at_us, **fields) for name in names)
        )
        return at_us

    @contextlib.asynccontextmanager
    async def working(self):
        own = streamtarget.StreamTarget(self.harness.clock, external=None)
        work = firing.Firer(
            queue=self.queue,
            targets={"webhook": self.target, "stream": own},
            streams=own,
            clock=self.harness.clock,
            places=16,
            lease_seconds=10,
            jobs=no_jobs(),
        )
        limits = claimer.Limits(batch=500, under_way=1_000, lease_seconds=10, grace_seconds=5)
        claims = claimer.Claimer(
            self.queue, work, self.harness.clock, services.Health(), worker="w", limits=limits
        )
        task = asyncio.create_task(claims.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def ended(self):
        """How slots of the set's members have ended so far; no event of them was written."""
        assert not await self.harness.outcomes()
        return (await self.queue.sets.counts(self.set)).ended

    async def entries(self):
        stream = self.harness.server.keys.stream("shop", "ticks")
        found = await self.harness.server.redis.xrange(stream)
        return [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in found]

    async def members(self):
        return (await self.queue.sets.counts(self.set)).members


@pytest.fixture
async def shop(harness):
    made = Shop(harness, WEBHOOK)
    await made.store()
    return made


@pytest.fixture
async def streaming(harness):
    made = Shop(harness, STREAM)
    await made.store()
    return made


async def test_a_one_off_that_is_given_up_stays_with_its_dead_letter(shop):
    shop.target.reply(outcomes.Rejected(reason=Reason.REJECTED, message="410"))
    await shop.put_once("a", payload=b"7")
    async with shop.working():
        await _until_async(lambda: _has_ended(shop, "a"), wanted=True)
    (found,) = await shop.queue.members.lookups.get(shop.set, ["a"])
    assert found.payload == b"7"
    assert (await shop.ended()).failed == 1
    lane = shop.set.identity.text.decode()
    page = await shop.queue.dead_letters.page(lane, limit=10)
    (letter,) = page.letters
    assert (letter.entry["name"], letter.entry["set"], page.cursor) == ("a", "reminders", "")
    for guessed in ("1.0.5-5", "nonsense"):
        assert await shop.queue.dead_letters.find(guessed, lane) is None
    assert await shop.queue.dead_letters.find(letter.id, "shop") is None
    found = await shop.queue.dead_letters.find(letter.id, lane)
    assert await shop.queue.dead_letters.replay(found) == "replayed"
    async with shop.working():
        await _until(lambda: len(shop.target.fired) >= 2)
    assert bytes(shop.target.fired[-1].action.payload) == b"7"
    assert (await shop.queue.dead_letters.page(lane, limit=10)).letters == []


async def test_a_one_off_that_is_kept_is_not_fired_again_by_a_repeated_write(harness):
    settings = setspec.SetSettings(retention_seconds=3_600)
    shop = Shop(harness, WEBHOOK, settings=settings)
    await shop.store()
    write = values.MemberWrite(id="a", rule=ONCE, at_us=shop.harness.now_us() - 1, payload=b"1")
    await shop.put(write)
    async with shop.working():
        await _until_async(lambda: _has_ended(shop, "a"), wanted=True)
        (again,) = await shop.put(write)
        await asyncio.sleep(0.3)
    assert again.outcome is values.Outcome.UNCHANGED
    assert len(shop.target.fired) == 1


@pytest.mark.parametrize("action", [WEBHOOK, STREAM], ids=["webhook", "stream"])
async def test_a_one_off_that_has_left_is_not_made_again_by_a_repeated_write(harness, action):
    """The first answer was lost, and the client asks again."""
    shop = Shop(harness, action)
    await shop.store()
    write = values.MemberWrite(id="a", rule=ONCE, at_us=shop.harness.now_us() - 1, payload=b"1")
    unless_there = msgspec.structs.replace(write, condition=values.IfAbsent())
    later = msgspec.structs.replace(write, at_us=write.at_us + 1)
    await shop.put(write)
    async with shop.working():
        await _until_async(shop.members, 0)
        again = await shop.put(write, msgspec.structs.replace(write, payload=b"2"), unless_there)
        assert await shop.members() == 0
        (another,) = await shop.put(later)
        await _until_async(shop.members, 0)
    assert [one.outcome for one in again] == [
        values.Outcome.UNCHANGED, values.Outcome.UNCHANGED, values.Outcome.PRECONDITION,
    ]  # fmt: skip
    assert {(one.due_us, one.has_ended) for one in again} == {(None, True)}
    assert another.outcome is values.Outcome.CREATED
    fired = len(await shop.entries()) if action is STREAM else len(shop.target.fired)
    assert fired == 2


@pytest.mark.parametrize("others", [0, 100])
async def test_a_payload_that_others_wrote_is_not_appended(streaming, others):
    names = ["a", *(f"m{n}" for n in range(others))]
    await streaming.put_once(*names, after=0.3, payload=b'{"price":1}')
    redis = streaming.harness.server.redis
    a = points.member_id(streaming.set.identity, "a")
    for key in await redis.keys("*defs*"):
        if record := await redis.hget(key, a):
            await redis.hset(key, a, record.replace(b'"price":1', b'"price":9'))
    async with streaming.working():
        await _until_async(lambda: _distinct(streaming), others)
        await asyncio.sleep(0.5)
    assert {entry["payload"] for entry in await streaming.entries()} <= {'{"price":1}'}
    assert "a" not in {entry["schedule_id"] for entry in await streaming.entries()}


async def test_a_member_may_be_fired_by_hand_beside_its_slots(shop):
    later = shop.harness.now_us() + 3_600_000_000
    await shop.put(values.MemberWrite(id="a", rule=ONCE, at_us=later, payload=b"1"))
    slot_us = await shop.queue.members.trigger(shop.set, "a", run_uid="run-1", payload=b"2")
    await shop.queue.members.trigger(shop.set, "a", run_uid="run-2")
    assert await shop.queue.members.trigger(shop.set, "b", run_uid="run-3") is None
    async with shop.working():
        await _until(lambda: len(shop.target.fired) >= 2)
    first, second = shop.target.fired
    assert (first.trigger, first.run_uid, first.slot_us) == ("Manual", "run-1", slot_us)
    assert [bytes(one.action.payload) for one in shop.target.fired] == [b"2", b"1"]
    assert second.run_uid == "run-2"
    (found,) = await shop.queue.members.lookups.get(shop.set, ["a"])
    assert (found.state, found.due_us) == (definition.State.ARMED, later)


async def _has_ended(shop, id_):
    """The member has ended and is still there."""
    found = await shop.queue.members.lookups.get(shop.set, [id_])
    return [one.state for one in found if one] == [definition.State.COMPLETED]


async def _distinct(shop):
    return len({entry["schedule_id"] for entry in await shop.entries()})


async def _until(holds):
    async def ask():
        return bool(holds())

    await _until_async(ask, wanted=True)


async def _until_async(ask, wanted):
    async with asyncio.timeout(LONGEST_SECONDS):
        while await ask() != wanted:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.02)
