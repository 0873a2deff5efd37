"""What ends a process whose loop is stuck."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from duepoint.clock import SystemClock
from duepoint.election import elector
from tests.unit.election.leaseserver import Connection, LeaseServer
from tests.unit.election.test_elector import none_known


class Recorder(elector.Watchdog):
    """Takes the place of the end of the process."""

    def __init__(self) -> None:
        self.told: list[float] = []
        self.is_renewed = asyncio.Event()

    def guard(self, seconds: float) -> None:
        self.told.append(seconds)
        if len(self.told) == 4:
            self.is_renewed.set()

    def rest(self) -> None:
        self.told.append(0.0)


async def test_each_renewal_moves_the_deadline_on_and_the_end_of_the_term_lifts_it(monkeypatch):
    monkeypatch.setattr(elector, "RETRY_SECONDS", 0.01)
    dog = Recorder()

    async def work(_term: elector.Term) -> None:
        await asyncio.Event().wait()

    one = elector.Elector(
        Connection(LeaseServer()), SystemClock(), "a", known_epoch=none_known, watchdog=dog
    )
    running = asyncio.create_task(one.run(work))
    await dog.is_renewed.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    *renewed, last = dog.told[: dog.told.index(0.0) + 1]
    assert all(
        0 < seconds <= elector.DEADLINE_SECONDS + elector.STOP_SECONDS for seconds in renewed
    )
    assert last == 0.0


def test_a_process_whose_loop_is_stuck_ends_and_says_where():
    text = (
        "import time; from duepoint.election import elector\n"
        "dog = elector.Watchdog(); dog.guard(60); dog.rest(); dog.guard(0.2); time.sleep(90)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "most recent call first" in ended.stderr
