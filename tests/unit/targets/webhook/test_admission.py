"""A receiver in trouble: what goes out, what waits, what is skipped, and what workers share."""

from __future__ import annotations

import contextlib
import time

from duepoint import clock, errors
from duepoint.delayqueue import circuits
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome
from duepoint.targets.webhook import admission
from tests.support import firings, receiver, virtualqueue, webhooktargets

RULE = circuits.CircuitRule(most_in_a_row=3, first_wait_us=100_000, most_wait_us=400_000)
LONG = circuits.CircuitRule(most_in_a_row=3)


class Shared:
    """What all workers share, and their sides of it."""

    def __init__(self, rule: circuits.CircuitRule = RULE) -> None:
        queue = virtualqueue.VirtualQueue(clock.SystemClock())
        self.circuits = circuits.Circuits(queue.index, rule)
        self.breakers: list[admission.CircuitBreaker] = []


@contextlib.asynccontextmanager
async def workers(count=1, *, answer=None, shared=None, rule=RULE, **changes):
    """A receiver, and so many workers that share one queue."""
    shared = shared or Shared(rule)
    async with contextlib.AsyncExitStack() as stack:
        hears = await stack.enter_async_context(receiver.listening(answer))
        shared.breakers = [
            admission.CircuitBreaker(shared.circuits, clock.SystemClock()) for _ in range(count)
        ]
        targets = [
            (await stack.enter_async_context(webhooktargets.a_target(breaker=one, **changes)))[0]
            for one in shared.breakers
        ]
        yield hears, targets, shared


def a_firing(hears, *, path="/", namespace="default", **changes):
    action = firings.a_webhook(f"http://127.0.0.1:{hears.port}{path}", timeout_seconds=5)
    due_us = changes.pop("due_us", time.time_ns() // 1000)
    return firings.a_firing(action, due_us=due_us, namespace=namespace, **changes)


async def settle(shared):
    """Until what is being told in the background has been."""
    for one in shared.breakers:
        await one.close()


async def opened(hears, targets, shared):
    hears.answer = receiver.status(503)
    for _ in range(RULE.most_in_a_row):
        assert (await targets[0].fire(a_firing(hears))).reason is Reason.REJECTED
    await settle(shared)


async def test_a_receiver_that_fails_is_left_alone_and_the_slot_waits_without_using_an_attempt():
    async with workers(rule=LONG) as (hears, targets, shared):
        await opened(hears, targets, shared)
        asked = len(hears.requests)
        given = await targets[0].fire(a_firing(hears))
        assert given.reason is Reason.CIRCUIT_OPEN
        assert not given.counted
        assert not given.started
        assert given.after_us > 0
        assert len(hears.requests) == asked


async def test_a_queue_that_cannot_be_asked_holds_nothing_back():
    async def away(*_):
        raise errors.QueueUnavailable("away")

    shared = Shared()
    shared.circuits.read = shared.circuits.open = away
    async with workers(shared=shared) as (hears, targets, _):
        hears.answer = receiver.status(503)
        for _ in range(10):
            assert (await targets[0].fire(a_firing(hears))).reason is Reason.REJECTED


# -- gone ---------------------------------------------------------------------------------------


async def test_after_410_a_schedule_is_not_delivered_until_it_is_edited():
    async with workers(2, answer=receiver.status(410)) as (hears, targets, shared):
        first = await targets[0].fire(a_firing(hears, generation=3))
        assert isinstance(first, outcome.Rejected)
        assert first.reason is Reason.ENDPOINT_GONE
        await settle(shared)
        again = await targets[0].fire(a_firing(hears, generation=3, slot_us=60_000_000))
        assert again == outcome.Skip(reason=Reason.ENDPOINT_GONE, message=again.message)
        assert (await targets[1].fire(a_firing(hears))).reason is Reason.ENDPOINT_GONE
        assert len(hears.requests) == 1
        hears.answer = receiver.status(204)
        edited = await targets[0].fire(a_firing(hears, generation=4))
        assert isinstance(edited, outcome.Delivered)


async def test_a_run_by_hand_is_sent_and_its_success_resumes_the_schedule():
    async with workers(answer=receiver.status(410)) as (hears, targets, shared):
        await targets[0].fire(a_firing(hears))
        await settle(shared)
        hears.answer = receiver.status(204)
        by_hand = await targets[0].fire(a_firing(hears, trigger="Manual", run_uid="run"))
        assert isinstance(by_hand, outcome.Delivered)
        await settle(shared)
        assert isinstance(await targets[0].fire(a_firing(hears)), outcome.Delivered)
        assert (await shared.circuits.read()).gone == {}


# -- names and verdicts -------------------------------------------------------------------------
