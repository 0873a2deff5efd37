"""Processes whose machine's clock is an hour wrong."""

from __future__ import annotations

import time

import pytest

from duepoint.kube import times
from tests.support.stack import eventually

HOUR = 3600.0
SECOND = 1_000_000


def slot_us(delivery) -> int:
    return times.parse_us(delivery.slot)


@pytest.mark.parametrize("off", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_an_operator_with_a_wrong_clock_arms_no_past_slot_and_skips_none(stack, off):
    operator, worker = stack.operator(off=off), stack.worker()
    await worker.wait_until_ready()
    began_us = time.time_ns() // 1000
    await stack.apply("steady", {"schedule": "@every 1h", "webhook": stack.webhook()})
    await stack.wait_until_ready("steady")
    edited = {"schedule": "@every 2s", "catchUpPolicy": "All", "webhook": stack.webhook()}
    await stack.apply("steady", edited)
    found = await stack.wait_until_ready("steady", 2)
    assert abs(times.parse_us(found["status"]["nextScheduleTime"]) - began_us) < 60 * SECOND
    delivered = (await stack.wait_for_deliveries(3, "steady"))[:3]
    first, *_ = slots = [slot_us(one) for one in delivered]
    assert slots == [first, first + 2 * SECOND, first + 4 * SECOND]
    assert first > began_us
    assert "clock" in await operator.troubles()
    assert f"duepoint_clock_skew_seconds {'-' if off < 0 else ''}3" in await operator.metrics()

    await stack.apply("steady", {**edited, "suspend": True})
    await stack.wait_until_ready("steady", 3)
    await stack.apply("steady", {**edited, "suspend": False})
    found = await stack.wait_until_ready("steady", 4)
    assert found["status"]["runs"]["skipped"] < 30, "of an hour it would be 1,800"


@pytest.fixture
def timestamps(stack):
    """By how many seconds what the receiver is sent as the time of signing differs from its own."""
    told: list[float] = []
    usual = stack.answer

    async def note(request, writer):
        told.append(int(request.header("webhook-timestamp")) - time.time())
        await usual(request, writer)

    stack.answer = note
    return told


async def wait_until_told(worker, words):
    async def told() -> bool:
        return words in await worker.troubles()

    await eventually(told, f"the worker says {words!r}")


async def test_a_worker_whose_clock_is_ahead_signs_with_the_true_time_and_is_not_ready(
    stack, timestamps
):
    operator, worker = stack.operator(), stack.worker(off=HOUR)
    await operator.wait_until_ready()
    on_time = {"catchUpPolicy": "None", "startingDeadlineSeconds": 30}
    await stack.apply("signed", {"schedule": "@every 1s", "webhook": stack.webhook(), **on_time})
    delivered = await stack.wait_for_deliveries(3, "signed")
    assert all(abs(off) < 60 for off in timestamps)
    assert all(one.arrived_us - slot_us(one) < 30 * SECOND for one in delivered)
    assert (await stack.schedule("signed"))["status"].get("runs", {}).get("missed", 0) == 0
    await wait_until_told(worker, "3600.0 s ahead of Redis's")


async def test_a_worker_whose_clock_is_behind_leaves_slots_to_others_and_signs_with_the_true_time(
    stack, timestamps
):
    operator, late = stack.operator(), stack.worker("late", off=-HOUR)
    await operator.wait_until_ready()
    two_hours_ago = f"@at {int(time.time() - 2 * HOUR)}"
    once = {"schedule": two_hours_ago, "startingDeadlineSeconds": int(3 * HOUR)}
    await stack.apply("once", {**once, "webhook": stack.webhook()})  # due by its clock, too
    await stack.wait_for_deliveries(1, "once")
    await wait_until_told(late, "3600.0 s behind Redis's: points are claimed late")
    await stack.worker("right").wait_until_ready()
    await stack.apply("steady", {"schedule": "@every 1s", "webhook": stack.webhook()})
    for one in await stack.wait_for_deliveries(3, "steady"):
        assert one.arrived_us - slot_us(one) < 60 * SECOND
    assert all(abs(off) < 60 for off in timestamps)
