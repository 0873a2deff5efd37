"""Calls that meet in one turn of the loop share a round trip, and none of their troubles."""

from __future__ import annotations

import asyncio

import pytest

from duepoint import errors
from duepoint.delayqueue.wire import scripting


class Scripts:
    """Echoes the names of calls; counts the round trips."""

    def __init__(self) -> None:
        self.trips: list[list[str]] = []
        self.trouble: errors.DuepointError | None = None
        self.open = asyncio.Event()
        self.open.set()

    async def run_many(self, calls):
        self.trips.append([call.script for call in calls])
        await self.open.wait()
        if self.trouble:
            raise self.trouble
        return [
            errors.WorldChanged(call.script) if call.script == "bad" else call.script
            for call in calls
        ]


def call(name: str) -> scripting.ScriptCall:
    return scripting.ScriptCall(name, ())


@pytest.fixture
async def scripts():
    return Scripts()


@pytest.fixture
async def gathered(scripts):
    return scripting.Pipelining(scripts.run_many)


async def test_calls_of_one_turn_go_together_and_each_gets_its_own_reply(scripts, gathered):
    names = [f"s{number}" for number in range(10)]
    assert await asyncio.gather(*(gathered.run(call(name)) for name in names)) == names
    assert scripts.trips == [names]
    assert await gathered.run(call("alone")) == "alone"


async def test_a_refused_call_is_its_own_callers_trouble(gathered):
    good, bad = await asyncio.gather(
        gathered.run(call("good")), gathered.run(call("bad")), return_exceptions=True
    )
    assert good == "good"
    assert isinstance(bad, errors.WorldChanged)


async def test_a_round_trip_that_fails_is_everybodys_trouble(scripts, gathered):
    scripts.trouble = errors.QueueUnavailable("away")
    answers = await asyncio.gather(
        *(gathered.run(call("s")) for _ in range(3)), return_exceptions=True
    )
    assert [str(one) for one in answers] == ["away"] * 3
    scripts.trouble = None
    assert await gathered.run(call("s")) == "s"


@pytest.mark.parametrize("when", ["before-it-is-sent", "while-it-is-under-way"])
async def test_a_sender_that_is_cancelled_leaves_nobody_waiting(scripts, gathered, when):
    scripts.open.clear()
    sender, other = (asyncio.create_task(gathered.run(call(name))) for name in ("a", "b"))
    turns = 1 if when == "before-it-is-sent" else 5
    for _ in range(turns):
        await asyncio.sleep(0)
    sender.cancel()
    with pytest.raises(errors.QueueUnavailable):
        await other
    assert sender.cancelled() or sender.cancelling()
    scripts.open.set()
    assert await gathered.run(call("c")) == "c"
