"""The shards' ``runs`` streams, read by one process and passed to the reporter.

What its events have changed is stored, in the step that removes the entry (``records``). Before the
first entry, the open slots in the queue are read, because their events may have been removed long
ago. A status needs its object, so reading begins once a complete list has been seen; the events of
an unknown uid then belong to a Schedule that is gone.

The outcomes of a lost claim count among the runs alone: its slots are other workers' to end. A note
that a server went back stands in its place among the outcomes; entries that the server then shows
again were passed on before.

The outcome streams report a slot that is put off once. A reader that starts in the middle (a new
leader, a broken subscription) first compares: it learns which slots are open, so that no status
passes a slot without listing it. That costs one range command per shard where nothing is open.

A shard keeps a bounded number of bytes of outcomes. Where no operator reads for long, the oldest
are dropped: the statuses miss their counters and last runs, which a log line and a metric report.
The watermark must not suffer: too high it would lose slots with the next loss of the index, too low
it would run them twice. The index knows better: a chain stands at the first slot that was never
handed over, so every older one has ended or is open, and the open ones are in the index. So the
chains are read first and the open slots after them.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import math
from collections.abc import Collection, Iterator, Mapping

import msgspec

from duepoint import errors, faults, services, telemetry
from duepoint.controller import inventory, plan
from duepoint.controller.status.records import RunRecords
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import ledger as ledgers
from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import occurrences
from duepoint.faults import FaultPoint
from duepoint.runs import run as runs
from duepoint.runs.watermark import OpenSlot
from duepoint.schedules import points
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.points import PointKind

#: Entries of a shard that are counted together; each carries up to some hundred events.
_BATCH = 10
#: Outcomes are read this long after the first one was announced: slots that are due together end
#: together, statuses may be two seconds old, and the workers are busy at just that moment.
GATHER_SECONDS = 0.1
#: A look at least this often; what is added wakes us at once.
_LOOK_SECONDS = 60.0
#: While slots are open they are compared with the queue this often: an end that was lost with a
#: full stream must not hold a watermark for ever. So it is asked, too, whether any was dropped.
_COMPARE_SECONDS = 600.0

_RUNS = runs.ENDED | {runs.RunState.RUNNING, runs.RunState.REPLACING}

_ID_LENGTH = 8
_KINDS = frozenset({PointKind.RETRY, PointKind.PLANNED, PointKind.QUEUED})
#: A Schedule whose watermark is older than its chain allows: uid, newest slot, no slot is left.
_Passed = tuple[str, int, bool]


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
        self._compared_at = 0.0
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

    async def _compare(self, *, with_queue: bool) -> None:
        if with_queue:
            await self._compare_open()
        await self._mend_dropped()
        self._compared_at = self._term.clock.monotonic()

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

    # -- open slots ------------------------------------------------------------------------------

    async def _compare_open(self) -> None:
        """The reporter knows every slot that is open now; raises QueueUnavailable."""
        began_us = self._term.clock.now_us()
        held: dict[str, list[OpenSlot]] = {}
        doubted = await self._shards_in_doubt()
        old: list[tuple[messages.ShardId, str, OpenSlot]] = []
        kept = inventory.occurrences(self._term.queue, _KINDS)
        async for shard, occurrence, definition in kept:
            if plan.is_superseded(occurrence, definition):
                continue
            slot = _open_slot(occurrence, definition, began_us)
            if self._is_old(occurrence, definition):
                old.append((shard, definition.uid, slot))
            else:
                held.setdefault(definition.uid, []).append(slot)
        # Once more: a server may have gone back after the first question and before it was read.
        doubted |= await self._shards_in_doubt(every=True) if old else frozenset()
        for shard, uid, slot in old:
            if shard not in doubted:
                held.setdefault(uid, []).append(slot)
        self._reporter.compare_open(held, began_us)

    async def _shards_in_doubt(self, *, every: bool = False) -> frozenset[messages.ShardId]:
        doubts = await self._term.queue.fallbacks.doubts(every=every)
        return frozenset(doubt.shard for doubt in doubts)

    def _is_old(self, occurrence: occurrences.StoredOccurrence, known: Definition) -> bool:
        """Whether the slot has ended by the published status.

        Where its server went back, that was to before the end of the slot. If it counted as open,
        the status would soon say so, and the slot would run once more.
        """
        is_replayed = occurrence.record.replayed_us > 0
        return not is_replayed and self._reporter.states.is_published_as_ended(
            known.uid, occurrence.slot_us
        )

    # -- dropped outcomes ------------------------------------------------------------------------

    async def _mend_dropped(self) -> None:
        """Where outcomes were dropped, every watermark is what the index says.

        Raises QueueUnavailable.
        """
        dropped = await self._ledger.dropped()
        if not dropped:
            return
        telemetry.logger.warning(
            "outcomes were dropped unread; counters and last runs of statuses lack them",
            entries=sum(dropped.values()),
            shards=len(dropped),
        )
        passed = await self._passed(dropped)
        await self._compare_open()
        for uid, slot_us, completed in passed:
            self._reporter.settled_through(uid, slot_us, completed=completed)
        await self._ledger.forget_dropped(dropped)
        telemetry.outcomes_dropped_total.inc(sum(dropped.values()))

    async def _passed(self, shards: Collection[messages.ShardId]) -> list[_Passed]:
        passed: list[_Passed] = []
        try:
            for shard in shards:
                stored: dict[bytes, float | None] = {}
                async for chains in self._term.queue.definitions.chains(shard):
                    stored.update(chains)
                ids = [points.ScheduleId(chain[:_ID_LENGTH]) for chain in stored]
                for first in range(0, len(ids), inventory.CHUNK):
                    some = ids[first : first + inventory.CHUNK]
                    passed += await self._passed_of(shard, some, stored)
                    await self._term.clock.sleep(0)  # firing and statuses go on between chunks
        except queue_errors.LayoutChanged as change:
            raise inventory.resharded(change) from change
        return passed

    async def _passed_of(
        self,
        shard: messages.ShardId,
        ids: Collection[points.ScheduleId],
        chains: Mapping[bytes, float | None],
    ) -> list[_Passed]:
        known = await self._term.queue.definitions.read_definitions(shard, ids)
        passed = []
        for definition in known.values():
            chain = definition.id + definition.timing_version
            score = chains.get(chain, math.inf)  # edited meanwhile: it belongs to another rule
            if score is not None and score >= points.DUE_LIMIT_US:
                continue  # its claim reports
            slot_us = self._through_us(definition, score)
            completed = definition.state is State.COMPLETED
            if completed or slot_us > self._reporter.states.watermark_us(definition.uid):
                passed.append((definition.uid, slot_us, completed))
        return passed

    def _through_us(self, known: Definition, due_us: float | None) -> int:
        """The newest slot that was handed over; 0 = none that is known."""
        if due_us is None and known.state is not State.COMPLETED:
            return 0
        through_us = self._term.clock.now_us() if due_us is None else int(due_us) - 1
        try:
            newest_us = plan.slots_of(known).newest_due(through_us)
        except errors.InvalidExpression:
            return 0  # stored by another version
        return newest_us if newest_us is not None and newest_us > known.not_before_us else 0


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


def _open_slot(
    occurrence: occurrences.StoredOccurrence, known: Definition, now_us: int
) -> OpenSlot:
    record = occurrence.record
    return OpenSlot(
        slot_us=occurrence.slot_us,
        due_us=record.first_try_us or occurrence.slot_us,
        told_us=now_us,
        reason=record.last_error,
        message=record.last_cause,
        # A Job's slot starts and ends with the creation of the Job.
        started=record.first_try_us > 0 and not known.rule.whole_seconds,
    )
