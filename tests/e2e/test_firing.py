"""From `kubectl apply` to a Job, a webhook, a stream entry, as processes on real servers."""

from __future__ import annotations

import datetime as dt

from tests.support.builders import JOB_TEMPLATE


def slot_us(text: str) -> int:
    parsed = dt.datetime.fromisoformat(text)
    return round(parsed.timestamp() * 1_000_000)


async def test_an_applied_schedule_becomes_webhooks_on_time(stack):
    await stack.running()
    await stack.apply("ping", {"schedule": "@every 1s", "webhook": stack.webhook()})
    found = await stack.wait_until_ready("ping")
    assert found["status"]["nextScheduleTime"]
    assert len(found["status"]["upcomingTimes"]) == 5
    deliveries = await stack.wait_for_deliveries(4, "ping")
    slots = [one.slot for one in deliveries]
    assert len(set(slots)) == len(slots)
    assert len({one.webhook_id for one in deliveries}) == len(slots)
    lateness = [one.arrived_us - slot_us(one.slot) for one in deliveries]
    assert min(lateness) >= 0
    await stack.wait_for_schedule(
        "ping",
        lambda found: found["status"].get("runs", {}).get("succeeded", 0) >= 2,
        "counted as succeeded",
    )


async def test_an_applied_schedule_becomes_one_job_per_slot_with_its_facts(stack):
    await stack.running()
    applied = await stack.apply("task", {"schedule": "@every 2s", "jobTemplate": JOB_TEMPLATE})
    jobs = await stack.wait_for_job("task", 2)
    metadata = jobs[0]["metadata"]
    assert metadata["name"].startswith("task-")
    assert metadata["ownerReferences"][0]["uid"] == applied["metadata"]["uid"]
    slot = int(metadata["name"].removeprefix("task-"))
    written = metadata["annotations"]["duepoint.dev/scheduled-time"]
    assert slot_us(written) == slot * 1_000_000
    pod = jobs[0]["spec"]["template"]
    names = [one["name"] for one in pod["spec"]["containers"][0]["env"]]
    assert "DUEPOINT_SCHEDULED_TIME" in names
    found = await stack.wait_for_schedule(
        "task",
        lambda found: found["status"].get("runs", {}).get("succeeded", 0) >= 1,
        "a finished Job is told",
    )
    assert found["status"]["lastSuccessfulTime"]


async def test_an_applied_schedule_becomes_stream_entries(stack):
    await stack.running()
    spec = {"schedule": "@every 1s", "payload": {"n": 1}, "stream": {"name": "ticks"}}
    await stack.apply("ticks", spec)
    await stack.wait_for_schedule(
        "ticks",
        lambda found: found["status"].get("runs", {}).get("succeeded", 0) >= 2,
        "two entries",
    )
    with stack.redis.client() as client:
        entries = client.xrange(f"dp:stream:{stack.namespace}:ticks")
    ids = [fields[b"id"] for _, fields in entries]
    assert len(ids) == len(set(ids)) >= 2
    assert entries[0][1][b"payload"] == b'{"n":1}'


async def test_a_failed_delivery_is_retried_with_the_same_id(stack):
    from tests.support import receiver

    await stack.running()
    stack.answer = receiver.in_turn(receiver.status(503), receiver.status(204))
    retry = {"initialBackoff": "1s", "maxBackoff": "1s"}
    at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=2)
    spec = {
        "schedule": f"@at {at.isoformat(timespec='seconds').replace('+00:00', 'Z')}",
        "startingDeadlineSeconds": 60,
        "webhook": stack.webhook(retry=retry),
    }
    await stack.apply("once", spec)
    first, second = await stack.wait_for_deliveries(2, "once")
    assert first.webhook_id == second.webhook_id
    assert [one.body["data"]["attempt"] for one in (first, second)] == [1, 2]
    found = await stack.wait_for_schedule(
        "once",
        lambda found: found["status"].get("runs", {}).get("succeeded") == 1,
        "delivered in the end",
    )
    ready = next(one for one in found["status"]["conditions"] if one["type"] == "Ready")
    assert ready["reason"] == "Completed"
