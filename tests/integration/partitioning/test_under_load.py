"""The number of shards changes while schedules fire, are edited and are deleted."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from tests.integration.partitioning.scene import Killed, Scene, crash_at
from tests.support import queueing

SCHEDULES = 30


async def _scene(url: str, prefix: str, shards: int = 4) -> Scene:
    scene = Scene(url, prefix)
    queue = await scene.open(read=False)
    await queue.membership.open(shards, queueing.EPOCH)
    now = (await queue.membership.beat("setup")).time_us
    await queue.membership.goodbye("setup")
    for number in range(SCHEDULES):
        await scene.arm(queue, f"report-{number}", due_us=now + number * 2_000)
    return scene


@contextlib.asynccontextmanager
async def _working(scene: Scene):
    """Three workers: a usual one, a slow one, and one that is told nothing of layouts.

    They end once what waits for another try has run.
    """
    tasks = [
        asyncio.create_task(scene.work(await scene.open(), "usual")),
        asyncio.create_task(scene.work(await scene.open(), "slow", slow=0.2)),
        asyncio.create_task(scene.work(await scene.open(), "lagging", beats=False)),
    ]
    try:
        yield
        await scene.catch_up()
    finally:
        done = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()


async def _edit_and_delete(scene: Scene, dice: random.Random, enough: asyncio.Event) -> None:
    """An operator that never rests; what it has begun it ends, so that it is known what is live."""
    queue = await scene.open()
    generations: dict[str, int] = {}
    for number in range(10_000):
        if enough.is_set():
            break
        name = f"report-{dice.randrange(SCHEDULES)}"
        known = next((one for one in scene.live.values() if one.name == name), None)
        now = queue.index.clock.now_us()
        if known is None:
            continue
        if number % 3 == 0 and len(scene.live) > SCHEDULES / 2:
            await scene.remove(queue, known.id)
        elif number % 3 == 1:
            generations[name] = known.generation + 1
            await scene.arm(queue, name, generation=known.generation + 1, due_us=now + 20_000)
        else:
            await scene.arm(queue, f"new-{number}", due_us=now + 20_000)
        await asyncio.sleep(0.03)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1])
async def test_nothing_is_lost_doubled_early_or_a_ghost_while_the_index_is_cut_twice(
    redis_server, key_prefix, seed
):
    dice = random.Random(seed)
    scene = await _scene(redis_server.url, key_prefix)
    async with _working(scene):
        enough = asyncio.Event()
        editing = asyncio.create_task(_edit_and_delete(scene, dice, enough))
        for shards in (16, 64):
            deaths = 0
            await scene.opened[0].resharding.ask(shards)
            while deaths < 4:
                mover = await scene.open()
                crash_at(scene.servers[mover], dice.randrange(2, 120))
                with contextlib.suppress(Killed):
                    await scene.finish(mover, shards)
                    break
                deaths += 1
            await scene.finish(await scene.open(), shards)
        await asyncio.sleep(0.5)
        enough.set()
        await editing
    scene.check_rows()
    assert (await scene.opened[0].layouts.read()).shards == 64
    await scene.check_index(scene.opened[0])
    await scene.close()


async def test_a_mover_that_slept_through_its_term_is_fenced_and_does_no_harm(
    valkey, key_prefix, monkeypatch
):
    scene = await _scene(valkey.url, key_prefix)
    sleeper = await scene.open()
    await sleeper.resharding.announce(8, messages.Epoch(queueing.EPOCH))
    asleep, awake = asyncio.Event(), asyncio.Event()
    bring = sleeper.mover.bring

    async def sleeps(*given):
        asleep.set()
        await awake.wait()
        return await bring(*given)

    monkeypatch.setattr(sleeper.mover, "bring", sleeps)
    shard = sharding.home(next(iter(scene.live)), sleeper.layouts.known().former)
    moving = asyncio.create_task(scene.one_pass(sleeper, shard))
    await asleep.wait()
    scene.epoch += 1
    await scene.finish(await scene.open(), 8)
    awake.set()
    with pytest.raises((queue_errors.Fenced, queue_errors.LayoutChanged)):
        await moving
    with pytest.raises(queue_errors.Fenced):
        await sleeper.resharding.announce(16, messages.Epoch(queueing.EPOCH))
    await scene.check_index(scene.opened[0])
    await scene.close()


async def test_an_index_that_is_emptied_in_the_middle_is_made_again_as_it_was_to_become(
    valkey, key_prefix
):
    scene = await _scene(valkey.url, key_prefix)
    mover = await scene.open()
    noted = await mover.resharding.announce(8, queueing.EPOCH)
    await scene.one_pass(mover, sharding.own_shards(noted.former)[0])
    names = await mover.index.client.keys(f"{key_prefix}*")
    await mover.index.client.delete(*names)
    rebuilding = await scene.open(read=False)
    assert await rebuilding.membership.open(4, queueing.EPOCH, noted=noted) == noted
    live, scene.live = scene.live, {}
    for known in live.values():
        await scene.arm(rebuilding, known.name, due_us=4_000_000_000_000_000)
    await scene.finish(mover, 8)
    await scene.check_index(rebuilding)
    await scene.close()
