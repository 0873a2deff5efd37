"""Streams and Kafka on a whole installation: what a user sees from apply to the entry."""

from __future__ import annotations

import collections
import functools

from tests.e2e.test_secrets import admin, because, run_line, told, write_secret
from tests.support.stack import eventually

__all__ = ["admin"]


A_RECORD = {
    "schedule": "@every 1h",
    "kafka": {"topic": "records", "connectionSecretRef": {"name": "k"}},
}


def entries(server, key):
    with server.client() as client:
        return [fields for _, fields in client.xrange(key)]


async def test_a_stream_of_ours_has_each_slot_once_while_workers_are_killed(stack):
    _, worker = await stack.running()
    key = f"dp:stream:{stack.namespace}:ticks"
    await stack.apply(
        "ticks",
        {
            "schedule": "@every 1s",
            "catchUpPolicy": "All",
            "payload": {"a": 1},
            "stream": {"name": "ticks", "maxLength": 1000},
        },
    )

    async def has(count):
        return len(entries(stack.redis, key)) >= count

    for number in range(2):
        await eventually(functools.partial(has, 3 * number + 3), "the stream grows")
        await worker.kill()
        worker.start()
        await worker.wait_until_ready()
    await eventually(lambda: has(12), "every slot has its entry")
    found = entries(stack.redis, key)
    slots = collections.Counter(int(fields[b"slot"]) for fields in found)
    assert set(slots.values()) == {1}
    assert sorted(slots) == list(range(min(slots), max(slots) + 1))
    assert {fields[b"payload"] for fields in found} == {b'{"a":1}'}
    shown = await stack.wait_for_schedule(
        "ticks", lambda seen: "lastRun" in seen.get("status", {}), "tell of its last run"
    )
    assert shown["status"]["target"] == "Stream ticks"
    assert shown["status"]["lastRun"]["message"] == "added to stream ticks"


async def test_a_kafka_target_without_its_secret_says_what_to_do(stack, admin):
    await stack.running()
    await stack.apply("records", A_RECORD)
    forbidden = await stack.wait_for_schedule(
        "records", because("SecretUnavailable", "allow it"), "be forbidden"
    )
    await run_line(admin, stack, told(forbidden).partition("allow it with: ")[2])
    missing = await stack.wait_for_schedule(
        "records", because("SecretUnavailable", "not exist"), "lack its Secret"
    )
    assert "spec.kafka.connectionSecretRef" in told(missing)
    await write_secret(admin, stack, "k", bootstrap__servers="kafka.example.com:9092")
    await stack.apply("records", {**A_RECORD, "suspendReason": "an edit is checked at once"})
    shown = await stack.wait_until_ready("records", generation=2)
    assert shown["status"]["target"] == "Kafka records"
