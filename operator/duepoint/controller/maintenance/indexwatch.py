"""The watch of the index: checks that it is still the one that we filled, sweeps and measures it.

An emptied Redis has no layout. One that was unavailable may have come back with older data, and so
may one whose replica took over. The check runs every few seconds, which also keeps our connections
alive, and at once if another service has met such a server: until everything is compared again, a
Schedule whose edit or deletion was lost runs as it was before. The check also reports a server that
may lose or evict data, and other installations. Raises queue_errors.Fenced if there is a newer
leader.
"""

from __future__ import annotations

import asyncio

from duepoint import errors, telemetry
from duepoint.controller import plan
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, serverhealth, sharding
from duepoint.schedules.definition import Definition

_CHECK_SECONDS = 8.0
#: The least time between two checks, even while other services, or the checks themselves, fail.
_LEAST_SECONDS = 1.0
#: Every eighth look at the layout is a sign of life of this installation, too.
_LOOKS_PER_SIGN = 8
SWEEP_PART = "sweep"
#: The share of the time that a sweep may take.
_SWEEP_DUTY = 0.05


class IndexWatch:
    """Checks, refills and sweeps the index during one term of a leader."""

    #: The wait from the end of a sweep to the next.
    sweep_seconds = 3_600.0

    def __init__(self, term: TermContext, *, layout: messages.Layout) -> None:
        self._term = term
        self._layout = layout
        self._check_count = 0
        self._is_suspect = False
        self._upheavals = term.queue.health.upheavals
        self._check_requested = asyncio.Event()
        self._sweep_requested = asyncio.Event()
        self._is_sweep_due = True

    def suspect(self) -> None:
        """Request a check and a comparison: a server was unavailable or may have lost data."""
        self._is_suspect = True
        self._check_requested.set()

    def compared(self) -> None:
        """Start the sweep that is due after a suspected loss: all objects have been compared."""
        if self._is_sweep_due:
            self._is_sweep_due = False
            self._sweep_requested.set()

    async def run(self) -> None:
        """Check until cancelled."""
        await self._term.repeat(
            "queue",
            self._check_after_pause,
            "the index cannot be checked",
            asked=self._check_requested,
            every_seconds=_CHECK_SECONDS - _LEAST_SECONDS,
            most_seconds=_LEAST_SECONDS,
        )

    async def _check_after_pause(self) -> None:
        await self._term.clock.sleep(_LEAST_SECONDS)
        self._check_count += 1
        is_suspect, self._is_suspect = self._is_suspect, False
        try:
            await self._check(is_suspect=is_suspect)
        except errors.TryLater:
            self._is_suspect = True
            raise

    async def _check(self, *, is_suspect: bool) -> None:
        term, services = self._term, self._term.services
        services.others.forget()
        if await self._has_lost_shards():
            is_suspect = True
            services.jobs.late.record_lost_claims(term.clock.now_us())
        if (upheavals := term.queue.health.upheavals) != self._upheavals:
            self._upheavals, is_suspect = upheavals, True
        if is_suspect:  # create missing shards: a single emptied node has lost only its own
            known, by = self._layout, term.installation
            opening = term.queue.membership.open(known.shards, term.epoch, noted=known, by=by)
            self._adopt(await opening)
        # Report servers whose settings risk losing data; they are used all the same.
        look = term.queue.health.problems if is_suspect else term.queue.health.review
        serverhealth.report(await look(fills=True), term.health)
        if is_suspect:
            services.sets.request()
            self._is_sweep_due = True
            services.resync.request()

    async def _has_lost_shards(self) -> bool:
        """Read and adopt the layout; return whether the index, or shards of a server, are gone."""
        missing = await self._term.queue.health.keepalive()
        if missing:
            telemetry.logger.warning("a server was emptied; creating its shards again")
        try:
            found = await self._read_layout()
        except queue_errors.Uninitialised:
            telemetry.logger.warning("the index is gone; creating and filling it again")
            return True
        self._adopt(found)
        return bool(missing)

    async def _read_layout(self) -> messages.Layout:
        """Read the layout; every few checks, also record in it that this installation is alive."""
        queue, by = self._term.queue, self._term.installation
        if not by or self._check_count % _LOOKS_PER_SIGN:
            return await queue.layouts.read()
        if (found := await queue.membership.stay(by)) is None:
            raise queue_errors.LayoutChanged("another installation has opened the index")
        return found

    def _adopt(self, found: messages.Layout) -> None:
        """Adopt a layout that our own term may have changed; raise if it is older or foreign."""
        known = self._layout
        if found.number < known.number or (
            found.number == known.number and found.shards != known.shards
        ):
            raise queue_errors.LayoutChanged("the index was made with another layout")
        self._layout = found
        self._term.services.partitioner.check_layout()

    # -- sweeps ----------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Sweep every hour until cancelled, from the first comparison on; raises Fenced.

        The due time of a lost chain follows from the watermark of its Schedule. A sweep visits
        one shard after the other and takes at most a twentieth of the time; see
        ``delayqueue.repair.sweeper``. Redis gets no commands between sweeps.
        """
        await self._sweep_requested.wait()
        await self._term.repeat(
            SWEEP_PART,
            self._sweep_shards,
            "the index cannot be swept",
            asked=self._sweep_requested,
            every_seconds=self.sweep_seconds,
        )

    async def _sweep_shards(self) -> None:
        clock = self._term.clock
        for shard in sharding.own_shards(self._term.queue.layouts.known()):
            sweep = self._term.queue.sweeper.sweep(shard, self._term.epoch, due_of=self._due_us)
            began = clock.monotonic()
            try:
                async for swept in sweep:
                    if swept.armed or swept.blobs or swept.texts:
                        telemetry.logger.warning(
                            "lost chains are armed again, or unused blobs and texts removed",
                            shard=shard,
                            armed=swept.armed,
                            blobs=swept.blobs,
                            texts=swept.texts,
                        )
                    await clock.sleep((clock.monotonic() - began) * (1 / _SWEEP_DUTY - 1))
                    began = clock.monotonic()
            except (errors.Bug, queue_errors.Damaged) as damage:
                telemetry.logger.error("shard cannot be swept", shard=shard, error=str(damage))
            except errors.TryLater:
                self.suspect()  # this shard alone may be gone
                raise

    def _due_us(self, known: Definition) -> int | None:
        state = self._term.services.states.get(known.uid)
        try:
            return plan.chain_due_us(known, 0 if state is None else state.runs().settled_us)
        except errors.InvalidExpression:
            return None  # stored by another version; the resync applies the object anew


_GAUGES_SECONDS = 10.0
_READ_TIMEOUT_SECONDS = 3.0
_GAUGES = (
    telemetry.queue_points,
    telemetry.queue_due_points,
    telemetry.oldest_due_seconds,
    telemetry.dead_entries,
    telemetry.circuits_open,
)


async def export_gauges(term: TermContext) -> None:
    """Export gauges of the queue's contents until cancelled, whenever they are scraped.

    Redis gets no commands between scrapes, so that an idle queue stays idle. However many scrapers
    there are, Redis is read at most once in ten seconds, and never for longer than a scrape can
    wait. If Redis does not answer, the gauges keep their last values. At the end of a term they are
    set to zero: the next leader sets them.
    """
    read_at = float("-inf")

    async def refresh() -> None:
        nonlocal read_at
        now = term.clock.monotonic()
        if now - read_at < _GAUGES_SECONDS:
            return
        read_at = now
        try:
            async with asyncio.timeout(_READ_TIMEOUT_SECONDS):
                totals = await term.queue.inspection.totals()
                known = await term.queue.circuits.read()
        except (TimeoutError, errors.TryLater, errors.WorldChanged):
            return
        telemetry.queue_points.set(totals.points)
        telemetry.queue_due_points.set(totals.due)
        telemetry.oldest_due_seconds.set(totals.lag_us / 1_000_000)
        telemetry.dead_entries.set(totals.dead)
        telemetry.circuits_open.set(len(known.hosts))

    telemetry.before_scrape.add(refresh)
    try:
        await asyncio.Event().wait()
    finally:
        telemetry.before_scrape.discard(refresh)
        for gauge in _GAUGES:
            gauge.set(0)
