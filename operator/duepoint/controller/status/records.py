"""What runs have come to, in the ledger before any status shows it.

What outcomes have changed is stored with the mark that they are counted, in one step
(``delayqueue.ledger``), so each counts once although a leader may die at any time; no status shows
it before. What Jobs, edits and time have changed is seen again by the next leader. Of the record
and the status the one is newer that has counted more. A record goes when a status shows it. Where
Redis has lost the ledger the statuses have nearly all of it, and what this process knows beyond
them is stored once more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable

from duepoint import errors, faults
from duepoint.controller.status.states import ScheduleStates
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import ledger, messages
from duepoint.faults import FaultPoint
from duepoint.runs import run
from duepoint.runs import summary as summaries
from duepoint.runs.run import RunEvent

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


def of_runs(found: ledger.Records) -> list[RunEvent]:
    """The outcomes in the ledger that no status of a ScheduleRun shows, as far as is known."""
    return [
        event
        for name, listed in found.items()
        if name.startswith(_OF_RUN)
        for _, text in listed
        for event in run.unpack(text)
    ]


class RunRecords:
    """The service; one for each term.

    Args:
        found: what the ledger held when the term began.

    Attributes:
        turn: held while outcomes are counted and stored: one shard after the other.
    """

    def __init__(
        self,
        term: TermContext,
        ledger: ledger.Ledger,
        *,
        states: ScheduleStates,
        found: ledger.Records,
    ) -> None:
        self._term = term
        self._ledger = ledger
        self._states = states
        #: Name of a record -> shards that have one.
        self._places: _Places = {
            name: {shard for shard, _ in listed} for name, listed in found.items()
        }
        #: Those that are not needed any more: a status shows them, or another shard has a newer
        #: one. A Schedule that always runs has no moment in which a status shows all, and a shard
        #: that closes waits until its ledger is empty.
        self._unneeded: _Places = {}
        self.turn = asyncio.Lock()
        #: Outcomes of a shard, up to this entry, that are counted and not stored, and the names of
        #: the records that they have changed.
        self._uncertain: tuple[messages.ShardId, str, set[str]] | None = None

    async def run(self) -> None:
        """Remove what statuses show, until cancelled."""
        of_schedules = {name for name in self._places if not name.startswith(_OF_RUN)}
        for name in of_schedules - {state.uid for state in self._states}:
            self.shown(name)
        while True:
            await self._term.clock.sleep(_REMOVE_SECONDS)
            if self._unneeded:
                async with self.turn:
                    try:
                        await self._remove()
                    except (errors.TryLater, queue_errors.LayoutChanged):
                        continue  # the next round

    async def counted(
        self, shard: messages.ShardId, through: str, events: Iterable[RunEvent]
    ) -> None:
        """Store that these outcomes are counted; in its turn. Raises TryLater."""
        names: set[str] = set()
        for event in events:
            names.add(event.uid)
            if key := run_key(event):
                names.add(_OF_RUN + key)
        self._uncertain = shard, through, names
        await self.catch_up()

    async def catch_up(self) -> None:
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

    def lost(self) -> None:
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
                packed[name] = run.pack(unshown)
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
