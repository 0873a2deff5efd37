"""Workers as processes: stopped for ten seconds, ended in the midst of a burst."""

from __future__ import annotations

import asyncio
import collections
import signal
import statistics
import subprocess
import sys
import uuid

import pytest

from duepoint.clock import SystemClock
from duepoint.delayqueue import messages, sharding
from duepoint.schedules import actions
from tests.support import builders, queueing, shardstats
from tests.support.stack import ROOT

TICKS = actions.encode(actions.Action(target=actions.StreamAction(name="ticks")))
STALL_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 90.0
HOUR_US = 3_600_000_000
ALL = {"catch_up": "All", "catch_up_limit": 10_000}
LATEST = {"catch_up": "Latest"}


class Scene:
    """Schedules that append to one stream, and worker processes."""

    def __init__(self, server, key_prefix, harness):
        self.server, self.key_prefix, self.queue = server, key_prefix, harness.queue
        self.stored = harness.server
        self.children = []
        self.began_us = SystemClock().now_us() // 1_000_000 * 1_000_000 + 1_000_000
        self._read_to = "-"
        #: uid -> slot -> when its entry was appended, in us; and how often.
        self.appended = collections.defaultdict(dict)
        self.count = collections.Counter()

    async def arm(self, text, policy, *, age_us=0, number=0):
        known = builders.a_definition(
            rule=builders.a_rule(text, policy=policy),
            uid=str(uuid.uuid4()),
            name=f"s-{number}",
            created_us=self.began_us - age_us,
            not_before_us=self.began_us - 1,
            target=self.queue.signed_blobs.digest("default", TICKS),
        )
        arming = messages.Arming(definition=known, due_us=self.began_us)
        await self.queue.writer.upsert([(arming, TICKS)], queueing.EPOCH)
        return known.uid

    def start_worker(self, lease_seconds):
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.streamworker", self.server.url),
                *(self.key_prefix, f"w{len(self.children)}", str(lease_seconds)),
            ],
            cwd=ROOT,
        )
        self.children.append(child)
        return child

    async def look(self):
        key = self.stored.keys.stream("default", "ticks")
        for entry_id, fields in await self.stored.redis.xrange(key, self._read_to):
            uid, slot_us = fields[b"schedule_id"].decode(), round(float(fields[b"slot"]) * 1e6)
            self.appended[uid][slot_us] = int(entry_id.split(b"-")[0]) * 1000
            self.count[uid, slot_us] += 1
            self._read_to = f"({entry_id.decode()}"
        return self.appended

    async def lasting_claims(self):
        """How many claims keep their points from other workers.

        What is given back may lie in a claim too, whose lease is over.
        """
        redis, queue, total = self.stored.redis, self.queue, 0
        for shard in sharding.all_shards(queue.index.known_layout()):
            seconds, micros = await redis.time()
            now_us = seconds * 1_000_000 + micros
            total += await redis.zcount(queue.index.shard(shard).claims, f"({now_us}", "(+inf")
        return total

    async def until(self, is_right):
        async with asyncio.timeout(LONGEST_WAIT_SECONDS):
            while not is_right(await self.look()):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)


@pytest.fixture
async def scene(own_server, key_prefix):
    harness = await queueing.redis_harness(own_server.url, key_prefix, shards=2)
    made = Scene(own_server, key_prefix, harness)
    yield made
    for child in made.children:
        child.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()
    await harness.close()


async def test_a_worker_that_stood_still_catches_up_by_policy_and_is_on_time_again(scene):
    period_us = {}
    for text, length in (("@every 1s", 1_000_000), ("@every 100ms", 100_000)):
        for policy in (ALL, LATEST):
            period_us[await scene.arm(text, policy), policy is ALL] = length
    worker = scene.start_worker(2.0)
    await scene.until(lambda found: len(found) == 4 and min(map(len, found.values())) >= 3)
    worker.send_signal(signal.SIGSTOP)
    stopped_us = SystemClock().now_us()
    await asyncio.sleep(STALL_SECONDS)  # the fault itself
    resumed_us = SystemClock().now_us()
    worker.send_signal(signal.SIGCONT)
    on_time_us = resumed_us + 4_000_000
    await scene.until(lambda found: all(max(found[uid]) >= on_time_us for uid, _ in period_us))
    for (uid, runs_all), length in period_us.items():
        found = scene.appended[uid]
        if runs_all:
            wanted = set(range(scene.began_us, max(found) + 1, length))
            await scene.until(lambda found, uid=uid, wanted=wanted: wanted <= found[uid].keys())
        else:
            missed = [s for s in found if stopped_us + 1_500_000 < s < resumed_us - 1_500_000]
            assert len(missed) <= 2, "the newest one only"
        late = [appended - slot for slot, appended in found.items() if slot >= on_time_us]
        assert statistics.median(late) < 3_000_000, "a chain that lags once lags for ever"
    assert set(scene.count.values()) == {1}


async def test_a_worker_that_is_told_to_end_gives_back_what_it_holds(scene):
    uids = {await scene.arm("@every 1h", ALL, age_us=HOUR_US, number=n) for n in range(400)}
    first = scene.start_worker(600.0)
    await scene.until(lambda found: found)
    first.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(first.wait, 30) == 0
    assert await scene.lasting_claims() == 0
    scene.start_worker(600.0)
    await scene.until(lambda found: uids <= found.keys())
    assert set(scene.count.values()) == {1}


async def test_a_worker_that_is_killed_leaves_what_it_holds_to_the_next(scene):
    uids = {await scene.arm("@every 1h", ALL, age_us=HOUR_US, number=n) for n in range(400)}
    first = scene.start_worker(2.0)
    await scene.until(lambda found: found)
    first.kill()
    first.wait()
    scene.start_worker(2.0)
    await scene.until(lambda found: uids <= found.keys())
    assert set(scene.count.values()) == {1}
    assert sum(stats.due for stats in await shardstats.read(scene.queue)) == 0
