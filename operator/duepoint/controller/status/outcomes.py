"""The shards' ``runs`` streams, read by one process and passed to the reporter.

What its events have changed is stored, in the step that removes the entry (``records``). A status
needs its object, so reading begins once a complete list has been seen; the events of an unknown uid
then belong to a Schedule that is gone.

The outcomes of a lost claim count among the runs alone: its slots are other workers' to end. A note
that a server went back stands in its place among the outcomes; entries that the server then shows
again were passed on before.

A shard keeps a bounded number of bytes of outcomes. Where no operator reads for long, the oldest
are dropped: the statuses miss their counters and last runs, which a log line and a metric report.
Watermark and open slots do not depend on them (``openslots``).
"""

from __future__ import annotations

import asyncio
import collections
import itertools
from collections.abc import Iterator

import msgspec

from duepoint import errors, faults, services, telemetry
from duepoint.controller.status.records import RunRecords
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import TermContext
from duepoint.delayqueue import ledger as ledgers
from duepoint.delayqueue import messages
from duepoint.faults import FaultPoint
from duepoint.runs import run as runs

#: Entries of a shard that are counted together; each carries up to some hundred events.
_BATCH = 10
#: Outcomes are read this long after the first one was announced: slots that are due together end
#: together, statuses may be two seconds old, and the workers are busy at just that moment.
GATHER_SECONDS = 0.1
#: A look at least this often; what is added wakes us at once.
_LOOK_SECONDS = 60.0

_RUNS = runs.ENDED | {runs.RunState.RUNNING, runs.RunState.REPLACING}


class Outcomes:
    """The service; one for each term of a leader."""

    def __init__(
        self,
        term: TermContext,
        *,
        reporter: Reporter,
        records: RunRecords,
        ledger: ledgers.Ledger,
    ) -> None:
        self._ledger = ledger
        self._records = records
        self._reporter = reporter
        self._term = term
        self._has_begun = asyncio.Event()
        self._upheavals = term.queue.health.upheavals
        #: The newest entry of each shard that was handed on, now and when a server went back last.
        self._newest: dict[messages.ShardId, ledgers.EntryId] = {}
        self._before_upheaval: dict[messages.ShardId, ledgers.EntryId] = {}
        #: Notes that a shard went back, since the last upheaval: what stands behind one is new.
        self._notes: dict[messages.ShardId, ledgers.EntryId] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._records.run())
            waits = _waits()
            while True:
                try:
                    await self._read()
                except errors.TryLater as trouble:
                    self._term.health.unwell("outcomes", str(trouble))
                    await self._term.clock.sleep(trouble.retry_after_seconds or next(waits))
                else:
                    waits = _waits()

    async def _read(self) -> None:
        """One subscription's life: first what was read before, then what is new."""
        try:
            await self._ledger.start()
            await self._report_dropped()
            await self._read_once(None)
            self._has_begun.set()
            while True:
                shards = await self._ledger.wait_for_outcomes(_LOOK_SECONDS)
                self._term.health.well("outcomes")
                if shards:
                    await self._term.clock.sleep(GATHER_SECONDS)
                    await self._read_all(shards)
        finally:
            await self._ledger.close()

    async def catch_up(self) -> None:
        """Every outcome up to the call is counted; raises QueueUnavailable.

        However much is reported meanwhile: a shard that gave less than it was asked for has no
        older outcome.
        """
        await self._has_begun.wait()
        await self._read_all(None)

    async def _read_all(self, shards: tuple[messages.ShardId, ...] | None) -> None:
        left = await self._read_once(shards)
        while left:
            left = await self._read_once(left)

    async def _read_once(
        self, shards: tuple[messages.ShardId, ...] | None
    ) -> tuple[messages.ShardId, ...]:
        """The shards that may have more.

        One reader at a time: what one reads is passed on before the next finds nothing new.
        """
        async with self._records.turn:
            await self._records.catch_up()
            entries = await self._ledger.read_outcomes(shards=shards, count=_BATCH)
            self._notice_upheaval()
            if entries:
                await faults.reach(FaultPoint.AFTER_OUTCOMES_READ)
            for shard, listed in itertools.groupby(entries, key=lambda entry: entry.shard):
                await self._take(shard, list(listed))
            given = collections.Counter(entry.shard for entry in entries)
            return tuple(shard for shard, count in given.items() if count >= _BATCH)

    async def _report_dropped(self) -> None:
        """Say how many entries no operator has read for so long that they were dropped."""
        if dropped := await self._ledger.dropped():
            telemetry.logger.warning(
                "outcomes were dropped unread; counters and last runs of statuses lack them",
                entries=sum(dropped.values()),
                shards=len(dropped),
            )
            await self._ledger.forget_dropped(dropped)
            telemetry.outcomes_dropped_total.inc(sum(dropped.values()))

    def _notice_upheaval(self) -> None:
        """A server may have gone back: then shards show again what was counted."""
        upheavals = self._term.queue.health.upheavals
        if self._upheavals != upheavals:
            self._upheavals, self._before_upheaval = upheavals, dict(self._newest)
            self._notes.clear()
            self._records.lost()

    async def _take(self, shard: messages.ShardId, entries: list[ledgers.OutcomeEntry]) -> None:
        """Count what is new of a shard, and store it before anything else is counted."""
        events: list[runs.RunEvent] = []
        for entry in entries:
            if not self._was_handed_on(entry):
                events += self._hand_on(entry)
        await self._records.counted(shard, entries[-1].id, events)

    def _was_handed_on(self, entry: ledgers.OutcomeEntry) -> bool:
        """Whether this shows again what was read before the server went back."""
        entry_id = ledgers.order_of(entry.id)
        before = self._before_upheaval.get(entry.shard)
        self._newest[entry.shard] = max(entry_id, self._newest.get(entry.shard, entry_id))
        if entry.back_us:
            self._notes.setdefault(entry.shard, entry_id)
        if before is None or entry_id > before:
            return False
        # Ids are times: those of a promoted server whose clock is behind look old for a while.
        noted = self._notes.get(entry.shard)
        return noted is None or entry_id < noted

    def _hand_on(self, entry: ledgers.OutcomeEntry) -> list[runs.RunEvent]:
        """What the entry says."""
        if entry.back_us:
            self._term.services.resync.request()
            self._term.services.index.look()
            return []
        events = _events(entry)
        for event in events:
            if not entry.is_lost:
                self._reporter.event(event, by_queue=True)
            elif event.state in _RUNS:
                run_only = msgspec.structs.replace(event, settled_us=0, completed=False)
                self._reporter.event(run_only, by_queue=True, is_lost=True)
        return events


def _events(entry: ledgers.OutcomeEntry) -> list[runs.RunEvent]:
    try:
        return runs.unpack(entry.outcomes)
    except msgspec.DecodeError as error:
        telemetry.logger.error(
            "outcomes cannot be read", shard=entry.shard, entry=entry.id, error=str(error)
        )
        return []


def _waits() -> Iterator[float]:
    return services.backoff(first_seconds=0.2, most_seconds=5.0)
