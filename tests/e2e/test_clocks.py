"""Processes whose machine's clock is an hour wrong."""

from __future__ import annotations

import contextlib
import time

import pytest

from duepoint.kube import times
from tests.support.stack import eventually

HOUR = 3600.0
SECOND = 1_000_000


@pytest.fixture(params=[HOUR, -HOUR], ids=["ahead", "behind"])
def off(request):
    return request.param


async def wait_until_told(process, words):
    async def told() -> bool:
        with contextlib.suppress(OSError):  # it has not begun to listen yet
            return words in await process.troubles()
        return False

    await eventually(told, f"the process says {words!r}")


def said(off):
    return f"3600.0 s {'ahead of' if off > 0 else 'behind'} Redis's"


async def test_an_operator_with_a_wrong_clock_says_so_and_leaves_the_lead_to_others(stack, off):
    wrong = stack.operator("wrong", off=off)
    await wait_until_told(wrong, said(off))
    assert f"duepoint_clock_skew_seconds {'-' if off < 0 else ''}3" in await wrong.metrics()
    assert "duepoint_leader 0" in await wrong.metrics()
    right, worker = stack.operator("right"), stack.worker()
    await right.wait_until_ready()
    await worker.wait_until_ready()
    began_us = time.time_ns() // 1000
    every = {"schedule": "@every 2s", "catchUpPolicy": "All", "webhook": stack.webhook()}
    await stack.apply("steady", every)
    delivered = (await stack.wait_for_deliveries(3, "steady"))[:3]
    slots = [times.parse_us(one.slot) for one in delivered]
    assert slots == [slots[0], slots[0] + 2 * SECOND, slots[0] + 4 * SECOND]
    assert slots[0] > began_us


async def test_a_worker_with_a_wrong_clock_says_so_and_leaves_points_to_others(stack, off):
    operator, wrong = stack.operator(), stack.worker("wrong", off=off)
    await operator.wait_until_ready()
    await wait_until_told(wrong, said(off))
    # By either clock its slot has passed.
    once = {"schedule": f"@at {int(time.time() - 2 * HOUR)}", "startingDeadlineSeconds": 10_800}
    await stack.apply("once", {**once, "webhook": stack.webhook()})
    await stack.wait_until_ready("once")
    assert stack.delivered("once") == []
    await stack.worker("right").wait_until_ready()
    await stack.wait_for_deliveries(1, "once")
