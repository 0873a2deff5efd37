"""Which of three clocks is believed, and what is said of the one that is wrong."""

from __future__ import annotations

import asyncio
import datetime as dt
import email.utils

import pytest

from duepoint import agreedclock, services, telemetry
from duepoint.kube import errors as kube_errors
from tests.fakes.fakeclock import FakeClock

SECOND = 1_000_000
HOUR = 3600 * SECOND


class Machine:
    """True time passes; this machine's clock differs from it, the monotonic one does not."""

    def __init__(self, off_us: int = 0) -> None:
        self.truth = FakeClock()
        self.off_us = off_us

    def now_us(self) -> int:
        return self.truth.now_us() + self.off_us

    def monotonic(self) -> float:
        return self.truth.monotonic() - 1e6

    async def sleep(self, seconds: float) -> None:
        await self.truth.sleep(seconds)


def date(instant_us: int) -> str:
    moment = dt.datetime.fromtimestamp(instant_us // SECOND, dt.UTC)
    return email.utils.format_datetime(moment, usegmt=True)


def compared(own: int = 0, redis: int = 0, api: int | None = 0):
    """Clocks that are so far off; ``api`` is None where it says nothing."""
    machine = Machine(own)
    clock = agreedclock.AgreedClock(machine)
    hear(clock, machine, redis=redis, api=api)
    return clock, machine


def hear(clock, machine, *, redis: int = 0, api: int | None = 0) -> None:
    truth_us, asked = machine.truth.now_us(), machine.monotonic()
    if api is not None:
        clock.note_api(date(truth_us + api), asked=asked)
    clock.note_queue(truth_us + redis, asked=asked)


def off(clock, machine) -> int:
    return clock.now_us() - machine.truth.now_us()


@pytest.mark.parametrize("wrong", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_a_machine_that_is_an_hour_wrong_goes_by_the_time_of_the_others(wrong):
    clock, machine = compared(own=wrong)
    assert off(clock, machine) == 0
    assert clock.distrust == ""
    assert clock.skew_us == wrong


def confirmed_off(clock, machine) -> int | None:
    confirmed_us = agreedclock.EarliestClock(clock).confirmed_us()
    return None if confirmed_us is None else confirmed_us - machine.truth.now_us()


def test_no_time_is_confirmed_before_two_clocks_agree():
    assert confirmed_off(*compared(own=HOUR, redis=2 * HOUR, api=None)) is None
    assert confirmed_off(*compared(own=HOUR, redis=2 * HOUR, api=0)) is None


@pytest.mark.parametrize("wrong", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_a_redis_that_is_an_hour_wrong_is_not_believed(wrong):
    clock, machine = compared(redis=wrong)
    assert off(clock, machine) == 0
    assert clock.distrust == ""
    assert clock.skew_us == -wrong


@pytest.mark.parametrize("wrong", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_an_api_server_that_is_an_hour_wrong_is_not_believed(wrong):
    clock, machine = compared(api=wrong)
    assert (off(clock, machine), clock.distrust) == (0, "")


def test_where_no_two_agree_there_is_no_time_to_act_upon():
    clock, _ = compared(own=HOUR, redis=-HOUR)
    assert "no two clocks agree" in clock.distrust
    assert "Redis's is 7200.0 s behind" in clock.distrust


def early(clock, machine) -> int:
    return clock.earliest_us() - machine.truth.now_us()


@pytest.mark.parametrize(
    ("own", "redis"),
    [(HOUR, 0), (0, HOUR), (0, -HOUR), (0, 0)],
    ids=["own", "ahead", "behind", "-"],
)
def test_points_are_claimed_by_the_true_time_where_one_clock_is_wrong(own, redis):
    assert early(*compared(own=own, redis=redis)) == 0


def test_a_machine_that_is_behind_claims_late_and_never_early():
    assert early(*compared(own=-HOUR)) == -HOUR


async def test_a_clock_that_is_set_ahead_claims_nothing_early():
    clock, machine = compared()
    machine.off_us = HOUR
    await machine.truth.advance(5)
    assert early(clock, machine) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "Mon, 99 Foo 2026 00:00:00 GMT",
        "Sat, 28 Nov 2026 10:00:00 +99999999999999999999",
        "Sat, 28 Nov 99999999999999999999 10:00:00 GMT",
    ],
)
def test_a_date_that_is_none_is_passed_over(text):
    clock, machine = compared()
    clock.note_api(text, asked=machine.monotonic())
    assert clock.api_skew_us is not None


# -- what is said ----------------------------------------------------------------------------------


class Watched:
    """A process whose clocks are watched."""

    def __init__(self, own: int = 0, redis: int = 0, api: int | None = 0) -> None:
        self.machine = Machine(own)
        self.redis, self.api = redis, api
        self.asked = 0
        self.health = services.Health()
        self.clock = agreedclock.AgreedClock(self.machine)
        self.watch = agreedclock.ClockWatch(self.clock, self.health, ask_api=self._ask)

    async def _ask(self) -> None:
        self.asked += 1
        if self.api is None:
            raise kube_errors.Unavailable("away")
        told = date(self.machine.truth.now_us() + self.api)
        self.clock.note_api(told, asked=self.machine.monotonic())

    async def hear(self) -> str:
        now_us = self.machine.truth.now_us() + self.redis
        await self.watch.heard(now_us, asked=self.machine.monotonic())
        return self.health.troubles().get("clock", "")


async def test_a_clock_that_is_right_asks_nobody_and_is_well():
    place = Watched()
    assert await place.hear() == ""
    assert place.asked == 0
    assert telemetry.clock_skew_seconds._value.get() == 0


@pytest.mark.parametrize(
    ("off", "said"),
    [
        ({"own": HOUR}, "this machine's clock is 3600.0 s ahead of Redis's; set the clock"),
        (
            {"own": -HOUR},
            "this machine's clock is 3600.0 s behind Redis's: points are claimed late",
        ),
        ({"redis": HOUR}, "Redis's clock is 3600.0 s ahead of the others"),
        ({"redis": -HOUR}, "Redis's clock is 3600.0 s behind the others"),
        ({"own": HOUR, "redis": -HOUR}, "no two clocks agree"),
        ({"own": HOUR, "api": None}, "the clocks disagree"),
    ],
    ids=["ahead", "behind", "Redis ahead", "Redis behind", "all differ", "API server away"],
)
async def test_a_process_with_a_wrong_clock_is_not_ready_and_says_which(off, said):
    place = Watched(**off)
    assert said in await place.hear()
    assert place.asked == 1
    skew = off.get("own", 0) - off.get("redis", 0)
    assert telemetry.clock_skew_seconds._value.get() == skew / SECOND


async def test_a_clock_that_is_put_right_is_well_again():
    place = Watched(own=HOUR)
    assert await place.hear()
    place.machine.off_us = 0
    assert await place.hear() == ""


async def test_clocks_are_compared_at_once_when_this_machine_s_was_set():
    place = Watched()

    async def queue_time() -> int:
        return place.machine.truth.now_us()

    watching = asyncio.create_task(place.watch.run(queue_time))
    await place.machine.truth.advance(3)
    assert place.clock.distrust == ""
    place.machine.off_us = -HOUR
    assert place.clock.distrust
    await place.machine.truth.advance(2)
    assert (place.clock.distrust, off(place.clock, place.machine)) == ("", 0)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
