"""The contract of every target: the recording one and each real one."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time

import pytest

from duepoint import clock
from duepoint.schedules import actions
from duepoint.targets import jobtarget, outcome, target
from tests.fakes import fakekubernetes, recordingtarget
from tests.support import firings, receiver, webhooktargets


@dataclasses.dataclass
class Harness:
    """A target with a firing for it, a count of its calls, and a way to make it hang."""

    target: target.Target
    action: actions.Target
    reached: object
    hang: object
    wait_until_reached: object

    def fire(self, **changes):
        return self.target.fire(firings.a_firing(self.action, **changes))


@contextlib.asynccontextmanager
async def recording():
    made = recordingtarget.RecordingTarget(clock.SystemClock())
    yield Harness(
        made,
        firings.a_stream(),
        lambda: len(made.fired),
        made.hold,
        lambda: made.wait_until_fired(1),
    )


@contextlib.asynccontextmanager
async def webhook():
    async with (
        receiver.listening() as hears,
        webhooktargets.a_target() as (made, _),
    ):

        def hang():
            hears.answer = receiver.hang

        action = firings.a_webhook(f"http://127.0.0.1:{hears.port}/")
        yield Harness(made, action, lambda: len(hears.requests), hang, hears.wait_until_asked)


class Gate:
    """Counts calls, and passes them on or lets them hang."""

    def __init__(self, inner):
        self._inner = inner
        self._hangs = False
        self.reached = 0
        self._called = asyncio.Event()

    def hang(self):
        self._hangs = True

    async def wait_until_reached(self):
        await self._called.wait()

    async def _pass(self, method, *args, **kwargs):
        self.reached += 1
        self._called.set()
        if self._hangs:
            await asyncio.Event().wait()
        return await getattr(self._inner, method)(*args, **kwargs)

    async def request(self, *args, **kwargs):
        return await self._pass("request", *args, **kwargs)


def behind(gate, made, action):
    return Harness(made, action, lambda: gate.reached, gate.hang, gate.wait_until_reached)


@contextlib.asynccontextmanager
async def job_():
    gate = Gate(fakekubernetes.FakeKubernetes())
    yield behind(gate, jobtarget.JobTarget(gate, clock.SystemClock()), firings.a_job())


@pytest.fixture(params=[recording, webhook, job_])
async def harness(request):
    async with request.param() as made:
        yield made


async def test_a_firing_is_delivered_and_says_when(harness):
    given = await harness.fire()
    assert isinstance(given, outcome.Delivered)
    assert abs(given.accepted_us - time.time_ns() // 1000) < 5_000_000
    assert harness.reached() == 1


async def test_a_second_attempt_of_the_slot_is_delivered_too(harness):
    await harness.fire()
    assert isinstance(await harness.fire(attempt=2), outcome.Delivered)


async def test_nothing_happens_after_the_claims_end(harness):
    given = await harness.fire(seconds_left=-0.001, ends_by_monotonic=time.monotonic() + 60)
    assert isinstance(given, outcome.Retry)
    assert not given.started
    assert harness.reached() == 0


async def test_an_attempt_that_hangs_ends_with_the_claim(harness):
    harness.hang()
    begun = time.monotonic()
    given = await harness.fire(seconds_left=0.1)
    assert isinstance(given, outcome.Retry)
    assert 0.075 < time.monotonic() - begun < 30


async def test_an_attempt_may_outlast_the_claim_it_began_in_when_that_is_kept_alive(harness):
    harness.hang()
    begun = time.monotonic()
    given = await harness.fire(seconds_left=0.05, ends_by_monotonic=begun + 0.2)
    assert isinstance(given, outcome.Retry)
    assert 0.175 < time.monotonic() - begun < 30


async def test_cancellation_passes_through_and_the_target_works_on(harness):
    harness.hang()
    attempt = asyncio.create_task(harness.fire())
    await harness.wait_until_reached()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert isinstance(await harness.fire(seconds_left=0.05), outcome.Retry)


async def test_attempts_run_side_by_side(harness):
    harness.hang()
    begun = time.monotonic()
    slots = range(1_000_000, 31_000_000, 1_000_000)
    given = await asyncio.gather(
        *(harness.fire(seconds_left=1.0, slot_us=slot_us) for slot_us in slots)
    )
    assert all(isinstance(one, outcome.Retry) for one in given)
    assert time.monotonic() - begun < 20  # one after the other they take 30
