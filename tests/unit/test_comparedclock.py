"""When a process may work by its machine's clock, and what it says of one that is wrong."""

from __future__ import annotations

import asyncio

import pytest

from duepoint import comparedclock, errors, services, telemetry
from duepoint.kube import errors as kube_errors
from tests.fakes.fakeclock import FakeClock

SECOND = 1_000_000
HOUR = 3600 * SECOND


class Process:
    """True time passes; each clock differs from it by so much, and the monotonic one does not."""

    def __init__(self, *, own: int = 0, redis: int = 0, api: int | None = 0) -> None:
        self.truth = FakeClock()
        self.own, self.redis, self.api = own, redis, api
        self.way = 0.0
        self.health = services.Health()
        self.clock = comparedclock.ComparedClock(self)
        self.watch = comparedclock.ClockWatch(self.clock, self.health, self.api_time)

    def now_us(self) -> int:
        return self.truth.now_us() + self.own

    def monotonic(self) -> float:
        return self.truth.monotonic() - 1e6

    async def sleep(self, seconds: float) -> None:
        await self.truth.sleep(seconds)

    async def redis_time(self) -> int:
        await self.truth.advance(self.way)
        return self.truth.now_us() + self.redis

    async def api_time(self) -> int:
        if self.api is None:
            raise kube_errors.Unavailable("away")
        return self.truth.now_us() + self.api

    async def compare(self) -> str:
        """What readiness says afterwards."""
        await self.watch.compare(self.redis_time)
        return self.health.troubles().get("clock", "")

    def off(self) -> int:
        return self.clock.now_us() - self.truth.now_us()


def test_before_a_comparison_a_process_is_not_ready():
    process = Process()
    assert "clock" in process.health.troubles()
    assert not process.watch.right.is_set()


@pytest.mark.parametrize(("own", "is_right"), [(0, True), (HOUR, False)])
async def test_while_redis_is_away_a_process_begins_by_the_api_servers_clock(own, is_right):
    process = Process(own=own)

    async def away() -> int:
        raise errors.TryLater("away")

    running = asyncio.create_task(process.watch.run(away))
    await process.truth.advance(3)
    running.cancel()
    assert process.watch.right.is_set() is is_right
    assert ("3600.0 s ahead" in process.health.troubles().get("clock", "")) is not is_right


@pytest.mark.parametrize(
    "wrong",
    [{}, {"redis": HOUR}, {"redis": -HOUR}, {"api": HOUR}, {"own": SECOND, "api": None}],
    ids=["none", "Redis ahead", "Redis behind", "API server", "by a second"],
)
async def test_a_clock_that_one_other_agrees_with_is_right(wrong):
    process = Process(**wrong)
    assert await process.compare() == ""
    assert process.watch.right.is_set()
    assert process.off() == wrong.get("own", 0)
    skew = wrong.get("own", 0) - wrong.get("redis", 0)
    assert telemetry.clock_skew_seconds._value.get() == skew / SECOND


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"own": HOUR}, "3600.0 s ahead of Redis's and 3600.0 s ahead of the API server's; set it"),
        ({"own": -HOUR}, "3600.0 s behind Redis's and 3600.0 s behind the API server's; set it"),
        ({"own": HOUR, "redis": -HOUR}, "7200.0 s ahead of Redis's"),
        ({"own": HOUR, "api": None}, "and the API server's is not known; set the clock that is"),
    ],
    ids=["ahead", "behind", "all differ", "API server away"],
)
async def test_a_process_with_a_wrong_clock_is_not_ready_and_begins_nothing(wrong, said):
    process = Process(**wrong)
    assert said in await process.compare()
    assert not process.watch.right.is_set()
    process.own = process.redis = 0
    assert await process.compare() == ""
    assert process.watch.right.is_set()
    assert process.off() == 0


@pytest.mark.parametrize("wrong", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_a_clock_that_is_set_wrong_later_moves_nothing(wrong):
    process = Process()
    await process.compare()
    process.own = wrong
    assert process.off() == 0
    assert await process.compare()
    await process.truth.advance(100)
    assert process.off() == 0
    process.own = SECOND
    assert await process.compare() == ""
    assert process.off() == SECOND


async def test_an_answer_that_was_under_way_for_long_says_nothing():
    process = Process(api=None)
    process.way = 3.0  # while a connection was made
    assert await process.compare() == "starting"
    process.way = 0.0
    assert await process.compare() == ""


async def test_work_waits_for_a_clock_that_is_right_and_says_why(monkeypatch):
    process = Process(own=HOUR)
    await process.compare()
    monkeypatch.setattr(comparedclock, "_PATIENCE_SECONDS", 0.0)
    with pytest.raises(errors.TryLater, match="ahead of Redis's"):
        await process.watch.before_work()
    monkeypatch.setattr(comparedclock, "_PATIENCE_SECONDS", 60.0)
    waiting = asyncio.create_task(process.watch.before_work())
    process.own = 0
    await process.compare()
    await waiting


async def test_a_clock_is_compared_again_a_second_after_it_was_wrong_or_redis_away():
    process = Process(own=HOUR)
    answers = iter([errors.TryLater("away")])

    async def redis_time() -> int:
        for trouble in answers:
            raise trouble
        return process.truth.now_us()

    watching = asyncio.create_task(process.watch.run(redis_time))
    await process.truth.advance(1.5)
    assert "ahead" in process.health.troubles()["clock"]
    process.own = 0
    await process.truth.advance(1)
    assert process.watch.right.is_set()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
