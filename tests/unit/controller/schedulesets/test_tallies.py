"""How members ended is counted once each, over leaders and repeated readings."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.controller.schedulesets import settallies
from duepoint.controller.schedulesets.settallies import SetTally
from duepoint.controller.term import Acknowledgement
from duepoint.delayqueue import messages
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules
from duepoint.runs.setruns import SetOutcome
from tests.unit.controller.setworld import NAME, SetWorld
from tests.unit.controller.world import NAMESPACE


def ended(uid, entry, shard=0, **counts):
    return SetOutcome(uid=uid, namespace=NAMESPACE, name=NAME, shard=shard, entry=entry, **counts)


def test_an_entry_is_counted_once_and_those_of_other_shards_are_their_own():
    tally = SetTally().counted(ended("u", "5-1", succeeded=3, newest_slot_us=9))
    assert tally.counted(ended("u", "5-1", succeeded=3)) == tally
    assert tally.counted(ended("u", "4-9", failed=1)) == tally
    more = tally.counted(ended("u", "4-9", shard=1, failed=1, missed=2, skipped=4, started=5))
    assert (more.succeeded, more.failed, more.missed, more.skipped) == (3, 1, 2, 4)
    assert (more.started, more.newest_slot_us) == (5, 9)
    assert more.counted(ended("u", "5-10", succeeded=1)).succeeded == 4


def test_the_marks_come_back_from_a_status_and_what_is_none_is_left_out():
    through = {0: (5, 1), 65_537: (1_795_000_000_000, 0)}
    text = settallies.through_text(through)
    assert text == "0:5-1 65537:1795000000000-0"
    assert settallies.through_of(text) == through
    assert settallies.through_of("x 1:2 3:4-5 " + "9" * 40) == {3: (4, 5)}


def test_the_marks_of_many_shards_fit_into_a_status():
    through = dict.fromkeys(range(5000), (1795000000000, 9))
    text = settallies.through_text(through)
    assert len(text) <= 16_384
    assert max(settallies.through_of(text)) == 4_999


@pytest.fixture
def world():
    return SetWorld()


async def test_a_status_counts_what_ended_and_settles_what_was_read(world):
    settled = []
    async with world.leader() as term:
        uid = (await world.apply_set())["metadata"]["uid"]
        ack = Acknowledgement(when_done=lambda: settled.append("first"))
        term.events.set_ended(ended(uid, "7-0", succeeded=2, newest_slot_us=60_000_000), ack)
        ack.settle()
        assert settled == []
        await world.clock.advance(11)
        assert settled == ["first"]
        status = world.set_status()
        assert status["runs"]["succeeded"] == 2
        assert status["runs"]["countedThrough"] == "0:7-0"
        assert status["lastScheduleTime"] == "1970-01-01T00:01:00Z"
    async with world.leader(epoch=2) as term:
        again = Acknowledgement(when_done=lambda: settled.append("again"))
        term.events.set_ended(ended(uid, "7-0", succeeded=2), again)
        term.events.set_ended(ended(uid, "8-0", failed=1), again)
        again.settle()
        await world.clock.advance(21)
        runs = world.set_status()["runs"]
        assert (runs["succeeded"], runs["failed"]) == (2, 1)
        assert settled == ["first", "again"]


async def test_what_ended_of_a_set_that_is_gone_is_settled_and_dropped(world):
    settled = []
    async with world.leader() as term:
        ack = Acknowledgement(when_done=lambda: settled.append("gone"))
        term.events.set_ended(ended("nobody", "7-0", succeeded=2), ack)
        ack.settle()
        await world.clock.settle()
        assert settled == ["gone"]


def tell(world, uid, *, is_lost=False, entry=""):
    """A worker's entry of one success of a member."""
    one = SetOutcome(uid=uid, namespace=NAMESPACE, name=NAME, succeeded=1)
    news = msgspec.msgpack.encode({"events": [], "together": [], "sets": [one]})
    world.queue.report(messages.ShardId(0), news, entry=entry, is_lost=is_lost)


async def test_a_member_counts_once_where_only_the_reply_to_a_claims_last_settlement_was_lost(
    world,
):
    async with world.leader():
        uid = (await world.apply_set())["metadata"]["uid"]
        tell(world, uid)
        tell(world, uid, is_lost=True)  # sent again, to a claim that had ended with it
        await world.clock.advance(21)
        assert world.set_status()["runs"]["succeeded"] == 1
        assert not any(shard.outcomes for shard in world.queue.shards.values())


async def test_members_are_counted_on_after_a_failover_to_a_server_whose_clock_is_behind(world):
    async with world.leader():
        uid = (await world.apply_set())["metadata"]["uid"]
        before = world.queue.snapshot()
        ahead = world.clock.now_us() // 1_000 + 3_600_000
        tell(world, uid, entry=f"{ahead}-0")
        await world.clock.advance(21)
        assert world.set_status()["runs"]["succeeded"] == 1
        assert world.set_status()["runs"]["countedThrough"] == f"0:{ahead}-0"
        world.queue.fall_back(before)
        world.fallbacks.look()
        await world.clock.advance(1)
        tell(world, uid)
        now = world.clock.now_us() // 1_000
        await world.clock.advance(21)
        assert world.set_status()["runs"]["succeeded"] == 2
        assert world.set_status()["runs"]["countedThrough"] == f"0:{now}-0"


async def test_what_ended_counts_beside_a_former_leaders_status_that_arrives_late(world):
    async with world.leader():
        uid = (await world.apply_set())["metadata"]["uid"]
        tell(world, uid, entry="10-0")
        await world.clock.advance(21)
        runs = {**world.set_status()["runs"], "succeeded": 3, "countedThrough": "0:12-0"}
        newer = {**world.set_status(), "runs": runs}
        key = (schedules.SET_PLURAL, NAMESPACE, NAME)
        world.api.put(key, world.set_object() | {"status": newer})
        refusal = kube_errors.Invalid("may not fall", causes=(("status", "may not fall"),))
        world.api.fail_next(refusal, verb="PATCH", resource=schedules.SET_PLURAL)
        for number in (11, 12, 13):  # two of them are among those that were counted
            tell(world, uid, entry=f"{number}-0")
        await world.clock.advance(21)
        assert world.set_status()["runs"]["succeeded"] == 4
        assert not any(shard.outcomes for shard in world.queue.shards.values())
