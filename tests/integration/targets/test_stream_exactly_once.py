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
SLOT_US = 100_000
LONGEST_WAIT_SECONDS = 60.0


class Scene:
    """Schedules of one stream, and the worker process of the moment."""

    def __init__(self, url, key_prefix, harness):
        self.url = url
        self.key_prefix = key_prefix
        self.queue = harness.queue
        self.first_us = 0
        self.uids = []
        self.child = None
        self.started = 0

    async def arm(self, count):
        now_us = SystemClock().now_us()
        self.first_us = now_us - now_us % SLOT_US + 5 * SLOT_US
        for number in range(count):
            self.uids.append(f"6f1c9a34-0000-4000-8000-{number:012}")
            known = builders.a_definition(
                rule=builders.a_rule(
                    "@every 100ms", policy={"catch_up": "All", "catch_up_limit": 10_000}
                ),
                uid=self.uids[-1],
                name=f"s-{number}",
                created_us=self.first_us - SLOT_US,
                not_before_us=self.first_us - SLOT_US,
                target=self.queue.digest("default", TICKS),
            )
            arming = queueing.messages.Arming(definition=known, due_us=self.first_us)
            await self.queue.upsert(arming, TICKS, queueing.EPOCH)

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
        key = self.queue._keys.stream("default", "ticks")
        found = await self.queue._client.xrange(key)
        return collections.Counter(
            (fields[b"schedule_id"].decode(), round(float(fields[b"slot"]) * 10))
            for _, fields in found
        )

    async def more_entries(self, than):
        async with asyncio.timeout(LONGEST_WAIT_SECONDS):
            while len(found := await self.entries()) <= than:
                await asyncio.sleep(0.01)
        return len(found)

    async def everything_until(self, tenth):
        """The entries, once each schedule has that slot."""
        async with asyncio.timeout(LONGEST_WAIT_SECONDS):
            while True:
                found = await self.entries()
                if all((uid, tenth) in found for uid in self.uids):
                    return found
                await asyncio.sleep(0.05)


@pytest.fixture
async def scene(own_server, key_prefix):
    harness = await queueing.redis_harness(own_server.url, key_prefix, shards=2)
    made = Scene(own_server.url, key_prefix, harness)
    yield made
    with contextlib.suppress(AttributeError):
        made.kill_worker()
    await harness.queue.close()


def check(scene, found, last):
    """No slot up to this one is missing, and none of all is there twice."""
    doubled = {key: count for key, count in found.items() if count > 1}
    assert not doubled
    first = scene.first_us // SLOT_US
    wanted = {(uid, tenth) for uid in scene.uids for tenth in range(first, last + 1)}
    missing = wanted - found.keys()
    assert not missing


@pytest.mark.parametrize("count", [4, 160], ids=["one-by-one", "in-batches"])
async def test_killed_workers_lose_and_double_no_entry(scene, count):
    dice = random.Random(count)
    await scene.arm(count)
    seen = 0
    for _ in range(8):
        scene.start_worker()
        seen = await scene.more_entries(seen)
        await asyncio.sleep(dice.uniform(0.0, 0.3))  # the instant of the fault
        scene.kill_worker()
    scene.start_worker()
    last = SystemClock().now_us() // SLOT_US
    check(scene, await scene.everything_until(last), last)


@pytest.mark.parametrize("count", [4, 160], ids=["one-by-one", "in-batches"])
async def test_lost_replies_lose_and_double_no_entry(scene, count):
    """What the server answers is held, then every connection is cut."""
    dice = random.Random(count)
    server = urlsplit(scene.url)
    async with proxy.between(server.hostname, server.port) as between:
        scene.url = scene.url.replace(str(server.port), str(between.port))
        await scene.arm(count)
        scene.start_worker()
        seen = 0
        for _ in range(8):
            seen = await scene.more_entries(seen)
            await asyncio.sleep(dice.uniform(0.0, 0.05))
            between.held.clear()
            between.backward.clear()
            await asyncio.wait_for(between.held.wait(), LONGEST_WAIT_SECONDS)
            await between.refuse()
            between.backward.set()
            await between.accept()
        last = SystemClock().now_us() // SLOT_US
        check(scene, await scene.everything_until(last), last)
