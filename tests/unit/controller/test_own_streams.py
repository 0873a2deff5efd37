"""Streams in Duepoint's own Redis, as an installation allows them: refused, bounded, healed."""

from __future__ import annotations

from duepoint.delayqueue import quotas
from tests.unit.controller.world import NAMESPACE, World

STREAM = {"name": "ticks"}


def uid_of(applied) -> str:
    return applied["metadata"]["uid"]


def stalled(world, name: str = "nightly") -> tuple[str, str]:
    found = world.condition("Stalled", name) or {"reason": "", "message": ""}
    return found["reason"], found["message"]


async def test_where_streams_of_our_own_are_off_a_schedule_is_stalled_and_nothing_fires():
    world = World(has_own_streams=False)
    async with world.leader():
        applied = await world.apply(stream=STREAM)
        await world.clock.advance(2)
        reason, message = stalled(world)
        assert reason == "TargetUnavailable"
        assert message.startswith("spec.stream: ")
        assert "connectionSecretRef" in message
        assert world.definition(uid_of(applied)) is None


async def test_a_stream_that_is_to_be_longer_than_allowed_is_refused_with_the_limit():
    world = World()
    async with world.leader():
        applied = await world.apply(stream={"name": "ticks", "maxLength": 1_000_001})
        await world.clock.advance(2)
        reason, message = stalled(world)
        assert reason == "InvalidSpec"
        assert message.startswith("spec.stream.maxLength: write 1000000 or less")
        assert "connectionSecretRef" in message
        assert world.definition(uid_of(applied)) is None
        await world.apply(stream={"name": "ticks", "maxLength": 1_000_000})
        await world.clock.advance(2)
        assert world.ready() == ("True", "Armed")


async def test_one_stream_too_many_is_stalled_until_another_one_is_deleted():
    world = World(quotas=quotas.Quotas(streams=2))
    async with world.leader():
        for number in range(3):
            await world.apply(f"s-{number}", stream={"name": f"ticks-{number}"})
            await world.clock.advance(2)
        reason, message = stalled(world, "s-2")
        assert reason == "TargetUnavailable"
        assert NAMESPACE in message
        assert world.ready("s-0") == world.ready("s-1") == ("True", "Armed")
        world.queue.hide(world.queue.index.keys.stream(NAMESPACE, "ticks-0"))
        await world.clock.advance(120)
        assert world.ready("s-2") == ("True", "Armed")
        assert stalled(world, "s-2") == ("", "")
