"""Workers are killed and connections cut in the midst of deliveries: each slot has one entry."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from duepoint.clock import SystemClock
from duepoint.schedules import actions
from tests.support import builders, proxy, queueing
from tests.support.stack import ROOT

LEASE_SECONDS = "2"
TICKS = actions.encode(actions.Action(target=actions.StreamAction(name="ticks")))
TENTH_US = 100_000
SCENES = pytest.mark.parametrize(
    ("count", "tenths"), [(4, 1), (160, 10)], ids=["one-by-one", "in-batches"]
)
LONGEST_WAIT_SECONDS = 60.0


class Scene:
    """Schedules of one stream, and the worker process of the moment."""

    def __init__(self, url, key_prefix, harness):
        self.url = url
        self.key_prefix = key_prefix
        self.queue, self.server = harness.queue, harness.server
        self.first_us = self.period_us = 0
        self.found = collections.Counter()
        self.read_to = "-"
        self.uids = []
        self.child = None
        self.started = 0

    async def arm(self, count, tenths):
        now_us = SystemClock().now_us()
        self.period_us = tenths * TENTH_US
        self.first_us = now_us - now_us % self.period_us + 2 * self.period_us
        for number in range(count):
            self.uids.append(f"6f1c9a34-0000-4000-8000-{number:012}")
            known = builders.a_definition(
                rule=builders.a_rule(
                    f"@every {tenths}00ms", policy={"catch_up": "All", "catch_up_limit": 10_000}
                ),
                uid=self.uids[-1],
                name=f"s-{number}",
                created_us=self.first_us - self.period_us,
                not_before_us=self.first_us - self.period_us,
                target=self.queue.signed_blobs.digest("default", TICKS),
            )
            arming = queueing.messages.Arming(definition=known, due_us=self.first_us)
            await self.queue.writer.upsert([(arming, TICKS)], queueing.EPOCH)

    def start_worker(self):
        self.started += 1
        self.child = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.streamworker"),
                *(self.url, self.key_prefix, f"w{self.started}", LEASE_SECONDS),
            ],
            cwd=ROOT,
        )

    def kill_worker(self):
        self.child.kill()
        self.child.wait()

    async def entries(self):
        """How many entries each slot of each schedule has: {(uid, slot in tenths): entries}."""
        key = self.server.keys.stream("default", "ticks")
        for entry_id, fields in await self.server.redis.xrange(key, self.read_to):
            self.found[fields[b"schedule_id"].decode(), round(float(fields[b"slot"]) * 10)] += 1
            self.read_to = f"({entry_id.decode()}"
        return self.found

    async def more_entries(self, than):
        await eventually(lambda found: len(found) > than, self.entries)
        return len(self.found)

    async def all_until_now(self):
        """The entries, once every schedule has every slot up to now."""
        slots = range(self.first_us, SystemClock().now_us() + 1, self.period_us)
        wanted = {(uid, slot // TENTH_US) for uid in self.uids for slot in slots}
        await eventually(lambda found: wanted <= found.keys(), self.entries)
        return self.found


async def eventually(is_right, look):
    async with asyncio.timeout(LONGEST_WAIT_SECONDS):
        while not is_right(await look()):  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(0.02)


@pytest.fixture
async def scene(own_server, key_prefix):
    harness = await queueing.redis_harness(own_server.url, key_prefix, shards=2)
    made = Scene(own_server.url, key_prefix, harness)
    yield made
    with contextlib.suppress(AttributeError):
        made.kill_worker()
    await harness.close()


def doubled(found):
    return {key: count for key, count in found.items() if count > 1}


@SCENES
async def test_killed_workers_lose_and_double_no_entry(scene, count, tenths):
    dice = random.Random(count)
    await scene.arm(count, tenths)
    seen = 0
    for _ in range(5):
        scene.start_worker()
        seen = await scene.more_entries(seen)
        await asyncio.sleep(dice.uniform(0.0, 0.3))  # the instant of the fault
        scene.kill_worker()
    scene.start_worker()
    assert not doubled(await scene.all_until_now())


@SCENES
async def test_lost_replies_lose_and_double_no_entry(scene, count, tenths):
    """What the server answers is held, then every connection is cut."""
    dice = random.Random(count)
    server = urlsplit(scene.url)
    async with proxy.between(server.hostname, server.port) as between:
        scene.url = scene.url.replace(str(server.port), str(between.port))
        await scene.arm(count, tenths)
        scene.start_worker()
        seen = 0
        for _ in range(5):
            seen = await scene.more_entries(seen)
            await asyncio.sleep(dice.uniform(0.0, 0.05))
            between.held.clear()
            between.backward.clear()
            await asyncio.wait_for(between.held.wait(), LONGEST_WAIT_SECONDS)
            await between.refuse()
            between.backward.set()
            await between.accept()
        assert not doubled(await scene.all_until_now())
