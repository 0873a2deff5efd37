"""A target that remembers what it was fired with and answers as told.

It is a ``targets.target.Target`` and passes the conformance suite of targets: nothing is fired
after the claim's end, an attempt ends in time, cancellation leaves nothing behind. Time is the
clock's, so that a virtual clock decides when a held attempt is late.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from duepoint import clock as clocks
from duepoint.delayqueue import messages
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome, target

#: An answer, or what makes one out of the firing.
Reply = outcome.Outcome | Callable[[target.Firing], outcome.Outcome]


class NoEntries:
    """The part of a target that leaves entries to the queue: none."""

    def appends(self, action: actions.Action) -> bool:
        """No delivery is left to the queue."""
        return False

    def entries(self, firings: target.Firings, members: Sequence[bytes]) -> messages.StreamEntries:
        """Not asked for."""
        raise NotImplementedError

    def message(self, action: actions.Action) -> str:
        """Not asked for."""
        raise NotImplementedError

    def count(self, action: actions.Action, answer: outcome.Outcome, times: int) -> None:
        """Not asked for."""
        raise NotImplementedError


class RecordingTarget(NoEntries):
    """Records firings.

    Attributes:
        fired: every firing that was begun, in order.
        cancelled: those that were cancelled while held.
        checked: every check that was made, in order.
        found: what checks find; None = all is there.
    """

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._replies: deque[Reply] = deque()
        self._usual: Reply | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._begun = asyncio.Condition()
        self.fired: list[target.Firing] = []
        self.cancelled: list[target.Firing] = []
        self.checked: list[target.Firing] = []
        self.found: target.Trouble | None = None

    def reply(self, *replies: Reply) -> None:
        """Answer the next firings so, in the order in which they begin."""
        self._replies.extend(replies)

    def always_reply(self, reply: Reply) -> None:
        """Answer so whenever nothing else was asked for, in place of Delivered."""
        self._usual = reply

    def hold(self) -> None:
        """Let attempts hang until ``let_go`` or their end."""
        self._open.clear()

    def let_go(self) -> None:
        """Let held attempts answer."""
        self._open.set()

    async def wait_until_fired(self, count: int) -> list[target.Firing]:
        """The firings, once there are so many."""
        async with self._begun:
            await self._begun.wait_for(lambda: len(self.fired) >= count)
        return list(self.fired)

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """What was asked for; Retry(Timeout) where the attempt was held beyond its end."""
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        reply = self._replies.popleft() if self._replies else self._usual
        async with self._begun:
            self.fired.append(firing)
            self._begun.notify_all()
        try:
            in_time = await self._is_let_go(seconds)
        except asyncio.CancelledError:
            self.cancelled.append(firing)
            raise
        if not in_time:
            return outcome.Retry(reason=Reason.NETWORK, message="held beyond its end")
        return self._answer(firing, reply)

    async def check(self, firing: target.Firing) -> target.Trouble | None:
        """What was asked for with ``found``."""
        self.checked.append(firing)
        return self.found

    async def _is_let_go(self, seconds: float) -> bool:
        if self._open.is_set():
            return True
        waits = [
            asyncio.ensure_future(self._open.wait()),
            asyncio.ensure_future(self._clock.sleep(seconds)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return self._open.is_set()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _answer(self, firing: target.Firing, reply: Reply | None) -> outcome.Outcome:
        if callable(reply):
            return reply(firing)
        return reply or self._delivered(firing)

    def _delivered(self, firing: target.Firing) -> outcome.Delivered:
        is_job = isinstance(firing.action.target, actions.JobAction)
        name = f"{firing.name}-{firing.slot_us // 1_000_000}" if is_job else ""
        return outcome.Delivered(accepted_us=self._clock.now_us(), running=is_job, job_name=name)
