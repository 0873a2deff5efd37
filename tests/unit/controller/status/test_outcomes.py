"""Outcomes that a server shows again after it went back, and those that only look as old."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

from duepoint.controller.status.outcomes import Outcomes
from duepoint.delayqueue import ledger, messages
from duepoint.runs import run
from duepoint.runs.run import RunEvent, RunState
from tests.fakes.fakeclock import FakeClock
from tests.support.terms import a_term
from tests.unit.controller.status.test_writer import running

SHARD = messages.ShardId(3)


class Stream:
    """A ledger of one shard; the test says what it holds."""

    def __init__(self) -> None:
        self.held: list[ledger.OutcomeEntry] = []

    async def start(self):
        pass

    async def close(self):
        pass

    async def wait_for_outcomes(self, timeout_seconds):
        await self.clock.sleep(timeout_seconds)
        return (SHARD,)

    async def read_outcomes(self, behind, **_named):
        first = ledger.order_of(behind.get(SHARD, ""))
        return [entry for entry in self.held if ledger.order_of(entry.id) > first]

    async def ack(self, *_of):
        pass

    async def dropped(self):
        return {}


def told(entry_id: str, name: str) -> ledger.OutcomeEntry:
    event = RunEvent(
        uid=name,
        namespace="reports",
        name=name,
        generation=1,
        slot_us=1,
        trigger="Schedule",
        state=RunState.SUCCEEDED,
        reason="Succeeded",
        at_us=2,
    )
    return ledger.OutcomeEntry(shard=SHARD, id=entry_id, outcomes=run.pack([event]))


def note(entry_id: str) -> ledger.OutcomeEntry:
    return ledger.OutcomeEntry(shard=SHARD, id=entry_id, outcomes=b"", back_us=5)


async def nothing(*_of):
    pass


def outcomes_of(stream: Stream, reporter, queue, clock: FakeClock, *, has_open=None) -> Outcomes:
    reporter = reporter or SimpleNamespace()
    reporter.states = SimpleNamespace(has_open_slots=has_open or (lambda: False))
    outcomes = Outcomes(a_term(clock, queue=queue), reporter=reporter)
    outcomes._open_slots = SimpleNamespace(compare=nothing, mend_dropped=nothing)
    return outcomes


def folding():
    """Outcomes of a stream, and the names of those that were handed on."""
    clock, stream, folded = FakeClock(), Stream(), []
    stream.clock = clock
    queue = SimpleNamespace(ledger=lambda: stream, health=SimpleNamespace(upheavals=0))
    reporter = SimpleNamespace(event=lambda event, **_: folded.append(event.name))
    outcomes = outcomes_of(stream, reporter, queue, clock)
    return clock, stream, folded, queue, outcomes


async def test_schedules_are_not_asked_for_open_slots_with_every_outcome():
    """There may be 100,000 of them."""
    clock, stream, asked = FakeClock(), Stream(), []
    stream.clock = clock
    queue = SimpleNamespace(ledger=lambda: stream, health=SimpleNamespace(upheavals=0))
    outcomes = outcomes_of(
        stream, None, queue, clock, has_open=lambda: bool(asked.append(clock.monotonic()))
    )
    async with running(clock, outcomes.run()):
        await clock.advance(3600)
    assert 1 <= len(asked) <= 6


async def test_outcomes_of_a_promoted_server_whose_clock_is_behind_are_not_taken_for_read_ones():
    clock, stream, folded, queue, outcomes = folding()
    async with running(clock, outcomes.run()):
        await clock.advance(1)
        stream.held = [told("1000-0", "first"), told("9000-0", "second")]
        await outcomes.catch_up()
        assert folded == ["first", "second"]
        queue.health.upheavals = 1
        stream.held = [told("1000-0", "first"), note("1001-0"), told("1002-0", "third")]
        await outcomes.catch_up()
    assert folded == ["first", "second", "third"]


async def test_what_was_reported_before_is_caught_up_with_however_much_is_reported_meanwhile():
    """Held slots waited for a moment in which no worker reported anything."""
    clock, stream, folded, _, outcomes = folding()
    former = [f"{number}-0" for number in range(250)]
    reported, newer = [*former], itertools.count(1000)

    async def read(*_of, count, **_named):
        await clock.sleep(0.1)
        reported.append(f"{next(newer)}-0")
        read, reported[:count] = reported[:count], []
        return [told(entry_id, entry_id) for entry_id in read]

    async with running(clock, outcomes.run()):
        await clock.advance(1)
        stream.read_outcomes = read
        catching_up = asyncio.create_task(outcomes.catch_up())
        await clock.advance(2)
        assert catching_up.done()
    assert set(former) <= set(folded)
