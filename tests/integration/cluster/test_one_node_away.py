"""One node of a cluster is away, and nobody takes its place: the others' shards fire on."""

from __future__ import annotations

import asyncio
import contextlib
import functools

import pytest

from duepoint import errors, services
from duepoint.clock import SystemClock
from duepoint.delayqueue import delayqueue, messages, sharding
from duepoint.delayqueue.wire import cluster as clusters
from duepoint.schedules import actions
from duepoint.worker.claimer import Claimer, Limits
from duepoint.worker.firing import Firer
from tests.fakes.nojobs import no_jobs
from tests.fakes.recordingtarget import RecordingTarget
from tests.support import builders, queueing, redisusers
from tests.support.rediscluster import RedisCluster
from tests.support.redisserver import KINDS

SHARDS = 8
SCHEDULES = 24
LEASE_SECONDS = 10.0
BLOB = actions.encode(
    actions.Action(target=actions.WebhookAction(url="https://hooks.example.com/x"))
)


@pytest.fixture(params=KINDS)
def partial(request, tmp_path):
    """A cluster without replicas that answers for the slots it has."""
    made = RedisCluster(
        request.param, tmp_path, options=lambda: ("--cluster-require-full-coverage", "no")
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Scene:
    """Schedules of every 200 ms and one worker; what has fired in which shard."""

    def __init__(self, harness, queue):
        self.harness = harness
        self.clock = SystemClock()
        self.target = RecordingTarget(self.clock)
        self.health = services.Health()
        self._queue = queue

    async def arm(self):
        begin_us = self.clock.now_us()
        for number in range(SCHEDULES):
            name = f"s-{number}"
            known = builders.a_definition(
                rule=builders.a_rule("@every 200ms", policy={"catch_up": "Latest"}),
                uid=f"uid-{number}",
                name=name,
                namespace=name,
                created_us=begin_us,
                not_before_us=begin_us,
                target=self.harness.queue.signed_blobs.digest(name, BLOB),
            )
            arming = messages.Arming(definition=known, due_us=begin_us + 200_000)
            await self.harness.queue.writer.upsert([(arming, BLOB)], queueing.EPOCH)

    @contextlib.asynccontextmanager
    async def working(self):
        work = Firer(
            queue=self._queue,
            target=self.target,
            clock=self.clock,
            places=64,
            lease_seconds=LEASE_SECONDS,
            jobs=no_jobs(),
        )
        limits = Limits(batch=100, under_way=200, lease_seconds=LEASE_SECONDS, grace_seconds=1.0)
        claimer = Claimer(self._queue, work, self.clock, self.health, worker="w", limits=limits)
        task = asyncio.create_task(claimer.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until_fired(self, times, *, apart_from=frozenset()):
        """Until every schedule of the other shards has fired so often from now on."""
        seen = len(self.target.fired)
        wanted = {
            name
            for name in (f"s-{number}" for number in range(SCHEDULES))
            if self.shard_of(name) not in apart_from
        }
        async with asyncio.timeout(60):
            while True:
                fired = [firing.name for firing in self.target.fired[seen:]]
                if all(fired.count(name) >= times for name in wanted):
                    return
                await self.target.wait_until_fired(len(self.target.fired) + 1)

    async def is_troubled(self):
        return self.health.troubles().keys() == {"queue"}

    async def is_well(self):
        return not self.health.troubles()

    def shard_of(self, name):
        known = self.harness.definition(name=name, namespace=name, uid=f"uid-{name[2:]}")
        return sharding.shard_of(known.id, SHARDS)


@pytest.fixture
async def scene(partial, key_prefix):
    harness = await queueing.redis_harness(partial.url, key_prefix, shards=SHARDS)
    queue = delayqueue.connect(
        partial.url,
        blob_key=queueing.BLOB_KEY,
        prefix=key_prefix,
        opened=redisusers.servers_for(partial.url, "worker", connections=8),
    )
    scene = Scene(harness, queue)
    await scene.arm()
    yield scene
    await queue.close()
    await harness.close()


def _of(scene, cluster, node):
    """The shards of this node."""
    names = {shard: scene.harness.server.shard(messages.ShardId(shard)) for shard in range(SHARDS)}
    return {
        shard
        for shard, known in names.items()
        if cluster.owner(clusters.slot_of(known.meta)) is node
    }


@pytest.mark.parametrize("has_keepalive", [True, False], ids=["of the keepalive", "another"])
async def test_the_others_fire_on_and_it_is_told(scene, partial, has_keepalive):
    keeper = partial.owner(clusters.slot_of("{ctl}"))
    node = keeper if has_keepalive else next(one for one in partial.nodes if one is not keeper)
    away = _of(scene, partial, node)
    async with scene.working():
        await scene.until_fired(3)
        assert not scene.health.troubles()
        node.kill()
        await scene.until_fired(10, apart_from=away)
        await _until(scene.is_troubled)
        node.start()
        await _until(functools.partial(_is_open, scene))
        await scene.arm()  # it came back empty
        await scene.until_fired(3)
        await _until(scene.is_well)


async def test_a_node_that_stands_still_holds_up_the_others_once(scene, partial):
    keeper = partial.owner(clusters.slot_of("{ctl}"))
    node = next(one for one in partial.nodes if one is not keeper)
    away = _of(scene, partial, node)
    async with scene.working():
        await scene.until_fired(3)
        node.pause()
        await scene.until_fired(1, apart_from=away)
        for _ in range(3):  # each command to it would take five seconds
            await scene.until_fired(10, apart_from=away)
        await _until(scene.is_troubled)
        node.resume()
        await scene.until_fired(3)
        await _until(scene.is_well)


async def _until(holds):
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110 - of others
            await asyncio.sleep(0.1)


async def _is_open(scene):
    try:
        await scene.harness.queue.membership.open(SHARDS, queueing.EPOCH)
    except errors.QueueUnavailable:
        return False
    return True
