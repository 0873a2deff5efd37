"""Every ScheduleRun: its slots enqueued, a few at a time, and its status kept.

Level-based: lists and the watch show objects, events and Jobs say what became of slots, and each
ScheduleRun is looked at again whenever something may have changed (``_look``). At the beginning of
a term, after every comparison of all objects and whenever an enqueue got no answer, an *inventory*
says which slots are where; until then nothing is enqueued. ``occurrences`` has the order of
its steps, and why a slot can be neither lost nor run twice.

Before the first slot is enqueued the status names the uid of the Schedule, to which the ScheduleRun
belongs from then on; ``orphaned`` has what follows when that one is deleted. Otherwise slots never
wait for statuses, because the next inventory finds what a status does not show yet. An outcome
stays in the ledger, and a Job in the history, until the status shows the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

import msgspec

from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import (
    occurrences,
    orphaned,
    runreads,
    runstate,
    runstates,
    runstatus,
)
from duepoint.controller.scheduleruns.occurrences import Definitions, LeavingSchedules
from duepoint.controller.scheduleruns.runreads import ReadRun
from duepoint.controller.scheduleruns.runstate import Orphaned, ScheduleRunState
from duepoint.controller.scheduleruns.runstates import (
    RunPublisher,
    ScheduleRunStates,
)
from duepoint.controller.status.records import run_key
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.kube import jobs, schedules
from duepoint.runs.run import RunEvent
from duepoint.schedules.conditions import Reason

PART = "scheduleruns"

_WORKERS = 8
#: A ScheduleRun whose Schedule is missing looks for it this often; events cause earlier looks.
_ABSENT_SECONDS = 60.0
_NOT_READY_SECONDS = 15.0


class ScheduleRuns:
    """The service; one for each term of a leader.

    Args:
        catch_up: returns once every outcome up to the call was passed to ``event``.
        unshown: the outcomes that the ledger held when the term began.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        definitions: Definitions,
        catch_up: Callable[[], Awaitable[None]],
        unshown: Iterable[RunEvent],
    ) -> None:
        self._term = term
        self._definitions = definitions
        self._catch_up = catch_up
        self._enqueuer = occurrences.Enqueuer(term)
        self.states = ScheduleRunStates(term)
        self._leaving = LeavingSchedules(term, definitions=definitions, states=self.states)
        self._publisher = RunPublisher(
            term,
            states=self.states,
            part=PART,
            look=self._look_soon,
            outdated=self.request,
        )
        self._tasks: WorkQueue[str] = WorkQueue(term.clock, "schedulerun not looked at")
        self._withdrawing: dict[str, ScheduleRunState] = {}
        #: Shown by the watch, and not read yet.
        self._unread: dict[str, Observed] = {}
        self._early_events: list[tuple[RunEvent, bool]] = [(event, True) for event in unshown]
        self._requested = asyncio.Event()
        self._inventoried = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled; raises queue_errors.Fenced where a newer leader has been here."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work())
            group.create_task(self._publisher.writer.run())
            self.request()
            while True:
                await self._requested.wait()
                await self._term.until_done(
                    PART, self._take_inventory, "no inventory of scheduleruns"
                )

    async def _work(self) -> None:
        await self._inventoried.wait()
        await self._tasks.run(self._handle, _WORKERS)

    # -- what other services say -----------------------------------------------------------------

    def observe(self, seen: Observed) -> None:
        """The watch shows this version of a ScheduleRun, without its texts.

        A deletion needs no more; a run that is followed already changes by our own status writes
        and is not read again. Every other one is read when it is its turn.
        """
        if self.states.was_deleted(seen.uid):
            return
        if seen.deleted:
            self._remove(seen.uid)
        elif self._is_news(seen.uid):
            self._unread[seen.uid] = seen
            self._look_soon(seen.uid)

    def _is_news(self, uid: str) -> bool:
        """Whether a ScheduleRun is unknown, or was changed by others."""
        run = self.states.get(uid)
        return run is None or run.is_outdated

    async def _read(self, seen: Observed) -> None:
        """Follow the object as it is now; raises ApiError."""
        uid = seen.uid
        item = await schedules.read_run(
            self._term.api, seen.namespace, seen.name, not_before=seen.version
        )
        if item is None or item.metadata.uid != uid or self.states.was_deleted(uid):
            return
        read, run = runreads.of_object(item), self.states.get(uid)
        if read.seen.deleted:
            self._remove(uid)
        elif run is None:
            self._add(read)
        elif run.is_outdated:
            self._adopt(run, read)
            self.request()

    def event(self, event: RunEvent, *, by_queue: bool) -> None:
        """Something happened to a slot; ``by_queue``: a worker says so, and says it once."""
        if not run_key(event):
            return
        if not self.states.is_complete:
            self._early_events.append((event, by_queue))
            return
        uid, slot_us = event.run_uid, event.slot_us
        if not uid:
            uid, slot_us = self.states.of_job(event.namespace, event.job_name)
        run = self.states.get(uid)
        if run is None or run.ended_us is not None or not runstate.is_about(run, event):
            return
        if by_queue:  # what a Job shows is looked up again
            run.unshown.append(event)
        if event.slot_us != slot_us:  # a Job's annotation may say another
            event = msgspec.structs.replace(event, slot_us=slot_us)
        if runstate.apply(run, event):
            self._look_soon(uid)

    def unshown(self, key: str) -> list[RunEvent]:
        """The outcomes by this ``run_key`` that no status shows."""
        known = [event for event, by_queue in self._early_events if by_queue]
        namespace, _, job_name = key.rpartition("/")
        uid = self.states.of_job(namespace, job_name)[0] if namespace else key
        if (run := self.states.get(uid)) is not None:
            known += run.unshown
        return [event for event in known if run_key(event) == key]

    def _adopt(self, run: ScheduleRunState, read: ReadRun) -> None:
        """A newer writer has published this status; what it may not show counts once more."""
        runstate.adopt_published(run, read.seen)
        run.early = list(run.unshown)

    def _forget(self, run: ScheduleRunState) -> None:
        """None of its outcomes has to be published any more."""
        run.early = []
        self._publisher.show(run, ())

    def schedule_changed(self, seen: Observed) -> None:
        """The queue holds this state of a Schedule now, or nothing of it any more."""
        if not seen.deleted:
            self._leaving.restored(seen.uid)
        for run in self.states.of_schedule(seen.namespace, seen.name):
            self._look_soon(run.seen.uid)

    async def schedule_leaves(self, seen: Observed) -> None:
        """A deleted Schedule is about to leave the queue; raises QueueUnavailable."""
        await self._leaving.leave(seen)

    def request(self) -> None:
        """Slots may have been lost: take an inventory."""
        self._requested.set()

    # -- the inventory ---------------------------------------------------------------------------

    async def _take_inventory(self) -> None:
        self._requested.clear()
        known = {
            run.seen.uid: frozenset(run.course.open)
            for run in self.states
            if run.ended_us is None and not run.is_outdated
        }
        before = self.states.uids()
        found: dict[str, list[occurrences.HeldOccurrence]] = {}
        if known or not self.states.is_complete:  # else this term has nothing in the queue
            found = await occurrences.read(self._term.queue)
            await self._catch_up()
        listed = await runreads.all_listed(self._term.api, self._term.namespaces, self._term.clock)
        self._compare(listed, before)
        for run in self.states:
            if run.ended_us is None and run.wanted is not None:
                uid = run.seen.uid
                held = frozenset(occurrence.slot_us for occurrence in found.get(uid, ()))
                self._apply(run, runstate.InventoryFacts(held=held, about=known.get(uid)))
        self.states.is_complete = True
        self._inventoried.set()
        early, self._early_events = self._early_events, []
        for event, by_queue in early:
            self.event(event, by_queue=by_queue)
        for key in {run_key(event) for event, _ in early}:
            if not self.unshown(key):
                self._term.services.records.shown_of_run(key)
        for uid, left in found.items():
            # ScheduleRuns that were deleted while no leader watched leave the queue.
            if uid not in self.states and uid not in listed:
                await self._report_withdrawn(await self._enqueuer.withdraw_all(left))

    def _apply(self, run: ScheduleRunState, facts: runstate.InventoryFacts) -> None:
        if facts.about or facts.about is None:
            runstate.suspect_lost(run, facts)
            if runstate.is_unknown(run) or facts.about is None:
                self._look_soon(run.seen.uid)

    def _compare(self, listed: Mapping[str, ReadRun], before: frozenset[str]) -> None:
        for uid in before - listed.keys():
            self._remove(uid)
        for uid, read in listed.items():
            run = self.states.get(uid)
            if read.seen.deleted:
                self._remove(uid)
            elif run is None and not self.states.was_deleted(uid):
                self._add(read)
            elif run is not None and run.is_outdated:
                self._adopt(run, read)

    async def _report_withdrawn(self, waiting: Collection[occurrences.HeldOccurrence]) -> None:
        """These deliveries waited for another attempt, and no worker will report their end."""
        if waiting:
            await self._catch_up()  # earlier outcomes of these slots come first
        for held in waiting:
            ended = occurrences.withdrawn(held, self._term.clock.now_us())
            self._term.services.reporter.withdrawn(ended)

    # -- coming and going ------------------------------------------------------------------------

    def _add(self, read: ReadRun) -> None:
        seen, run = read.seen, runstate.run_of(read)
        if not seen.status or not run.is_published:
            run.facts = runstate.InventoryFacts(
                held=frozenset()
            )  # new: no slot can be in the queue
        self.states.add(run)
        self._look_soon(seen.uid)

    def _remove(self, uid: str) -> None:
        run = self.states.remove(uid)
        self._publisher.writer.forget(uid)
        if run is None:
            return
        self._forget(run)
        if run.ended_us is None:  # a look that is under way may be opening slots
            self._withdrawing[uid] = run
            self._look_soon(uid)

    def _look_soon(self, uid: str) -> None:
        self._tasks.put(uid, uid)

    async def _handle(self, uid: str) -> float | None:
        if (seen := self._unread.get(uid)) is not None:
            if self._is_news(uid):
                await self._read(seen)
            if self._unread.get(uid) is seen:
                del self._unread[uid]
        run = self.states.get(uid)
        return await (self._withdraw(uid) if run is None else self._look(run))

    async def _withdraw(self, uid: str) -> None:
        run = self._withdrawing.get(uid)
        if run is None:
            return
        await self._find(run)
        if run.known is not None:
            await self._report_withdrawn(await self._enqueuer.withdraw(run))
        # A look that was under way may have guarded slots again.
        self.states.release(run, ())
        self._forget(run)
        self._withdrawing.pop(uid, None)

    # -- one ScheduleRun -------------------------------------------------------------------------

    async def _look(self, run: ScheduleRunState) -> float | None:
        """Do what is to be done now; seconds until the next look, None = at the next event."""
        if run.ended_us is not None:
            return await self._outlive(run)
        self._warn(run)
        run.verdict, wait = await self._proceed(run)
        if run.seen.uid in self.states:
            self._publisher.publish(run, run.verdict)
        return wait

    async def _proceed(self, run: ScheduleRunState) -> tuple[runstatus.RunVerdict, float | None]:
        if run.wanted is None:
            assert run.refusal is not None  # noqa: S101 - one of the two is there
            return run.refusal, None
        missing = await self._find(run)
        if run.orphaned is not None:
            return await self._account(run, run.orphaned)
        if missing is not None:
            is_absent = missing.conditions[0].reason is Reason.SCHEDULE_NOT_FOUND
            return missing, _ABSENT_SECONDS if is_absent else _NOT_READY_SECONDS
        runstate.apply_early(run)
        if run.facts is not None:
            await self._resolve(run)
        self.states.guard(run)
        run.planned = runstate.count(run)
        if (refusal := occurrences.refusal(run)) is not None:
            return refusal, None
        standing = runstatus.standing(run.wanted, run.course, run.planned)
        if not standing.has_ended and not run.has_begun:
            run.begins_with = run.schedule_uid
            return standing, None  # it is looked at again as soon as that is published
        wait: float | None = None
        if runstate.is_unknown(run):
            self.request()
        else:
            wait = await self._enqueue(run)
        return runstatus.standing(run.wanted, run.course, run.planned), wait

    async def _account(
        self, run: ScheduleRunState, state: Orphaned
    ) -> tuple[runstatus.RunVerdict, float | None]:
        """Its Schedule was deleted: what had started is accounted for, and nothing more starts."""
        now = self._term.clock.monotonic()
        if not state.is_caught_up or orphaned.is_patience_over(run, now):
            await self._catch_up()  # outcomes that came before count before anything is missed
            state.is_caught_up = True
        if (withdrawn := self._leaving.withdrawn(run.begins_with, run.seen.uid)) is not None:
            state.withdrawn = withdrawn
        owner = jobs.JobOwner(*run.schedule_key, run.begins_with)
        labelled = await jobs.labelled(self._term.api, *run.schedule_key)
        # Jobs that lost their owner with the Schedule are runs of it all the same.
        found = [job for job in labelled if jobs.is_released(job) or jobs.is_run_of(job, owner)]
        orphaned.account(run, found, now=now, now_us=self._term.clock.now_us())
        self.states.guard(run)
        verdict = orphaned.verdict(run)
        return verdict, None if verdict.has_ended else orphaned.look_seconds(state, now)

    async def _find(self, run: ScheduleRunState) -> runstatus.RunVerdict | None:
        """Its Schedule as the queue holds it now; else the verdict that says why there is none.

        ``orphaned`` is set where it has begun and its Schedule is gone.
        """
        namespace, name = run.schedule_key
        if run.schedule_uid in self._leaving and not run.has_begun:
            run.schedule_uid = ""
        if run.schedule_uid:
            run.known = await self._definitions(run.schedule_uid, namespace)
            if run.known is not None:
                return None
        run.known = None
        found = await schedules.read(self._term.api, namespace, name)
        if found is not None and found.metadata.deletion_timestamp is not None:
            found = None
        if run.has_begun and (found is None or found.metadata.uid != run.begins_with):
            if run.orphaned is None:
                now = self._term.clock.monotonic()
                run.orphaned = Orphaned(since=now, after_us=run.course.cursor_us)
            return None
        if found is None or found.metadata.uid in self._leaving:
            run.schedule_uid = ""
            self._forget(run)  # events of slots of a Schedule that is gone do not count
            return _absent(run)
        generation = found.metadata.generation
        known = await self._definitions(found.metadata.uid, namespace)
        if known is None or known.generation < generation:
            message = f"generation {generation} of Schedule {namespace}/{name} is not in the queue;"
            message += " its own conditions say why"
            return runstatus.waiting(Reason.PENDING, message)
        run.known, run.schedule_uid = known, known.uid
        return None

    async def _resolve(self, run: ScheduleRunState) -> None:
        known = run.known
        assert known is not None  # noqa: S101 - found before
        found: Collection[jobs.Job] = ()
        if known.rule.whole_seconds and (run.course.open or run.is_published):
            found = await jobs.of_schedule(self._term.api, known.namespace, known.name, known.uid)
        runstate.resolve(run, {job.metadata.name: job for job in found})

    async def _enqueue(self, run: ScheduleRunState) -> float | None:
        """Seconds until the next try where nothing could be enqueued, else None."""
        payload: bytes | None = None
        if runstate.needs_payload(run):
            payload = await runreads.payload_of(self._term.api, run.seen)
            if payload is None:
                return _ABSENT_SECONDS  # deleted; the watch will say so
        async with run.enqueuing:
            if run.begins_with in self._leaving:
                return None
            slots_us = runstate.open_next(run)
            self.states.guard(run)
            trouble = await self._enqueuer.enqueue(run, slots_us, payload)
        if trouble is not None:
            raise trouble
        return None

    def _warn(self, run: ScheduleRunState) -> None:
        """A ScheduleRun with a time to live that is kept in Git runs again and again."""
        if run.is_warned or run.is_published:
            return
        run.is_warned = True
        if run.seen.kept_in_git and run.wanted is not None and run.wanted.ttl_seconds is not None:
            self._term.record(runstates.kept_in_git(run.seen))

    async def _outlive(self, run: ScheduleRunState) -> float | None:
        """It has ended: delete it when its time to live is over."""
        self._forget(run)
        if run.wanted is None or run.wanted.ttl_seconds is None or run.ended_us is None:
            return None
        end_us = run.ended_us + run.wanted.ttl_seconds * 1_000_000
        left = (end_us - self._term.clock.now_us()) / 1e6
        if left > 0:
            return left
        await schedules.delete_run(self._term.api, run.seen.namespace, run.seen.name, run.seen.uid)
        return None


def _absent(run: ScheduleRunState) -> runstatus.RunVerdict:
    """No slot of it can run."""
    namespace, name = run.schedule_key
    message = f"there is no Schedule {namespace}/{name}; it runs once there is one"
    return runstatus.waiting(Reason.SCHEDULE_NOT_FOUND, message)
