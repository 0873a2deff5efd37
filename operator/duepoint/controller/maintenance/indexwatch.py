"""Whether the index is still the one that we filled, and how full it is.

An emptied Redis has no layout; one that was away may have come back older than it was, and so is
one whose replica took over. Looked at every few seconds, which is also the keepalive of our
connections, and at once where another service has met such a server: until everything is compared
anew, a Schedule that was edited or deleted in the lost time runs as it was before. A server that
may forget or evict what it holds is reported here, too, and so are other installations. Raises
queue_errors.Fenced where a newer leader has been here.
"""

from __future__ import annotations

import asyncio
import itertools

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, serverhealth

LOOK_SECONDS = 8.0
#: Between two looks, also while other services, or the looks themselves, fail.
_LEAST_SECONDS = 1.0
#: Looks from one judgement of a fit server to the next; an unfit one is judged at each look.
_LOOKS_PER_JUDGEMENT = 8
#: Looks from one sign of life of this installation to the next.
_LOOKS_PER_SIGN = 4


class IndexWatch:
    """The service; one for each term of a leader."""

    def __init__(self, term: TermContext, *, layout: messages.Layout) -> None:
        self._term = term
        self._layout = layout
        self._is_unfit = True  # until the first judgement
        self._is_suspect = False
        self._upheavals = term.queue.health.upheavals
        self._asked = asyncio.Event()

    def look(self) -> None:
        """Some server may not be the one that it was: look soon."""
        self._asked.set()

    def suspect(self) -> None:
        """A server was away, or may have lost something: all is compared anew after a look."""
        self._is_suspect = True
        self._asked.set()

    async def run(self) -> None:
        """Look until cancelled."""
        for number in itertools.count(1):
            await self._term.clock.sleep(_LEAST_SECONDS)
            left_seconds = LOOK_SECONDS - _LEAST_SECONDS
            await clocks.wait_for(self._asked, left_seconds, self._term.clock)
            self._asked.clear()
            is_suspect, self._is_suspect = self._is_suspect, False
            try:
                await self._look(number, is_suspect=is_suspect)
            except errors.TryLater as trouble:
                self.suspect()
                self._term.health.unwell("queue", str(trouble))

    async def _look(self, number: int, *, is_suspect: bool) -> None:
        term, others = self._term, self._term.services
        others.others.forget()
        if await self._is_lost():
            is_suspect = True
            others.jobs.sync.late.record_lost_claims(term.clock.now_us())
        if (upheavals := term.queue.health.upheavals) != self._upheavals:
            self._upheavals, is_suspect = upheavals, True
        if is_suspect:
            await self._open()
        await self._judge(number)
        await self._stay(number)
        if is_suspect:
            term.health.well("queue")
            others.sets.request()
            others.sweeper.suspect()
            others.resync.request()

    async def _judge(self, look: int) -> None:
        """Whether the server is fit for what it holds; it is used all the same."""
        if self._is_unfit or look % _LOOKS_PER_JUDGEMENT == 0:
            problems = await self._term.queue.health.problems(fills=True)
            self._is_unfit = bool(problems)
            serverhealth.report(problems, self._term.health)

    async def _stay(self, look: int) -> None:
        """No other installation takes the index for one that was left behind."""
        if (
            self._term.installation
            and look % _LOOKS_PER_SIGN == 0
            and not await self._term.queue.membership.stay(self._term.installation)
        ):
            raise queue_errors.LayoutChanged("another installation has opened the index")

    async def _is_lost(self) -> bool:
        """The index is gone, or shards of it with the server that had them."""
        missing = await self._term.queue.health.keepalive()
        if missing:
            telemetry.logger.warning("a server was emptied; its shards are made again")
        try:
            found = await self._term.queue.layouts.read()
        except queue_errors.Uninitialised:
            telemetry.logger.warning("the index is gone; it is made again and filled")
            return True
        self._adopt(found)
        return bool(missing)

    def _adopt(self, found: messages.Layout) -> None:
        """Our own term cuts the index anew; one that is older, or cut otherwise, is not ours."""
        known = self._layout
        if found.number < known.number or (
            found.number == known.number and found.shards != known.shards
        ):
            raise queue_errors.LayoutChanged("the index was made with another layout")
        self._layout = found
        self._term.services.partitioner.look()

    async def _open(self) -> None:
        """Every shard exists: a single emptied node has lost only its own.

        A server that began anew may have lost what was set on it, too.
        """
        serverhealth.report(await self._term.queue.health.problems(fills=True), self._term.health)
        self._adopt(
            await self._term.queue.membership.open(
                self._layout.shards,
                self._term.epoch,
                noted=self._layout,
                by=self._term.installation,
            )
        )


GAUGES_SECONDS = 10.0
_MOST_SECONDS = 3.0
_GAUGES = (
    telemetry.queue_points,
    telemetry.queue_due_points,
    telemetry.oldest_due_seconds,
    telemetry.dead_entries,
    telemetry.circuits_open,
)


class QueueGauges:
    """What the queue holds, as gauges of the active operator; one for each term of a leader.

    Nothing is asked of Redis between scrapes, so that an idle queue stays idle; however many
    scrape, it is asked once in ten seconds, and never for longer than a scrape can wait. Where it
    does not answer, the gauges keep what was seen last. At the end of a term they are zero again:
    the next leader sets them.
    """

    def __init__(self, term: TermContext) -> None:
        self._term = term
        self._asked_at: float | None = None

    async def run(self) -> None:
        """Answer scrapes until cancelled."""
        telemetry.before_scrape.add(self.refresh)
        try:
            await asyncio.Event().wait()
        finally:
            telemetry.before_scrape.discard(self.refresh)
            for gauge in _GAUGES:
                gauge.set(0)

    async def refresh(self) -> None:
        """Look again, unless that was done a moment ago."""
        now = self._term.clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < GAUGES_SECONDS:
            return
        self._asked_at = now
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                totals = await self._term.queue.counts.totals()
                known = await self._term.queue.circuits.read()
        except (TimeoutError, errors.TryLater, errors.WorldChanged):
            return
        telemetry.queue_points.set(totals.points)
        telemetry.queue_due_points.set(totals.due)
        telemetry.oldest_due_seconds.set(totals.lag_us / 1_000_000)
        telemetry.dead_entries.set(totals.dead)
        telemetry.circuits_open.set(len(known.hosts))
