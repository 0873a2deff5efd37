"""The mover dies between every two steps of a move, and another one goes on."""

from __future__ import annotations

import asyncio

import pytest

from duepoint.controller.maintenance import partitioner
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.wire import scripting
from tests.integration.partitioning.scene import Killed, Scene, crash_at
from tests.support import queueing


async def _a_scene(url: str, prefix: str) -> Scene:
    """One shard with chains, retries that are due, and a dead letter."""
    scene = Scene(url, prefix)
    queue = await scene.open(read=False)
    await queue.membership.open(1, queueing.EPOCH)
    now = (await queue.membership.beat("w")).time_us
    await queue.membership.goodbye("w")
    for number in range(3):
        await scene.arm(queue, f"due-{number}", due_us=now - 1_000)
    claims = await _claims(queue)
    for claim in claims:
        await queue.settlements.settle(
            claim,
            messages.Settlement(
                occurrences=tuple(queueing.a_retry(p, due_us=now) for p in claim.points),
                chains=tuple(queueing.moved(p, 3600) for p in claim.points),
                dead=(messages.DeadLetter(member=b"", entry={"uid": "uid-of-due-0"}),),
            ),
        )
    for number in range(3):
        await scene.arm(queue, f"later-{number}", due_us=now + 3_600_000_000)
    return scene


async def _claims(queue) -> list[messages.Claim]:
    shards = sharding.all_shards(await queue.layouts.read())
    return [one.claim for one in await queue.claims.claim(shards, worker="w") if one.claim]


async def _occurrences(queue) -> list[bytes]:
    found = []
    for shard in sharding.all_shards(await queue.layouts.read()):
        found += [
            (at.schedule_id, at.slot_us) async for at, _ in queue.occurrences.all_occurrences(shard)
        ]
    return sorted(found)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", [1, 2], ids=["odd steps", "even steps"])
async def test_a_mover_killed_between_any_two_steps_loses_and_doubles_nothing(
    valkey, key_prefix, first, monkeypatch
):
    monkeypatch.setattr(partitioner, "_PAUSE_SECONDS", 0.02)
    number, deaths = first - 2, 0
    while True:
        number += 2
        scene = await _a_scene(valkey.url, f"{key_prefix}{number}:")
        worker, successor = scene.opened[0], await scene.open()
        retries = await _occurrences(worker)
        assert len(retries) == 3
        held = await _claims(worker)  # the retries are in a worker's hands meanwhile
        mover = await scene.open()
        crash_at(scene.servers[mover], number)
        moving = asyncio.create_task(_is_killed(scene, mover))
        await asyncio.wait({moving}, timeout=0.06)
        for claim in held:  # the attempts fail, and their retries are due at once
            again = (queueing.a_retry(point) for point in claim.points)
            await worker.settlements.settle(claim, messages.Settlement(occurrences=tuple(again)))
        died = await moving
        deaths += died
        scene.epoch += 1
        await scene.partition(successor, 2)
        assert await _occurrences(successor) == retries
        due = await _claims(successor)
        assert sorted(p.slot_us for c in due for p in c.points) == sorted(s for _, s in retries)
        letters = [letter async for letter in successor.dead_letters.newest()]
        assert len(letters) == 1
        await scene.check_index(successor)
        await scene.close()
        if not died:
            break
    assert deaths > 15


async def _is_killed(scene: Scene, mover) -> bool:
    try:
        await scene.partition(mover, 2)
    except Killed:
        return True
    return False


async def test_what_is_forgotten_was_confirmed_by_a_replica_of_the_shard_it_went_to(
    valkey, key_prefix
):
    """Two nodes of a cluster fail over each by itself: a batch would be on neither."""
    scene = await _a_scene(valkey.url, key_prefix)
    mover = await scene.open()
    exchange, steps = mover.index.servers.exchange, []

    async def noted(commands, *, confirmed=False):
        steps.extend(
            (b"drops" in command[3 + command[2]], confirmed)
            for command in commands
            if command[:2] == ("EVALSHA", scripting.sha1("drop"))
        )
        return await exchange(commands, confirmed=confirmed)

    mover.index.servers.exchange = noted
    await scene.partition(mover, 2)
    await scene.close()
    assert (True, True) in steps
    assert {confirmed for is_end, confirmed in steps if not is_end} == {True}


async def test_an_edit_waits_for_a_schedule_on_its_way_and_is_then_made(valkey, key_prefix):
    scene = await _a_scene(valkey.url, key_prefix)
    operator, mover = scene.opened[0], await scene.open()
    await mover.resharding.announce(4, queueing.EPOCH)
    on_its_way, go_on = asyncio.Event(), asyncio.Event()
    bring = mover.mover.bring

    async def slowly(*given):
        on_its_way.set()
        await go_on.wait()
        return await bring(*given)

    mover.mover.bring = slowly
    (shard,) = sharding.own_shards(mover.layouts.known().former)
    moving = asyncio.create_task(scene.one_pass(mover, shard))
    await on_its_way.wait()
    travelling = next(iter(scene.live))
    name = scene.live[travelling].name
    editing = asyncio.create_task(scene.arm(operator, name, generation=2, due_us=5_000))
    done, _ = await asyncio.wait({editing}, timeout=0.1)
    assert not done, "the edit did not wait"
    go_on.set()
    await moving
    await editing
    assert scene.problems == []
    stored = await operator.definitions.definition(travelling)
    assert stored.generation == 2
    await scene.close()


async def test_a_layout_that_was_lost_while_a_move_began_takes_schedules_in_the_next_term(
    valkey, key_prefix
):
    """The next leader knows the layout before; its shard was made again for the move."""
    scene = Scene(valkey.url, key_prefix)
    queue = await scene.open(read=False)
    before = await queue.membership.open(1, queueing.EPOCH)
    await queue.resharding.announce(4, queueing.EPOCH)
    for shard in sharding.all_shards(before):
        await scene.one_pass(queue, shard)
    with valkey.client() as client:
        client.delete(f"{key_prefix}{{ctl}}:layout")
    scene.epoch = queueing.EPOCH + 1
    successor, term = await scene.open(read=False), messages.Epoch(scene.epoch)
    layout = await successor.membership.open(1, term, noted=before)
    assert layout == before
    with pytest.raises(queue_errors.LayoutChanged):
        await scene.arm(successor, "daily", due_us=4_000_000_000_000_000)
    await successor.resharding.open_own(layout, term)
    await scene.arm(successor, "daily", due_us=4_000_000_000_000_000)
    (shard,) = sharding.all_shards(layout)
    assert await successor.resharding.shard_state(shard) == "open"
    await scene.close()


async def test_a_shard_in_use_is_not_emptied_by_a_move_from_before_redis_was_lost(
    valkey, key_prefix
):
    scene = Scene(valkey.url, key_prefix)
    queue = await scene.open(read=False)
    layout = await queue.membership.open(1, queueing.EPOCH)
    await scene.arm(queue, "daily", due_us=4_000_000_000_000_000)
    (shard,) = sharding.all_shards(layout)
    with pytest.raises(queue_errors.LayoutChanged):
        await scene.one_pass(queue, shard)
    assert await queue.resharding.shard_state(shard) == "open"
    (armed,) = scene.live
    assert await queue.definitions.definition(armed) is not None
    await scene.close()
