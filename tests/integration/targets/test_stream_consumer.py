"""The consumer of the examples reads what the stream target writes, each event once."""

from __future__ import annotations

import importlib.util

import pytest
import redis

from duepoint import clock
from duepoint.targets import target
from duepoint.targets.stream import target as streamtarget
from tests.support import firings, queueing
from tests.support.stack import ROOT


async def append(queue, **changes):
    """Append the entry of a firing."""
    one = firings.a_firing(firings.a_stream(), **changes)
    rows = target.Firings(
        action=one.action, namespace=one.namespace, trigger=one.trigger, uids=[one.uid],
        generations=[one.generation], slots_us=[one.slot_us],
    )  # fmt: skip
    entries = streamtarget.StreamTarget(clock.SystemClock(), external=None).entries(
        rows, [b"a member"]
    )
    await queue.streams.append(entries)


@pytest.fixture
def example():
    path = ROOT / "examples" / "03-stream" / "consumer.py"
    found = importlib.util.spec_from_file_location("example_consumer", path)
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


@pytest.fixture
async def scene(redis_server, key_prefix):
    harness = await queueing.redis_harness(redis_server.url, key_prefix)
    for number in (1, 2, 2, 3):  # the second one twice, as after a lost answer
        await append(harness.queue, slot_us=number * 1_000_000)
    await harness.close()
    with redis.Redis.from_url(redis_server.url, decode_responses=True, protocol=2) as server:
        yield server, f"{key_prefix}stream:default:ticks"


async def test_each_event_is_handled_once_though_a_consumer_dies(scene, example, monkeypatch):
    server, key = scene
    handled = []
    group = f"group of {key}"
    dying = example.Consumer(server, key, group, "dying")
    dying.join()
    dying.join()

    def fail(event):
        if event["slot"] == "2":
            raise RuntimeError("killed")
        handled.append(event["slot"])

    monkeypatch.setattr(example, "handle", fail)
    with pytest.raises(RuntimeError):
        dying.turn(idle_seconds=0.0, wait_seconds=0.01)
    monkeypatch.setattr(example, "handle", lambda event: handled.append(event["slot"]))
    heir = example.Consumer(server, key, group, "heir")
    assert heir.turn(idle_seconds=0.0, wait_seconds=0.01) == 3
    assert handled == ["1", "2", "3"]
    assert server.xpending(key, group)["pending"] == 0
