"""The client of the queue is cut off at each of its fault points, on a real server."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import redis.exceptions

from duepoint import errors
from duepoint.faults import FaultPoint
from tests.integration.partitioning.scene import Killed, Scene
from tests.support import faultplan, queueing
from tests.support.waiting import LONGEST_SECONDS

COMMANDS = (
    FaultPoint.AFTER_QUEUE_GREETING,
    FaultPoint.BEFORE_COMMANDS,
    FaultPoint.AFTER_COMMANDS_SENT,
    FaultPoint.AFTER_REPLIES,
    FaultPoint.BEFORE_SCRIPTS_LOADED,
)
SUBSCRIPTIONS = (FaultPoint.BEFORE_SUBSCRIPTION, FaultPoint.AFTER_SUBSCRIPTION)
MOVES = (FaultPoint.BEFORE_BATCH_IMPORTED, FaultPoint.AFTER_BATCH_IMPORTED)
POINTS = (*COMMANDS, *SUBSCRIPTIONS, *MOVES, FaultPoint.BEFORE_CLUSTER_MAP)

SCHEDULES = 20


async def _names(queue, stored):
    """What is read of each, one read after the other on few connections."""
    return [(await queue.definitions.definition(one.id)).name for one in stored]


@pytest.mark.parametrize("point", COMMANDS)
async def test_a_cancelled_command_leaves_no_reply_to_the_next(point, valkey, key_prefix):
    harness = await queueing.redis_harness(valkey.url, key_prefix, users=False, shards=1)
    queue, shards = harness.queue, await harness.shards()
    stored = [harness.definition(name=f"s-{number}") for number in range(SCHEDULES)]
    for one in stored:
        assert await harness.arm(name=one.name)

    async def use() -> None:
        await _names(queue, stored)
        await queue.claims.claim(shards, worker="w1", batch=1)

    with (
        valkey.client() as client,
        faultplan.FaultPlan(point, faultplan.CANCEL).installed() as plan,
    ):
        for _ in range(2):
            client.script_flush()
            client.client_kill_filter(_type="normal", skipme=True)
            with contextlib.suppress(asyncio.CancelledError, errors.TryLater):
                await asyncio.create_task(use())
        assert plan.hits[point] >= 1
        client.script_flush()
        await use()
        assert await _names(queue, stored) == [one.name for one in stored]
        assert plan.hits[point] > 1
    await harness.close()


@pytest.mark.parametrize("point", SUBSCRIPTIONS)
async def test_a_lost_subscription_is_made_again_and_wakes(point, valkey, key_prefix):
    harness = await queueing.redis_harness(valkey.url, key_prefix, users=False, shards=1)
    error = redis.exceptions.ConnectionError("injected")
    with faultplan.FaultPlan(point, error).installed() as plan:
        wakeups = harness.queue.wakeups()
        await wakeups.start()
        async with asyncio.timeout(LONGEST_SECONDS):
            while plan.hits[FaultPoint.AFTER_SUBSCRIPTION] < 2 - (point in SUBSCRIPTIONS[:1]):
                await wakeups.wait_until_due(0.05)
        await harness.arm(due_in=-1)
        async with asyncio.timeout(LONGEST_SECONDS):
            while not await wakeups.wait_until_due(1.0):
                pass
        assert plan.hits[point] == 2
        await wakeups.close()
    await harness.close()


@pytest.mark.parametrize("point", MOVES)
async def test_a_mover_that_dies_is_followed_by_another(point, valkey, key_prefix):
    scene = Scene(valkey.url, key_prefix)
    queue = await scene.open(read=False)
    await queue.membership.open(1, queueing.EPOCH)
    now = (await queue.membership.beat("w")).time_us
    await queue.membership.goodbye("w")
    for number in range(SCHEDULES):
        await scene.arm(queue, f"later-{number}", due_us=now + 3_600_000_000)
    mover, successor = await scene.open(), await scene.open()
    with faultplan.FaultPlan(point, Killed()).installed() as plan:
        with pytest.raises(Killed):
            await scene.partition(mover, 2)
        scene.epoch += 1
        await scene.partition(successor, 2)
        assert plan.hits[point] > 1
    await scene.check_index(successor)
    await scene.close()


async def test_a_cancelled_look_at_the_map_of_a_cluster_is_followed_by_another(
    shared_clusters, key_prefix
):
    point = FaultPoint.BEFORE_CLUSTER_MAP
    cluster = shared_clusters("valkey")
    with faultplan.FaultPlan(point, faultplan.CANCEL).installed() as plan:
        queue = queueing.a_queue(cluster.url, key_prefix, users=False)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.create_task(queue.start())
        assert plan.hits[point] == 1
        await queue.start()
        await queue.membership.open(2, queueing.EPOCH)
        assert (await queue.layouts.read()).shards == 2
        assert plan.hits[point] > 1
        await queue.close()
