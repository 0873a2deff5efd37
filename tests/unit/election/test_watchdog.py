"""The thread that ends a process whose loop is stuck."""

from __future__ import annotations

import asyncio
import threading
import time

from duepoint.clock import SystemClock
from duepoint.election import elector
from duepoint.election import term as terms
from tests.unit.election.leaseserver import Connection, LeaseServer


class Exit:
    """Takes the place of the end of the process."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.happened = threading.Event()

    def __call__(self, why: str) -> None:
        self.reasons.append(why)
        self.happened.set()


def test_a_deadline_moved_on_or_lifted_ends_nothing():
    now = 0.0
    leave = Exit()
    dog = terms.Watchdog(leave, monotonic=lambda: now)
    dog.guard(10.0)
    dog.guard(20.0)
    now = 15.0
    dog.guard(25.0)
    dog.rest()
    now = 100.0
    dog.close()
    assert not leave.reasons


def test_a_leader_whose_loop_is_blocked_leaves_the_process_before_its_lease_ends():
    timing = terms.LeaseTiming(
        lease=60.0, renew_deadline=0.3, stop=0.1, retry=0.05, look=0.05, call=5.0, release=0.1
    )
    leave = Exit()
    blocked: list[float] = []
    unblocked = asyncio.Event()

    async def work(term: terms.Term) -> None:
        began = time.monotonic()
        leave.happened.wait(90)  # blocks the loop on purpose: this is the fault
        blocked.append(time.monotonic() - began)
        unblocked.set()
        assert not term.is_held()

    async def main() -> None:
        dog = terms.Watchdog(leave)
        one = elector.Elector(
            Connection(LeaseServer()), SystemClock(), "a", timing=timing, watchdog=dog
        )
        running = asyncio.create_task(one.run(work))
        await unblocked.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        dog.close()

    asyncio.run(main())
    assert leave.reasons
    assert 0.3 < blocked[0] < timing.lease
