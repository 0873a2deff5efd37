"""The shards' ``runs`` streams, read by one process, and what runs have come to in the ledger.

What an outcome has changed is passed to the reporter, and stored with the mark that it is counted,
in one step (``delayqueue.ledger``), so each counts once although a leader may die at any time; no
status shows it before. What Jobs, edits and time have changed is seen again by the next leader. Of
the record and the status the one is newer that has counted more. A record goes when a status shows
it. Where Redis has lost the ledger the statuses have nearly all of it, and what this process knows
beyond them is stored once more. A status needs its object, so reading begins once a complete list
has been seen; the events of an unknown uid then belong to a Schedule that is gone.

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
import re
from collections.abc import Collection, Iterable, Iterator

import msgspec

from duepoint import errors, faults, services, telemetry
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import ledger as ledgers
from duepoint.delayqueue import messages
from duepoint.faults import FaultPoint
from duepoint.runs import run as runs
from duepoint.runs import summary as summaries
from duepoint.runs.run import RunEvent

#: Entries of a shard that are counted together; each carries up to some hundred events.
_BATCH = 10
#: Outcomes are read this long after the first one was announced: slots that are due together end
#: together, statuses may be two seconds old, and the workers are busy at just that moment.
GATHER_SECONDS = 0.1
#: A look at least this often; what is added wakes us at once.
_LOOK_SECONDS = 60.0

_RUNS = runs.ENDED | {runs.RunState.RUNNING, runs.RunState.REPLACING}


#: Records that statuses show are removed so long after.
_REMOVE_SECONDS = 1.0
#: Before the name of a record that is a ScheduleRun's.
_OF_RUN = "run "
#: The end of the name of a ScheduleRun's Job: slot, and ten hexadecimal digits.
_JOB_OF_A_RUN = re.compile(r"-\d+-[0-9a-f]{10}$")
_Places = dict[str, set[messages.ShardId]]


def is_job_of_a_run(job_name: str) -> bool:
    """Whether the name is that of a Job of some ScheduleRun."""
    return _JOB_OF_A_RUN.search(job_name) is not None


def run_key(event: RunEvent) -> str:
    """What the outcomes of a ScheduleRun's slot are stored under; empty = it is of none."""
    if event.run_uid or not is_job_of_a_run(event.job_name):
        return event.run_uid
    return f"{event.namespace}/{event.job_name}"


def of_runs(found: ledgers.Records) -> list[RunEvent]:
    """The outcomes in the ledger that no status of a ScheduleRun shows, as far as is known."""
    return [
        event
        for name, listed in found.items()
        if name.startswith(_OF_RUN)
        for _, text in listed
        for event in runs.unpack(text)
    ]


class Outcomes:
    """The service; one for each term of a leader.

    Args:
        found: what the ledger held when the term began.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        reporter: Reporter,
        ledger: ledgers.Ledger,
        found: ledgers.Records,
    ) -> None:
        self._ledger = ledger
        self._reporter = reporter
        self._states = reporter.states
        self._term = term
        self._has_begun = asyncio.Event()
        self._upheavals = term.queue.health.upheavals
        #: The newest entry of each shard that was handed on, now and when a server went back last.
        self._newest: dict[messages.ShardId, ledgers.EntryId] = {}
        self._before_upheaval: dict[messages.ShardId, ledgers.EntryId] = {}
        #: Notes that a shard went back, since the last upheaval: what stands behind one is new.
        self._notes: dict[messages.ShardId, ledgers.EntryId] = {}
        #: Name of a record -> shards that have one.
        self._places: _Places = {
            name: {shard for shard, _ in listed} for name, listed in found.items()
        }
        #: Those that are not needed any more: a status shows them, or another shard has a newer
        #: one. A Schedule that always runs has no moment in which a status shows all, and a shard
        #: that closes waits until its ledger is empty.
        self._unneeded: _Places = {}
        #: Held while outcomes are counted and stored: one shard after the other.
        self._turn = asyncio.Lock()
        #: Outcomes of a shard, up to this entry, that are counted and not stored, and the names of
        #: the records that they have changed.
        self._uncertain: tuple[messages.ShardId, str, set[str]] | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._remove_shown())
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
        async with self._turn:
            await self._store_uncertain()
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
            self._lost()

    async def _take(self, shard: messages.ShardId, entries: list[ledgers.OutcomeEntry]) -> None:
        """Count what is new of a shard, and store it before anything else is counted."""
        events: list[RunEvent] = []
        for entry in entries:
            if not self._was_handed_on(entry):
                events += self._hand_on(entry)
        await self._counted(shard, entries[-1].id, events)

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

    def _hand_on(self, entry: ledgers.OutcomeEntry) -> list[RunEvent]:
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

    # -- the ledger ------------------------------------------------------------------------------

    async def _remove_shown(self) -> None:
        """Remove what statuses show, until cancelled."""
        of_schedules = {name for name in self._places if not name.startswith(_OF_RUN)}
        for name in of_schedules - {state.uid for state in self._states}:
            self.shown(name)
        while True:
            await self._term.clock.sleep(_REMOVE_SECONDS)
            if self._unneeded:
                async with self._turn:
                    try:
                        await self._remove()
                    except (errors.TryLater, queue_errors.LayoutChanged):
                        continue  # the next round

    async def _counted(
        self, shard: messages.ShardId, through: str, events: Iterable[RunEvent]
    ) -> None:
        """Store that these outcomes are counted; in its turn. Raises TryLater."""
        names: set[str] = set()
        for event in events:
            names.add(event.uid)
            if key := run_key(event):
                names.add(_OF_RUN + key)
        self._uncertain = shard, through, names
        await self._store_uncertain()

    async def _store_uncertain(self) -> None:
        """Store what was counted when Redis was away, in its turn; raises TryLater."""
        if self._uncertain is None:
            return
        try:
            await self._store(*self._uncertain)
        except queue_errors.Fenced:
            raise
        except errors.WorldChanged:
            pass  # the entries went with the index that was made anew
        self._uncertain = None

    def require(self, uid: str) -> None:
        """Raise TryLater where outcomes of the Schedule are counted and not stored."""
        if self._uncertain is not None and uid in self._uncertain[2]:
            raise errors.QueueUnavailable("what runs have come to is not stored yet")

    def shown(self, uid: str) -> None:
        """A status shows all that is known of the Schedule, or it is gone."""
        if uid in self._places:
            self._unneeded[uid] = set(self._places[uid])

    def shown_of_run(self, key: str) -> None:
        """The status of a ScheduleRun shows these outcomes, or it is gone."""
        self.shown(_OF_RUN + key)

    def _lost(self) -> None:
        """A server may have lost records: what no status shows is stored anew with the next one."""
        for uid, shards in self._places.items():
            state = self._states.get(uid)
            if state is not None and shards - self._unneeded.get(uid, set()):
                state.recorded = None

    async def _store(self, shard: messages.ShardId, through: str, names: Collection[str]) -> None:
        changed = [
            (state, summary)
            for name in names
            if (state := self._states.get(name)) is not None
            and (summary := state.summary) is not None
            and summary is not state.recorded
        ]
        packed = {state.uid: summaries.pack(summary, state.settled()) for state, summary in changed}
        for name in names:
            key = name.removeprefix(_OF_RUN)
            if key != name and (unshown := self._term.services.runs.unshown(key)):
                packed[name] = runs.pack(unshown)
        for name in packed:
            self._places.setdefault(name, set()).add(shard)
            self._unneeded.pop(name, None)
        await faults.reach(FaultPoint.BEFORE_OUTCOMES_COUNTED)
        await self._ledger.store(shard, packed, through=through, epoch=self._term.epoch)
        await faults.reach(FaultPoint.AFTER_OUTCOMES_COUNTED)
        for name in packed:
            if older := self._places[name] - {shard}:
                self._unneeded.setdefault(name, set()).update(older)
        for state, summary in changed:
            state.recorded = summary

    async def _remove(self) -> None:
        removed, self._unneeded = self._unneeded, {}
        by_shard: dict[messages.ShardId, list[str]] = {}
        for name, shards in removed.items():
            for shard in shards:
                by_shard.setdefault(shard, []).append(name)
        try:
            for shard, listed in by_shard.items():
                await self._ledger.store(shard, {}, shown=listed, epoch=self._term.epoch)
        except BaseException:
            self._unneeded = removed | self._unneeded
            raise
        for name, shards in removed.items():
            self._places[name] -= shards
            if not self._places[name]:
                del self._places[name]
                self._unneeded.pop(name, None)  # it was shown once more meanwhile


def _events(entry: ledgers.OutcomeEntry) -> list[RunEvent]:
    try:
        return runs.unpack(entry.outcomes)
    except msgspec.DecodeError as error:
        telemetry.logger.error(
            "outcomes cannot be read", shard=entry.shard, entry=entry.id, error=str(error)
        )
        return []


def _waits() -> Iterator[float]:
    return services.backoff(first_seconds=0.2, most_seconds=5.0)
