"""Every ScheduleRun: its slots handed over, a few at a time, and its status kept.

Level-based: lists and the watch offer sightings, events and Jobs tell what became of slots, and
each ScheduleRun is looked at again whenever something may have changed (``_look``). At the begin of
a term, after every comparison of all objects and whenever a hand-over got no answer, a *survey*
says which slots are where; until then nothing is handed over. The order of its steps, and why a
slot can be neither lost nor doubled, stands in ``runsurvey``.

Before the first hand-over the status names the uid of the Schedule, to which the ScheduleRun
belongs from then on; what follows when that one is deleted stands in ``windingup``. Otherwise
statuses follow: hand-overs never wait for them, because what a status does not tell yet is found by
the next survey. An outcome is acknowledged, and a Job may leave the history, only once the status
tells of it.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.controller.scheduleruns import (
    handingover,
    runline,
    runsighting,
    runstatus,
    runsurvey,
    runwriter,
    windingup,
)
from duepoint.controller.scheduleruns.runline import Line, WindingUp, Withdrawn
from duepoint.controller.scheduleruns.runsighting import RunSighting
from duepoint.controller.schedules import gitopsmarks
from duepoint.controller.schedules.workqueue import WorkQueue
from duepoint.controller.sighting import Sighting
from duepoint.controller.status.receipts import Receipt
from duepoint.controller.termevents import TermEvents
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.wire import scripting
from duepoint.kube import errors as kube_errors
from duepoint.kube import events as kube_events
from duepoint.kube import jobs, port, scheduleruns, schedules
from duepoint.runs.run import RunEvent
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.manualruns import Wanted

PART = "scheduleruns"

_WORKERS = 8
#: Uids remembered as deleted: a page of a list may be older than the deletion.
_TOMBSTONES = 10_000
#: What a Job of a ScheduleRun is called: it ends in ten hexadecimal digits.
_OF_A_RUN = re.compile(r"-\d+-[0-9a-f]{10}$")
#: A ScheduleRun whose Schedule is missing looks for it this often, beside being told of it.
_ABSENT_SECONDS = 60.0
_NOT_READY_SECONDS = 15.0
_DELETED = Reason.SCHEDULE_DELETED

#: What the queue holds of a Schedule (uid, namespace); raises QueueUnavailable.
Definitions = Callable[[str, str], Awaitable[Definition | None]]


@dataclass(slots=True)
class _Leaving:
    """A deleted Schedule.

    Attributes:
        withdrawn: its occurrences that ScheduleRuns wanted, by the uid of that and the slot.
        is_complete: those are all that the queue held.
    """

    withdrawn: dict[tuple[str, int], Withdrawn] = field(default_factory=dict)
    is_complete: bool = False


class ScheduleRuns:
    """The service; one for each term of a leader.

    Args:
        definitions: reads what the queue holds for a Schedule.
        catch_up: returns once every outcome told before the call was handed to ``event``.
        namespaces: the namespaces that are looked after; empty = all.
        tell: told of what people should know.
    """

    def __init__(
        self,
        *,
        api: port.Api,
        queue: DelayQueue,
        epoch: messages.Epoch,
        definitions: Definitions,
        catch_up: Callable[[], Awaitable[None]],
        namespaces: tuple[str, ...],
        clock: Clock,
        health: services.Health,
        events: TermEvents,
        writes_per_second: float = 50,
        tell: Callable[[kube_events.News], None] = lambda _news: None,
    ) -> None:
        self._api = api
        self._queue = queue
        self._epoch = epoch
        self._definitions = definitions
        self._catch_up = catch_up
        self._namespaces = namespaces
        self._clock = clock
        self._health = health
        self._tell = tell
        self._handover = handingover.HandingOver(queue, epoch)
        self._writer = runwriter.RunWriter(api, clock, writes_per_second)
        self._tasks: WorkQueue[str] = WorkQueue(clock)
        self._lines: dict[str, Line] = {}
        self._by_schedule: dict[tuple[str, str], set[str]] = {}
        self._by_job: dict[tuple[str, str], tuple[str, int]] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._withdrawing: dict[str, Line] = {}
        self._early_seen: dict[str, RunSighting] = {}
        self._early_events: list[tuple[RunEvent, Receipt | None]] = []
        #: Deleted Schedules that leave the queue or have left it, by uid.
        self._leaving: OrderedDict[str, _Leaving] = OrderedDict()
        self._is_surveyed = False
        self._asked = asyncio.Event()
        self._events = events

    # -- what is told ----------------------------------------------------------------------------

    def offer(self, seen: RunSighting) -> None:
        """This state of an object was seen."""
        if seen.uid in self._deleted:
            return
        if seen.deleted:
            self._bury(seen.uid)
        elif not self._is_surveyed:
            self._early_seen[seen.uid] = seen
        elif seen.uid not in self._lines:
            self._adopt(seen)
        elif self._lines[seen.uid].is_outdated:
            runline.load(self._lines[seen.uid], seen)
            self.request()

    def event(self, event: RunEvent, receipt: Receipt | None) -> None:
        """Something happened to a slot; the receipt is settled once the status tells."""
        if not event.run_uid and not _OF_A_RUN.search(event.job_name):
            return
        if not self._is_surveyed:
            if receipt is not None:
                receipt.expect()
            self._early_events.append((event, receipt))
            return
        uid, slot_us = event.run_uid, event.slot_us
        if not uid:
            key = (event.namespace, event.job_name)
            uid, slot_us = self._by_job.get(key, ("", slot_us))
        line = self._lines.get(uid)
        if line is None or line.ended_us is not None or not runline.is_told_by(line, event):
            return
        if runline.take(line, handingover.of_slot(event, slot_us), receipt):
            self._tasks.put(uid, uid)

    async def schedule_leaves(self, seen: Sighting) -> None:
        """What the queue holds for ScheduleRuns leaves it before their deleted Schedule does.

        Each occurrence is withdrawn by itself, because the queue then says whether a worker had it.
        Raises QueueUnavailable; asked again, it goes on where it was.
        """
        leaving = self._leaving.setdefault(seen.uid, _Leaving())
        if len(self._leaving) > _TOMBSTONES:
            self._leaving.popitem(last=False)
        named = self._by_schedule.get((seen.namespace, seen.name), ())
        begun = [self._lines[uid] for uid in named if self._lines[uid].begins_with == seen.uid]
        if self._is_surveyed and not begun:
            return
        for line in begun:
            async with line.handing:  # what is being handed over just now is in the queue, or not
                pass
        known = await self._definitions(seen.uid, seen.namespace)
        if known is not None:
            await self._withdraw_all(known, leaving)

    async def _withdraw_all(self, known: Definition, leaving: _Leaving) -> None:
        for shard in sharding.homes(known.id, self._queue.layouts.known()):
            async for one in self._queue.occurrences.all_occurrences(shard, of=known.id):
                if one.kind not in points.RUN_KINDS:
                    continue
                run_uid, slot_us, made = one.record.run_uid, one.slot_us, one.record.attempt
                # Where the answer is lost, or it has just ended, a worker may have had it.
                leaving.withdrawn[run_uid, slot_us] = Withdrawn(is_held=True, attempts=made)
                point = points.manual(known.id, slot_us, run_uid, one.kind)
                armed = await self._queue.occurrences.withdraw(known, point, self._epoch)
                if armed is messages.Armed.APPLIED:
                    waited = Withdrawn(is_held=False, attempts=made)
                    leaving.withdrawn[run_uid, slot_us] = waited
        leaving.is_complete = True

    def schedule_changed(self, seen: Sighting) -> None:
        """The queue holds this state of a Schedule now, or nothing of it any more."""
        if not seen.deleted:
            self._leaving.pop(seen.uid, None)
        for uid in self._by_schedule.get((seen.namespace, seen.name), ()):
            self._tasks.put(uid, uid)

    def has_waiting(self, known: Definition) -> bool:
        """Whether a ScheduleRun may wait for runs of this Schedule, whatever its own policy."""
        named = self._by_schedule.get((known.namespace, known.name), ())
        return any(runline.may_wait(self._lines[uid]) for uid in named)

    def has_ended(self, run_uid: str, slot_us: int) -> bool | None:
        """Whether a slot of a run has ended; None = that is not known yet."""
        if not self._is_surveyed:
            return None
        line = self._lines.get(run_uid)
        if line is None or line.wanted is None or line.ended_us is not None:
            return True  # it is gone, or over: what the queue holds of it is a ghost
        return runline.has_ended(line, slot_us)

    def keeps(self, namespace: str, job_name: str) -> bool:
        """Whether a finished Job is to stay: no status tells yet how its run ended."""
        if not self._is_surveyed:
            return _OF_A_RUN.search(job_name) is not None
        return (namespace, job_name) in self._by_job

    def request(self) -> None:
        """Slots may have been lost: look where they are."""
        self._asked.set()

    # -- the survey ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled; raises scripting.Fenced where a newer leader has been here."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tasks.run(self._handle, _WORKERS))
            self.request()
            while True:
                await self._asked.wait()
                await self._until_surveyed()

    async def _until_surveyed(self) -> None:
        waits = services.backoff(first_seconds=0.2, most_seconds=10.0)
        while True:
            self._asked.clear()
            try:
                await self._survey()
            except (scripting.Fenced, scripting.LayoutChanged):
                raise
            except (errors.TryLater, errors.WorldChanged, kube_errors.ApiError) as trouble:
                if self._health.unwell(PART, str(trouble)):
                    telemetry.logger.warning("scheduleruns not surveyed", error=str(trouble))
                await self._clock.sleep(next(waits))
            else:
                self._health.well(PART)
                return

    async def _survey(self) -> None:
        known = {
            uid: frozenset(line.course.open)
            for uid, line in self._lines.items()
            if line.ended_us is None and not line.is_outdated
        }
        before = frozenset(self._lines)
        survey = runsurvey.Survey()
        if known or not self._is_surveyed:  # else nothing of this term's is in the queue
            survey = await runsurvey.held(self._queue)
            await self._catch_up()
        listed = await self._list()
        self._compare(listed, before)
        for uid, line in self._lines.items():
            if line.ended_us is None and line.wanted is not None:
                facts = runline.Facts(held=survey.slots_of(uid), about=known.get(uid))
                self._apply(line, facts)
        self._is_surveyed = True
        self._hand_on_early()
        await self._withdraw_ghosts(survey, listed)

    def _apply(self, line: Line, facts: runline.Facts) -> None:
        if facts.about or facts.about is None:
            runline.doubt_lost(line, facts)
            if runline.is_doubtful(line) or facts.about is None:
                self._tasks.put(line.seen.uid, line.seen.uid)

    async def _list(self) -> dict[str, RunSighting]:
        found: dict[str, RunSighting] = {}
        for namespace in self._namespaces or (None,):
            path = schedules.collection(namespace, plural=schedules.RUN_PLURAL)
            async for page in self._api.list_pages(path, schedules.ScheduleRun):
                for item in page.items:
                    seen = runsighting.of_listed(item)
                    found[seen.uid] = seen
                await self._clock.sleep(0)
        return found

    def _compare(self, listed: dict[str, RunSighting], before: frozenset[str]) -> None:
        for uid in before - listed.keys():
            self._bury(uid)
        early, self._early_seen = self._early_seen, {}
        for uid, seen in {**early, **listed}.items():
            if seen.deleted:
                self._bury(uid)
            elif uid not in self._lines and uid not in self._deleted:
                self._adopt(seen)
            elif uid in self._lines and self._lines[uid].is_outdated:
                runline.load(self._lines[uid], seen)

    def _hand_on_early(self) -> None:
        early, self._early_events = self._early_events, []
        for event, receipt in early:
            self.event(event, receipt)
            if receipt is not None:
                receipt.settle()

    async def _withdraw_ghosts(
        self, survey: runsurvey.Survey, listed: dict[str, RunSighting]
    ) -> None:
        """What the queue holds of ScheduleRuns that were deleted while nobody led."""
        for uid, held in survey.by_run.items():
            if uid not in self._lines and uid not in listed:
                await self._tell_withdrawn(await self._handover.withdraw_all(held))

    async def _tell_withdrawn(self, waited: Collection[runsurvey.Held]) -> None:
        """Deliveries that were to be tried again will not be: no worker tells of their end."""
        if waited:
            await self._catch_up()  # what was told of them comes before
        for one in waited:
            self._events.slot_withdrawn(runsurvey.given_up(one, self._clock.now_us()))

    # -- coming and going ------------------------------------------------------------------------

    def _adopt(self, seen: RunSighting) -> None:
        wanted, refusal = _read(seen)
        line = runline.line_of(seen, wanted, refusal)
        if not seen.status or not line.written.get("conditions"):
            line.facts = runline.Facts(held=frozenset())  # new: nobody has handed anything over
        self._lines[seen.uid] = line
        self._by_schedule.setdefault(line.schedule_key, set()).add(seen.uid)
        self._guard(line)
        self._tasks.put(seen.uid, seen.uid)

    def _bury(self, uid: str) -> None:
        self._deleted[uid] = None
        if len(self._deleted) > _TOMBSTONES:
            self._deleted.popitem(last=False)
        line = self._lines.pop(uid, None)
        if line is None:
            return
        named = self._by_schedule.get(line.schedule_key, set())
        named.discard(uid)
        if not named:
            self._by_schedule.pop(line.schedule_key, None)
        self._release(line, ())
        _settle(line)
        if line.ended_us is None:  # one that is looked at just now may be opening slots
            self._withdrawing[uid] = line
            self._tasks.put(uid, uid)

    def _guard(self, line: Line) -> None:
        for slot_us in line.course.open.keys() - line.guarded:
            self._by_job[line.seen.namespace, line.job_name(slot_us)] = (line.seen.uid, slot_us)
            line.guarded.add(slot_us)

    def _release(self, line: Line, kept: Collection[int]) -> None:
        """The status tells how the runs of all slots but these have ended."""
        gone = line.guarded.difference(kept)
        for slot_us in gone:
            self._by_job.pop((line.seen.namespace, line.job_name(slot_us)), None)
        line.guarded -= gone
        if gone and line.schedule_uid:
            self._events.jobs_released(line.schedule_uid)

    # -- one ScheduleRun -------------------------------------------------------------------------

    async def _handle(self, uid: str) -> float | None:
        line = self._lines.get(uid)
        try:
            if line is None:
                return await self._withdraw(uid)
            wait = await self._look(line)
        except (scripting.Fenced, scripting.LayoutChanged):
            raise
        except (errors.TryLater, errors.WorldChanged, kube_errors.ApiError) as trouble:
            telemetry.logger.debug("schedulerun put off", uid=uid, error=str(trouble))
            return _next_wait(line)
        except Exception as bug:  # noqa: BLE001 - one object's trouble is nobody else's
            telemetry.logger.error("schedulerun not looked at", uid=uid, exc_info=bug)
            return _next_wait(line)
        line.waits = None
        return wait

    async def _withdraw(self, uid: str) -> float | None:
        line = self._withdrawing.get(uid)
        if line is None:
            return None
        await self._find(line)
        if line.known is not None:
            await self._tell_withdrawn(await self._handover.withdraw(line))
        # A look that was under way may have guarded slots again, or have failed to write.
        self._release(line, ())
        _settle(line)
        self._withdrawing.pop(uid, None)
        return None

    async def _look(self, line: Line) -> float | None:
        """Do what is to be done now; seconds until the next look, None = when something is told."""
        if line.ended_us is not None:
            return await self._live_out(line)
        self._warn(line)
        line.verdict, wait = await self._proceed(line)
        return await self._tell_status(line, line.verdict, wait)

    async def _proceed(self, line: Line) -> tuple[runstatus.Verdict, float | None]:
        if line.wanted is None:
            assert line.refusal is not None  # noqa: S101 - one of the two is there
            return line.refusal, None
        missing = await self._find(line)
        if line.winding_up is not None:
            return await self._wind_up(line, line.winding_up)
        if missing is not None:
            return missing, self._patience(missing)
        runline.take_early(line)
        if line.facts is not None:
            await self._resolve(line)
        self._guard(line)
        line.planned = runline.count(line)
        refusal = handingover.refusal(line)
        if refusal is not None:
            return refusal, None
        standing = runstatus.standing(line.wanted, line.course, line.planned)
        if not standing.has_ended and not line.has_begun:
            line.begins_with = line.schedule_uid
            return standing, 0.0  # looked at again as soon as the status says so
        if not runline.is_doubtful(line):
            await self._hand_over(line)
        else:
            self.request()
        return runstatus.standing(line.wanted, line.course, line.planned), None

    async def _wind_up(
        self, line: Line, state: WindingUp
    ) -> tuple[runstatus.Verdict, float | None]:
        """Its Schedule was deleted: what had started is accounted for, nothing more starts."""
        now = self._clock.monotonic()
        is_first = line.verdict is None or line.verdict.told[0].reason is not _DELETED
        if is_first or windingup.is_patience_over(line, now):
            await self._catch_up()  # what was told before counts before anything is missed
        leaving = self._leaving.get(line.begins_with)
        if leaving is not None and leaving.is_complete:
            of_this = line.seen.uid
            state.withdrawn = {
                slot_us: one
                for (run_uid, slot_us), one in leaving.withdrawn.items()
                if run_uid == of_this
            }
        owner = jobs.Owner(*line.schedule_key, line.begins_with)
        labelled = await jobs.labelled(self._api, *line.schedule_key)
        # Those that lost their owner with their Schedule are runs of it all the same.
        found = [job for job in labelled if jobs.is_released(job) or jobs.is_run_of(job, owner)]
        windingup.account(line, found, now=now, now_us=self._clock.now_us())
        self._guard(line)
        verdict = windingup.verdict(line)
        return verdict, None if verdict.has_ended else windingup.look_seconds(state, now)

    def _patience(self, missing: runstatus.Verdict) -> float:
        is_absent = missing.told[0].reason is Reason.SCHEDULE_NOT_FOUND
        return _ABSENT_SECONDS if is_absent else _NOT_READY_SECONDS

    async def _find(self, line: Line) -> runstatus.Verdict | None:
        """Its Schedule as the queue holds it now; else what is to be said.

        Of one that has begun, and whose Schedule is gone, ``winding_up`` is set.
        """
        namespace, name = line.schedule_key
        if line.schedule_uid in self._leaving and not line.has_begun:
            line.schedule_uid = ""
        if line.schedule_uid:
            line.known = await self._definitions(line.schedule_uid, namespace)
            if line.known is not None:
                return None
        line.known = None
        found = await scheduleruns.schedule_named(self._api, namespace, name)
        if line.has_begun and (found is None or found.metadata.uid != line.begins_with):
            if line.winding_up is None:
                line.winding_up = WindingUp(
                    since=self._clock.monotonic(), after_us=line.course.cursor_us
                )
            return None
        if found is None or found.metadata.uid in self._leaving:
            line.schedule_uid = ""
            return _absent(line)
        generation = found.metadata.generation
        known = await self._definitions(found.metadata.uid, namespace)
        if known is None or known.generation < generation:
            said = f"generation {generation} of Schedule {namespace}/{name} is not in the queue; "
            said += "its own conditions say why"
            return runstatus.waiting(Reason.SCHEDULE_NOT_READY, said)
        line.known, line.schedule_uid = known, known.uid
        return None

    async def _resolve(self, line: Line) -> None:
        assert line.known is not None  # noqa: S101 - found before
        found = {}
        if line.known.rule.whole_seconds and (line.course.open or line.written.get("conditions")):
            made = await jobs.of_schedule(
                self._api, line.known.namespace, line.known.name, line.known.uid
            )
            found = {job.metadata.name: job for job in made}
        runline.resolve(line, found)

    async def _hand_over(self, line: Line) -> None:
        async with line.handing:
            if line.begins_with in self._leaving:
                return
            slots_us = runline.open_next(line)
            self._guard(line)
            if not slots_us:
                return
            trouble = await self._handover.hand_over(line, slots_us)
        if trouble is not None:
            raise trouble

    def _warn(self, line: Line) -> None:
        if line.is_told or line.written.get("conditions"):
            return
        line.is_told = True
        mark = gitopsmarks.mark_of(line.seen.labels, line.seen.annotations)
        if mark and line.wanted is not None and line.wanted.ttl_seconds is not None:
            self._tell(runwriter.kept_in_git(line.seen, mark))

    # -- its status and its end --------------------------------------------------------------------

    async def _tell_status(
        self, line: Line, verdict: runstatus.Verdict, wait: float | None
    ) -> float | None:
        rest = self._writer.rest(line, verdict)
        if rest > 0:
            return rest if wait is None else min(rest, wait)
        receipts, line.receipts = line.receipts, []
        open_then = set(line.course.open)
        try:
            answer = await self._writer.write(line, verdict)
        except BaseException:
            line.receipts = receipts + line.receipts
            raise
        if answer is runwriter.Answer.OUTDATED:
            line.is_outdated = True
            self.request()
        for receipt in receipts:
            receipt.settle()
        self._release(line, open_then | line.course.open.keys())
        if line.ended_us is not None:
            return await self._live_out(line)
        return wait

    async def _live_out(self, line: Line) -> float | None:
        """It has ended: delete it when its time to live is over."""
        _settle(line)
        if line.wanted is None or line.wanted.ttl_seconds is None or line.ended_us is None:
            return None
        end_us = line.ended_us + line.wanted.ttl_seconds * 1_000_000
        left = (end_us - self._clock.now_us()) / 1e6
        if left > 0:
            return left
        await scheduleruns.delete(self._api, line.seen.namespace, line.seen.name, line.seen.uid)
        return None


def _read(seen: RunSighting) -> tuple[Wanted | None, runstatus.Verdict | None]:
    try:
        return scheduleruns.wanted(seen.spec, created_us=seen.created_us), None
    except errors.InvalidSpec as invalid:
        first = invalid.errors[0]
        return None, runstatus.refused(Reason(first.reason), str(invalid))


def _absent(line: Line) -> runstatus.Verdict:
    """Nothing of it can run; what was told of slots of a Schedule that is gone does not count."""
    for _, receipt in line.early:
        if receipt is not None:
            receipt.settle()
    line.early = []
    namespace, name = line.schedule_key
    said = f"there is no Schedule {namespace}/{name}; it runs once there is one"
    return runstatus.waiting(Reason.SCHEDULE_NOT_FOUND, said)


def _settle(line: Line) -> None:
    """Nothing of it is to be told any more; a look that is under way finds no receipts."""
    early = [receipt for _, receipt in line.early if receipt is not None]
    receipts, line.receipts, line.early = [*line.receipts, *early], [], []
    for receipt in receipts:
        receipt.settle()


def _next_wait(line: Line | None) -> float:
    if line is None:
        return 1.0
    if line.waits is None:
        line.waits = services.backoff(first_seconds=0.5, most_seconds=15.0)
    return next(line.waits)
