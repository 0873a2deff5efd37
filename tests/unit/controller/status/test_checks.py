"""A Schedule that refers to Secrets: armed at once, Ready once a worker has found them."""

from __future__ import annotations

import pytest

from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import points
from duepoint.schedules.points import PointKind
from tests.unit.controller.world import NAMESPACE, World

SIGNED = {
    "url": "https://hooks.example.com/x",
    "signing": {"secretKeyRefs": [{"name": "hook", "key": "a"}]},
}


@pytest.fixture
async def world():
    return World()


def checks(world) -> list[int]:
    """Generations for which a check waits in the queue."""
    members = [member for shard in world.queue.shards.values() for member in shard.members]
    parsed = [points.parse_member(member, 0) for member in members]
    return sorted(one.slot_us for one in parsed if one and one.kind is PointKind.CHECK)


async def found(world, schedule, reason="", message="", generation=1):
    metadata = schedule["metadata"]
    event = RunEvent(
        uid=metadata["uid"],
        namespace=NAMESPACE,
        name=metadata["name"],
        generation=generation,
        slot_us=0,
        trigger="Check",
        state=RunState.CHECKED,
        reason=reason,
        message=message,
        at_us=world.clock.now_us(),
    )
    await world.tell(metadata["uid"], event)
    await world.clock.advance(2)


REFUSED = "spec.webhook.tls: is not allowed here"


def news_of(world, reason):
    return [one for one in world.news if one.reason == reason]


async def test_what_only_an_edit_mends_is_stalled_and_does_not_fire(world):
    async with world.leader():
        schedule = await world.apply(webhook=SIGNED)
        uid = schedule["metadata"]["uid"]
        assert world.chain_due_us(uid) is not None
        await found(world, schedule, "InvalidSpec", REFUSED)
        assert world.ready() == ("False", "InvalidSpec")
        assert world.condition("Stalled")["message"] == REFUSED
        assert world.status()["observedGeneration"] == 1
        assert world.chain_due_us(uid) is None
        assert world.definition(uid) is None
        assert len(news_of(world, "InvalidSpec")) == 1
        await world.resync.compare()
        await world.clock.advance(2)
        assert world.definition(uid) is None
        await world.apply(webhook={"url": SIGNED["url"]})
        await world.clock.advance(2)
        assert world.ready() == ("True", "Armed")
        assert world.chain_due_us(uid) is not None


async def test_an_edit_is_checked_anew_and_an_old_check_says_nothing_of_it(world):
    async with world.leader():
        schedule = await world.apply(webhook=SIGNED)
        await found(world, schedule)
        await world.apply(webhook={**SIGNED, "timeoutSeconds": 7})
        await world.clock.advance(2)
        assert checks(world) == [1, 2]
        assert world.ready() == ("Unknown", "Pending")
        await found(world, schedule, "SecretUnavailable", "of the former generation", generation=1)
        assert world.ready() == ("Unknown", "Pending")
        await found(world, schedule, generation=2)
        assert world.ready() == ("True", "Armed")
        assert world.status()["observedGeneration"] == 2


async def test_a_secret_that_cannot_be_read_is_an_event(world):
    async with world.leader():
        schedule = await world.apply(webhook=SIGNED)
        await found(world, schedule, "SecretUnavailable", "Secret reports/hook does not exist")
        (told,) = news_of(world, "SecretUnavailable")
        assert (told.warning, told.note) == (True, "Secret reports/hook does not exist")
        await found(world, schedule, "SecretUnavailable", "its annotation does not name the host")
        _, told = news_of(world, "SecretUnavailable")
        assert "annotation" in told.note
