"""The shards' ``runs`` streams, read by one process and passed to the reporter.

An entry is acknowledged when the statuses that its events changed have been written, so a crash
loses nothing: the next leader reads it again, as one that was read before. Before the first
entry, the open slots in the queue are read, because their events may have been acknowledged long
ago. A status needs its object, so reading begins once a complete list has been seen; the events of
an unknown uid then belong to a Schedule that is gone. With too many entries outstanding, reading
waits for the writer.

The outcomes of a lost claim count among the runs alone: its slots are other workers' to end. A note
that a server went back stands in its place among the outcomes; entries that the server then shows
again were passed on before and are only acknowledged.
"""

from __future__ import annotations

import asyncio
import collections
import functools
from collections.abc import Iterator

import msgspec

from duepoint import errors, faults, services, telemetry
from duepoint.controller.status.openslots import OpenSlotReader
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import Acknowledgement, TermContext
from duepoint.delayqueue import ledger, messages
from duepoint.faults import FaultPoint
from duepoint.runs import run as runs

#: Entries read and not acknowledged, at most; each carries up to some hundred events.
_MOST_OUTSTANDING = 5_000
_BATCH = 100
#: Outcomes are read this long after the first one was announced: slots that are due together end
#: together, statuses may be two seconds old, and the workers are busy at just that moment.
GATHER_SECONDS = 0.1
#: A look at least this often; what is added wakes us at once.
_LOOK_SECONDS = 60.0
_ACK_SECONDS = 0.2
#: While slots are open they are compared with the queue this often: an end that was lost with a
#: full stream must not hold a watermark for ever. So it is asked, too, whether any was dropped.
_COMPARE_SECONDS = 600.0

_EntryKey = tuple[messages.ShardId, str]

_RUNS = runs.ENDED | {runs.RunState.RUNNING, runs.RunState.REPLACING}


class Outcomes:
    """The service; one for each term of a leader."""

    def __init__(
        self,
        term: TermContext,
        *,
        reporter: Reporter,
    ) -> None:
        self._ledger = term.queue.ledger()
        self._open_slots = OpenSlotReader(term, reporter=reporter)
        self._compared_at = 0.0
        self._reporter = reporter
        self._term = term
        self._reading = asyncio.Lock()
        self._has_begun = asyncio.Event()
        self._outstanding: set[_EntryKey] = set()
        #: The newest entry of each shard that was read since a server went back last.
        self._read_through: dict[messages.ShardId, str] = {}
        self._upheavals = term.queue.health.upheavals
        #: The newest entry of each shard that was handed on, now and when a server went back last.
        self._newest: dict[messages.ShardId, ledger.EntryId] = {}
        self._before_upheaval: dict[messages.ShardId, ledger.EntryId] = {}
        #: Notes that a shard went back, since the last upheaval: what stands behind one is new.
        self._notes: dict[messages.ShardId, ledger.EntryId] = {}
        self._done: list[ledger.OutcomeEntry] = []
        self._some_done = asyncio.Event()

    async def run(self) -> None:
        """Read and acknowledge until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._acknowledge())
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
            await self._compare(with_queue=True)
            await self._read_once(None)
            self._has_begun.set()
            while True:
                shards = await self._ledger.wait_for_outcomes(_LOOK_SECONDS)
                self._term.health.well("outcomes")
                if shards:
                    await self._term.clock.sleep(GATHER_SECONDS)
                    await self._read_all(shards)
                if self._term.clock.monotonic() - self._compared_at >= _COMPARE_SECONDS:
                    # Where no slot is open the queue is not asked: there may be 100,000 Schedules.
                    await self._compare(with_queue=self._reporter.states.has_open_slots())
        finally:
            await self._ledger.close()

    async def catch_up(self) -> None:
        """Every outcome up to the call has been passed on; raises QueueUnavailable.

        However much is outstanding: who waits for this may be the one that settles it. And however
        much is reported meanwhile: a shard that gave less than it was asked for has no older
        outcome.
        """
        await self._has_begun.wait()
        left = await self._read_once(None)
        while left:
            left = await self._read_once(left)

    async def _read_all(self, shards: tuple[messages.ShardId, ...]) -> None:
        await self._wait_for_room()
        while shards := await self._read_once(shards):
            await self._wait_for_room()

    async def _read_once(
        self, shards: tuple[messages.ShardId, ...] | None
    ) -> tuple[messages.ShardId, ...]:
        """The shards that may have more.

        One reader at a time: what one reads is passed on before the next finds nothing new.
        """
        async with self._reading:
            entries = await self._ledger.read_outcomes(
                self._read_through, shards=shards, count=_BATCH
            )
            while self._notice_upheaval():
                entries = await self._ledger.read_outcomes({}, shards=shards, count=_BATCH)
            if entries:
                await faults.reach(FaultPoint.AFTER_OUTCOMES_READ)
            self._take(entries)
            given = collections.Counter(entry.shard for entry in entries)
            return tuple(shard for shard, count in given.items() if count >= _BATCH)

    async def _wait_for_room(self) -> None:
        while len(self._outstanding) >= _MOST_OUTSTANDING:
            self._some_done.clear()
            await self._some_done.wait()

    async def _compare(self, *, with_queue: bool) -> None:
        if with_queue:
            await self._open_slots.compare()
        await self._open_slots.mend_dropped(self._ledger)
        self._compared_at = self._term.clock.monotonic()

    def _notice_upheaval(self) -> bool:
        """Whether a server may have gone back: all that the shards hold is read once more."""
        upheavals = self._term.queue.health.upheavals
        if self._upheavals == upheavals:
            return False
        self._upheavals, self._before_upheaval = upheavals, dict(self._newest)
        self._notes.clear()
        self._read_through.clear()
        return True

    def _take(self, entries: list[ledger.OutcomeEntry]) -> None:
        for entry in entries:
            self._read_through[entry.shard] = entry.id
            key = (entry.shard, entry.id)
            if key in self._outstanding:
                continue  # ours, folded already; its statuses wait
            self._outstanding.add(key)
            ack = Acknowledgement(when_done=functools.partial(self._finished, entry))
            if not self._was_handed_on(entry):
                self._hand_on(entry, ack=ack)
            ack.settle()

    def _was_handed_on(self, entry: ledger.OutcomeEntry) -> bool:
        """Whether this shows again what was read before the server went back."""
        entry_id = ledger.order_of(entry.id)
        before = self._before_upheaval.get(entry.shard)
        self._newest[entry.shard] = max(entry_id, self._newest.get(entry.shard, entry_id))
        if entry.back_us:
            self._notes.setdefault(entry.shard, entry_id)
        if before is None or entry_id > before:
            return False
        # Ids are times: those of a promoted server whose clock is behind look old for a while.
        noted = self._notes.get(entry.shard)
        return noted is None or entry_id < noted

    def _hand_on(self, entry: ledger.OutcomeEntry, *, ack: Acknowledgement) -> None:
        replayed = entry.was_read
        if entry.back_us:
            self._term.services.fallbacks.look()
            self._term.services.index.look()
            return
        for event in _events(entry):
            if not entry.is_lost:
                self._reporter.event(event, replayed=replayed, ack=ack)
            elif event.state in _RUNS:
                run_only = msgspec.structs.replace(event, settled_us=0, completed=False)
                self._reporter.event(run_only, replayed=replayed, ack=ack, is_lost=True)

    def _finished(self, entry: ledger.OutcomeEntry) -> None:
        self._done.append(entry)
        self._some_done.set()

    async def _acknowledge(self) -> None:
        """Acknowledge in bundles; what cannot be now is kept and repeated."""
        waits = _waits()
        while True:
            if not self._done:
                self._some_done.clear()
                await self._some_done.wait()
            await self._term.clock.sleep(_ACK_SECONDS)
            done, self._done = self._done, []
            try:
                await faults.reach(FaultPoint.BEFORE_OUTCOMES_ACKNOWLEDGED)
                await self._ledger.ack(done)
                await faults.reach(FaultPoint.AFTER_OUTCOMES_ACKNOWLEDGED)
            except errors.TryLater:
                self._done = done + self._done
                await self._term.clock.sleep(next(waits))
                continue
            except errors.WorldChanged:
                pass  # the index was made anew, the entries went with the old one
            waits = _waits()
            self._outstanding.difference_update((entry.shard, entry.id) for entry in done)


def _events(entry: ledger.OutcomeEntry) -> list[runs.RunEvent]:
    try:
        return runs.unpack(entry.outcomes)
    except msgspec.DecodeError as error:
        telemetry.logger.error(
            "outcomes cannot be read", shard=entry.shard, entry=entry.id, error=str(error)
        )
        return []


def _waits() -> Iterator[float]:
    return services.backoff(first_seconds=0.2, most_seconds=5.0)
