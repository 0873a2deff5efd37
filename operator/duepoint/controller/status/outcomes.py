"""The reader of outcomes: reads the shards' ``runs`` streams, and records the counts in the ledger.

The reader passes each outcome to the reporter. Then it stores the new summary and marks the entry
as counted in one step (``delayqueue.ledger``), so each outcome counts once, whenever a leader dies;
no status shows it before. The next leader sees changes by Jobs, edits and time again anyway. Of the
ledger's record and the status, the one that has counted more is newer. A record is removed when a
status shows it. If Redis loses the ledger, the statuses still have nearly all of it, and this
process stores again what it knows beyond them. A status needs its object, so reading begins after a
complete list; events of an unknown uid then belong to a deleted Schedule.

The outcomes of a lost claim count only among the runs: another worker ends its slots. If a server
went back, an entry among the outcomes says so, and the server may show entries again; the summary
of each Schedule recognises the newest slots that it has counted.

A shard keeps a bounded number of bytes of outcomes. If no operator reads them for long, the oldest
are dropped: the statuses lack their counts and last runs, and a log line and a metric say so. The
watermark and the open slots do not depend on them (``folding``).
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools

import msgspec

from duepoint import errors, telemetry
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import ledger as ledgers
from duepoint.delayqueue import messages
from duepoint.runs import run as runs
from duepoint.runs import summary as summaries
from duepoint.runs.run import RunEvent

#: Entries of a shard that are counted together; each has up to some hundred events.
_BATCH = 10
#: The wait between an announcement and the read: slots that are due together end together,
#: statuses may be two seconds old, and the workers are busy at just that moment.
GATHER_SECONDS = 0.1
#: The longest time between two reads; a new entry wakes the reader at once.
_LOOK_SECONDS = 60.0

_RUNS = runs.ENDED | {runs.RunState.RUNNING, runs.RunState.REPLACING}

#: The wait between two removals of records that statuses show.
_REMOVE_SECONDS = 1.0


class Outcomes:
    """The service; one for each term of a leader.

    Args:
        found: the records in the ledger when the term began.

    Attributes:
        found: these records by the uid of their Schedule or ScheduleRun, until it is listed.
        has_begun: set once the outcomes before this term are counted.
        turn: the lock taken while records are changed and stored, so that no older record replaces
            a newer one, and outcomes are counted one shard after the other.
    """

    def __init__(self, term: TermContext, *, found: ledgers.Records) -> None:
        self._ledger = term.queue.ledger()
        self._reporter = term.services.reporter
        self._states = term.services.states
        self._term = term
        self.has_begun = asyncio.Event()
        self.found = {uid: [record for _, record in listed] for uid, listed in found.items()}
        #: Uids, with the shards that have a record of it.
        self._places: dict[str, set[messages.ShardId]] = {
            uid: {shard for shard, _ in listed} for uid, listed in found.items()
        }
        #: Records to remove: a status shows them, or another shard has a newer one. Without the
        #: second rule a Schedule that always runs would keep its old records, and a shard that
        #: closes waits until its ledger is empty.
        self._unneeded: set[tuple[messages.ShardId, str]] = set()
        self.turn = asyncio.Lock()
        #: Outcomes that are counted but not stored: their shard and their last entry, with the
        #: events that need a record stored.
        self._uncertain: tuple[messages.ShardId, str, list[RunEvent]] | None = None

    async def run(self) -> None:
        """Read until cancelled, once all objects are listed: a status needs its object."""
        await self._term.services.resync.first_done.wait()
        await self._term.services.runs.listed.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._remove_shown())
            await self._term.until_done("outcomes", self._read, "outcomes cannot be read")

    async def _read(self) -> None:
        """Subscribe and read until an error: first earlier entries, then new ones."""
        try:
            await self._ledger.start()
            await self._report_dropped()
            await self._read_once(None)
            self.has_begun.set()
            while True:
                shards = await self._ledger.wait_for_outcomes(_LOOK_SECONDS)
                self._term.health.well("outcomes")
                if shards:
                    await self._term.clock.sleep(GATHER_SECONDS)
                    await self._read_all(shards)
        finally:
            await self._ledger.close()

    async def catch_up(self, shards: tuple[messages.ShardId, ...] | None = None) -> None:
        """Count every outcome that these shards (default all) have; raises QueueUnavailable.

        Returns even if workers keep reporting: a shard that returns less than a full batch has no
        older outcome.
        """
        await self.has_begun.wait()
        await self._read_all(shards)

    async def _read_all(self, shards: tuple[messages.ShardId, ...] | None) -> None:
        left = await self._read_once(shards)
        while left:
            left = await self._read_once(left)

    async def _read_once(
        self, shards: tuple[messages.ShardId, ...] | None
    ) -> tuple[messages.ShardId, ...]:
        """Read and count one batch of each shard; return the shards that may have more.

        One reader at a time, so that one that finds nothing new knows that all was counted.
        """
        async with self.turn:
            await self._store_uncertain()
            entries = await self._ledger.read_outcomes(shards=shards, count=_BATCH)
            for shard, listed in itertools.groupby(entries, key=lambda entry: entry.shard):
                await self._take(shard, list(listed))
            given = collections.Counter(entry.shard for entry in entries)
            return tuple(shard for shard, count in given.items() if count >= _BATCH)

    async def _report_dropped(self) -> None:
        """Report how many entries were dropped because no operator had read them for long."""
        if dropped := await self._ledger.dropped():
            telemetry.logger.warning(
                "outcomes were dropped unread; counters and last runs of statuses lack them",
                entries=sum(dropped.values()),
                shards=len(dropped),
            )
            await self._ledger.forget_dropped(dropped)
            telemetry.outcomes_dropped_total.inc(sum(dropped.values()))

    async def _take(self, shard: messages.ShardId, entries: list[ledgers.OutcomeEntry]) -> None:
        """Count the entries of a shard, and store that before anything else is counted."""
        counted: list[RunEvent] = []
        for entry in entries:
            if entry.back_us:
                self._term.services.resync.request()
                self._term.services.index.suspect()
                continue
            events = _events(entry)
            counted += events
            for event in events:
                if not entry.is_lost:
                    self._reporter.event(event, by_queue=True)
                elif event.state in _RUNS:
                    run_only = msgspec.structs.replace(event, settled_us=0, completed=False)
                    self._reporter.event(run_only)
        self._uncertain = shard, entries[-1].id, counted
        await self._store_uncertain()

    # -- the ledger ------------------------------------------------------------------------------

    async def _remove_shown(self) -> None:
        """Remove the records that statuses show, until cancelled."""
        for uid in self.found:  # all objects are listed, so these are gone
            self.shown(uid)
        while True:
            await self._term.clock.sleep(_REMOVE_SECONDS)
            with contextlib.suppress(errors.TryLater, queue_errors.LayoutChanged):  # next round
                async with self.turn:
                    await self._remove()

    async def _store_uncertain(self) -> None:
        """Store what was counted while Redis was unavailable; needs the lock. Raises TryLater."""
        if self._uncertain is None:
            return
        try:
            await self._store(*self._uncertain)
        except queue_errors.Fenced:
            raise
        except errors.WorldChanged:
            pass  # the index was rebuilt, and its entries are gone
        self._uncertain = None

    def are_stored(self, uid: str) -> bool:
        """Report whether all outcomes of the Schedule that are counted are also stored."""
        return self._uncertain is None or all(event.uid != uid for event in self._uncertain[2])

    def shown(self, uid: str) -> None:
        """Release the records of an object: its status shows all of them, or it is gone."""
        self._unneeded |= {(shard, uid) for shard in self._places.get(uid, ())}

    def place(self, uid: str, *shards: messages.ShardId) -> None:
        """Note that these shards get a newer record of this object, so that none is removed."""
        places = self._places.setdefault(uid, set())
        places.update(shards)
        self._unneeded -= {(shard, uid) for shard in places}

    async def _store(self, shard: messages.ShardId, through: str, events: list[RunEvent]) -> None:
        packed = {}
        for uid in {event.uid for event in events}:
            state = self._states.get(uid)
            if state is not None and state.summary is not None:
                packed[uid] = summaries.pack(state.summary, state.settled())
                self._reporter.look(uid)  # the record stays until a status shows it
        of_runs = map(self._term.services.runs.record, events)
        packed |= {run_uid: record for run_uid, record in of_runs if run_uid}
        for uid in packed:
            self.place(uid, shard)
        await self._ledger.store(shard, packed, through=through, epoch=self._term.epoch)
        for uid in packed:
            self._unneeded |= {(older, uid) for older in self._places[uid] - {shard}}

    async def _remove(self) -> None:
        pairs = itertools.groupby(sorted(self._unneeded), key=lambda pair: pair[0])
        for shard, listed in [(shard, [uid for _, uid in found]) for shard, found in pairs]:
            await self._ledger.store(shard, {}, shown=listed, epoch=self._term.epoch)
            for uid in listed:
                self._unneeded.discard((shard, uid))
                self._places[uid].discard(shard)
                if not self._places[uid]:
                    del self._places[uid]


def _events(entry: ledgers.OutcomeEntry) -> list[RunEvent]:
    try:
        return runs.unpack(entry.outcomes)
    except msgspec.DecodeError as error:
        telemetry.logger.error(
            "outcomes cannot be read", shard=entry.shard, entry=entry.id, error=str(error)
        )
        return []
