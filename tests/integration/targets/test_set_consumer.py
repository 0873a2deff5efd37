"""The consumer of examples/13 acknowledges, takes over, and parks what fails again and again."""

from __future__ import annotations

import importlib.util

import pytest
import redis

from tests.integration.targets import test_stream_target
from tests.support import queueing
from tests.support.stack import ROOT


@pytest.fixture
def example(monkeypatch):
    """The example, with a list of what it handled."""
    path = ROOT / "examples" / "13-set-stream" / "consumer.py"
    found = importlib.util.spec_from_file_location("set_consumer", path)
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    made.handled = []
    made.failing = set()

    def handle(event):
        if event["slot"] in made.failing:
            raise RuntimeError(f"slot {event['slot']}")
        made.handled.append(event["slot"])

    monkeypatch.setattr(made, "handle", handle)
    return made


@pytest.fixture
async def scene(redis_server, key_prefix):
    harness = await queueing.redis_harness(redis_server.url, key_prefix)
    for number in (1, 2, 2, 3):  # the second one twice, as after a lost answer
        await test_stream_target.append(harness.queue, slot_us=number * 1_000_000)
    await harness.close()
    with redis.Redis.from_url(redis_server.url, decode_responses=True, protocol=2) as server:
        yield server, f"{key_prefix}stream:default:ticks"


def consumer(example, scene, name="one", **given):
    server, key = scene
    made = example.Consumer(server, key, f"group of {key}", name, **given)
    made.join()
    return made


def turn(made):
    return made.turn(idle_seconds=0.0, wait_seconds=0.01)


def pending(scene):
    server, key = scene
    return server.xpending(key, f"group of {key}")["pending"]


async def test_each_event_is_handled_once_and_acknowledged(scene, example):
    assert turn(consumer(example, scene)) == 4
    assert example.handled == ["1", "2", "3"]
    assert pending(scene) == 0


async def test_a_group_shares_the_events(scene, example, monkeypatch):
    monkeypatch.setattr(example, "BATCH", 2)
    one, other = consumer(example, scene), consumer(example, scene, "other")

    assert (turn(one), turn(other)) == (2, 2)
    assert example.handled == ["1", "2", "3"]


async def test_what_fails_stays_pending_and_holds_up_nothing(scene, example):
    example.failing = {"1"}
    assert turn(consumer(example, scene)) == 3
    assert (example.handled, pending(scene)) == (["2", "3"], 1)

    example.failing = set()
    assert turn(consumer(example, scene, "heir")) == 1
    assert (example.handled, pending(scene)) == (["2", "3", "1"], 0)


async def test_what_fails_again_and_again_is_parked_with_its_error(scene, example):
    example.failing = {"1"}
    made = consumer(example, scene, attempts=3)

    assert [turn(made) for _ in range(4)] == [3, 0, 1, 0]
    server, key = scene
    ((_, parked),) = server.xrange(f"{key}:group of {key}:parked")
    assert (parked["slot"], parked["error"]) == ("1", "RuntimeError('slot 1')")
    assert pending(scene) == 0
