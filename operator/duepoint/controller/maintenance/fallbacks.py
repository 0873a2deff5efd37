"""Puts Schedules again that were due when a server went back in time.

Workers find out that a shard went back, and hand out nothing of a Schedule there that was due by
then; all else fires. Such a server holds a true state, but an older one: every slot before a chain
was handed over, and what came after is not known. So each look takes every outcome that was
reported so far and puts what is overdue again as after a loss of the whole index: its chain goes on
behind the watermark, its open slots get their points again, and what has ended is gone. Only where
the server knows more (the chain stands later, an occurrence is not in the status) does that stay. A
stream in our own Redis went back together with its slots: there the queue alone is right. Then the
doubt about the shard ends; looks are repeated until no shard is in doubt. It begins with a term,
once all statuses and all Jobs are known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import msgspec

from duepoint import errors, services, telemetry
from duepoint.controller import plan
from duepoint.controller.jobs.jobwatch import JobWatch
from duepoint.controller.scheduleruns.runstates import ScheduleRunStates
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.status.states import ScheduleStates
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions.occurrences import StoredOccurrence
from duepoint.delayqueue.repair.fallbacks import Doubt, Overdue, PutAgain
from duepoint.kube import jobbuilder, jobs
from duepoint.runs.run import RunEvent, RunState
from duepoint.runs.watermark import Watermark
from duepoint.schedules import actions, points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.points import PointKind

#: Slots above the watermark whose Jobs are looked for.
_MOST_LOOKED_AT = 2_000
_REGULAR = frozenset({PointKind.RETRY, PointKind.PLANNED, PointKind.QUEUED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Endings:
    """What has become of slots, by all sources but the queue, which may have lost it."""

    states: ScheduleStates
    jobs: JobWatch
    runs: ScheduleRunStates

    def settled(self, definition: Definition, back_us: int) -> Watermark:
        """The slots that have ended; of a Schedule that is gone all that were due."""
        known = self.states.settled(definition.uid)
        if known is None:
            return Watermark(back_us)
        if not definition.rule.whole_seconds:
            return known
        slots_us = self.jobs_behind(definition, known.through_us)
        through_us = max(known.through_us, *slots_us) if slots_us else known.through_us
        return Watermark(through_us, known.started_us, known.waiting_us)

    def jobs_behind(self, definition: Definition, through_us: int) -> dict[int, str]:
        """The slots behind a watermark, as far as every slot has its Job, with these Jobs."""
        owner = jobs.JobOwner(definition.namespace, definition.name, definition.uid)
        timeline, found = plan.slots_of(definition), dict[int, str]()
        following = timeline.next_after(max(through_us, definition.not_before_us))
        for _ in range(_MOST_LOOKED_AT):
            if following is None:
                break
            job_name = jobbuilder.name_of(definition.name, following.slot_us)
            if not self.jobs.has(owner, job_name):
                break
            found[following.slot_us] = job_name
            following = timeline.next_after(following.slot_us)
        return found


def _created(definition: Definition, slot_us: int, job_name: str, now_us: int) -> RunEvent:
    """The report of a Job that was lost with its worker's server."""
    return RunEvent(
        uid=definition.uid,
        namespace=definition.namespace,
        name=definition.name,
        generation=definition.generation,
        slot_us=slot_us,
        trigger="Schedule",
        state=RunState.RUNNING,
        reason=Reason.RUNNING,
        at_us=now_us,
        started_us=min(slot_us, now_us),
        job_name=job_name,
    )


def put_again(
    one: Overdue, settled: Watermark, endings: Endings, *, goes_back: bool = False
) -> PutAgain | None:
    """What it becomes; None where the end of one of its slots is not known yet.

    Args:
        one: as the server holds it.
        settled: its slots that have ended.
        goes_back: whether what its target took is lost with the server, too.
    """
    definition = one.definition
    gone = []
    for slot in one.occurrences:
        ended: bool | None
        if slot.kind in points.RUN_KINDS:
            ended = endings.runs.has_ended(slot.record.run_uid, slot.slot_us)
        else:
            ended = not goes_back and _may_have_ended(slot, definition)
            ended = ended and settled.has_ended(slot.slot_us)
        if ended is None:
            return None
        if ended:
            gone.append(slot.member)
    due_us, lost = one.chain_due_us, []
    if due_us is not None and definition.state is State.ARMED and not goes_back:
        lost = _lost(one, settled, due_us)
        following_us = plan.chain_due_us(definition, settled.through_us)
        if definition.runs_left != 0:  # else the worker that claims it completes the Schedule
            due_us = None if following_us is None else max(due_us, following_us)
    started = 0 if definition.runs_left is None else endings.states.started(definition.uid)
    return PutAgain(overdue=one, due_us=due_us, gone=gone, lost=lost, started=started)


def _may_have_ended(slot: StoredOccurrence, definition: Definition) -> bool:
    """Not where an edit has ended it, or a replay has opened it again, as a worker knows."""
    is_regular = slot.kind in _REGULAR and not plan.is_superseded(slot, definition)
    return is_regular and not slot.record.replayed_us


def _lost(one: Overdue, settled: Watermark, due_us: int) -> list[messages.Occurrence]:
    """Open slots that the chain handed over after the state that the server holds."""
    timeline = plan.slots_of(one.definition)
    first_us = timeline.at_or_before(due_us) or 0
    stored_us = {slot.slot_us for slot in one.occurrences if slot.kind in _REGULAR}
    found = []
    for slot_us in settled.open_us:
        if slot_us >= first_us and slot_us not in stored_us:
            slot_due_us = timeline.due_slot(slot_us).due_us
            first_try_us = slot_due_us if slot_us in settled.started_us else 0
            lost = plan.reopened(one.definition, slot_us, slot_due_us, first_us=first_try_us)
            found.append(lost)
    return found


PART = "fallback"
#: A worker that was cut off in the middle tells within this what it had done, and it is not done
#: again.
GRACE_SECONDS = 2.0


class Fallbacks:
    """The service; one for each term of a leader.

    Args:
        endings: what has become of slots.
        catch_up: returns when every outcome that was reported before has been folded.
        ready: awaited before the first look.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        endings: Endings,
        reporter: Reporter,
        catch_up: Callable[[], Awaitable[None]],
        ready: Callable[[], Awaitable[object]],
    ) -> None:
        self._term = term
        self._endings = endings
        self._reporter = reporter
        self._catch_up = catch_up
        self._ready = ready
        self._own_streams: dict[tuple[str, str], bool] = {}
        self._asked = asyncio.Event()
        self._asked.set()

    def look(self) -> None:
        """A shard may be in doubt."""
        self._asked.set()

    async def run(self) -> None:
        """Put again whenever there is something to; raises queue_errors.Fenced."""
        await self._ready()
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self._until_no_doubt()

    async def _until_no_doubt(self) -> None:
        waits = _waits()
        while True:
            try:
                doubts = await self._doubts()
                unknown = await self._put_again(doubts)
            except queue_errors.Fenced:
                raise
            except (errors.TryLater, errors.WorldChanged) as trouble:
                if self._term.health.unwell(PART, str(trouble)):
                    telemetry.logger.warning("what is overdue is not put", error=str(trouble))
            else:
                self._term.health.well(PART)
                if not doubts:
                    return
                if not unknown:
                    waits = _waits()  # more was found meanwhile, or nothing is left
            await self._term.clock.sleep(next(waits))

    async def _doubts(self) -> tuple[Doubt, ...]:
        """The shards in doubt, once workers had the time to tell what they had done."""
        doubts = await self._term.queue.fallbacks.doubts()
        if doubts:
            back_us = max(doubt.back_us for doubt in doubts)
            self._term.services.jobs.sync.late.record_lost_claims(back_us)
            grace = GRACE_SECONDS - (self._term.clock.now_us() - back_us) / 1e6
            if grace > 0:
                await self._term.clock.sleep(min(grace, GRACE_SECONDS))
                return await self._term.queue.fallbacks.doubts()
        return doubts

    async def _put_again(self, doubts: tuple[Doubt, ...]) -> int:
        """Of how many Schedules the end of some slot is not known."""
        if doubts:
            await self._catch_up()
        return sum([await self._put_shard(doubt) for doubt in doubts])

    async def _put_shard(self, doubt: Doubt) -> int:
        """The same for one shard, whose doubt ends where it is none."""
        fallbacks, epoch = self._term.queue.fallbacks, self._term.epoch
        found = changed = unknown = 0
        async for part in fallbacks.overdue(doubt):
            wanted = [await self._wanted(one, doubt) for one in part]
            changes = [one for one in wanted if one is not None and one.changes]
            if changes:
                changed += await fallbacks.put_again(doubt, changes, epoch)
            found += len(part)
            unknown += wanted.count(None)
            await self._term.clock.sleep(0)  # let firing and statuses in between parts
        telemetry.logger.warning(
            "Redis went back in time; what was due is put again",
            shard=doubt.shard,
            schedules=found,
            changed=changed,
            unknown=unknown,
        )
        if not unknown:
            await fallbacks.end(doubt, epoch)
        return unknown

    async def _wanted(self, one: Overdue, doubt: Doubt) -> PutAgain | None:
        definition = one.definition
        settled = self._endings.settled(definition, doubt.back_us)
        goes_back = await self._goes_back(definition, doubt.shard)
        wanted = put_again(one, settled, self._endings, goes_back=goes_back)
        if wanted is not None and wanted.due_us != one.chain_due_us:
            # What ended is told by no event: those are lost with the server.
            for slot_us, job_name in self._endings.jobs_behind(
                definition, self._endings.states.watermark_us(definition.uid)
            ).items():
                now_us = self._term.clock.now_us()
                self._reporter.event(_created(definition, slot_us, job_name, now_us))
            is_last = wanted.due_us is None
            self._reporter.settled_through(definition.uid, settled.through_us, completed=is_last)
        return wanted

    async def _goes_back(self, known: Definition, shard: messages.ShardId) -> bool:
        """Whether its target is a stream on the very servers of the index."""
        key = known.namespace, known.target
        if key not in self._own_streams:
            try:
                blob = await self._term.queue.definitions.blob(*key, shard)
                target = actions.decode(blob).target
            except (queue_errors.BlobMissing, queue_errors.BlobForged, msgspec.MsgspecError):
                return False  # a worker says what is wrong with it
            is_own = isinstance(target, actions.StreamAction) and target.connection is None
            self._own_streams[key] = is_own
        return self._own_streams[key]


def _waits() -> Iterator[float]:
    return services.backoff(first_seconds=0.1, most_seconds=5.0)
