"""The reporter: applies all news about a Schedule to its state, and reports what has changed.

It receives reports of the reconciler, run events, observed objects and Jobs. It applies each to the
state of its Schedule at once, and then queues a status write, records Kubernetes Events for users,
and calls other services. A change by an edit is written at once; a change by runs within two
seconds of the first one, and at most every two seconds for each object. Only the reporter changes
a ``ScheduleState``.

A status is rendered just before it is written, so it is always the newest; one that has not changed
is not written. A write that failed is retried without a read, which is harmless. A write that found
another object under the name is dropped. A write that was refused comes from a leader that is
behind, or does not match the schema; it is retried.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable

import msgspec

from duepoint import errors, telemetry
from duepoint.controller import statusconditions
from duepoint.controller.observed import UNKNOWN, Observed
from duepoint.controller.status import events as changes
from duepoint.controller.status import folding, published, render, state
from duepoint.controller.status.state import ScheduleState
from duepoint.controller.statusconditions import Report
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.kube import errors as kube_errors
from duepoint.kube import events as kube_events
from duepoint.runs import summary as summaries
from duepoint.runs.run import ENDED, RunEvent, RunState
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition

#: The longest time that a status lags behind the runs of its Schedule in a calm cluster.
_STALENESS_SECONDS = 2.0
_PARALLEL_WRITES = 2
#: The API server decodes and checks all of an object whose status is written, so Jobs would wait
#: behind many large ones. They are written one at a time, with rests of so many times the write.
_REST_AFTER_LARGE = 2
_MOST_RETRY_SECONDS = 60.0
#: The wait after a change that another may follow at once, as a run's end its start: one write.
_START_SECONDS = 1.8
#: When the status of a slot that waits without trouble is written.
_WAITING_SECONDS = 10.0


class Reporter:
    """The service; one for each term of a leader.

    Attributes:
        states: by uid; only this service changes them. "Published" means in the API server: the
            history limits delete Jobs by that alone. Other queries use all that we know.
    """

    def __init__(self, term: TermContext) -> None:
        self.states: dict[str, ScheduleState] = {}
        self._term = term
        #: Statuses to write, by whether large, then by uid; urgent ones and others take turns.
        self._writes: dict[bool, WorkQueue[str]] = {
            is_large: WorkQueue(
                term.clock,
                "status not written",
                lane=lambda uid: str(uid in self.states and self.states[uid].is_urgent),
                ends=(),
                most_seconds=_MOST_RETRY_SECONDS,
            )
            for is_large in (False, True)
        }

    async def run(self) -> None:
        """Write until cancelled."""
        telemetry.before_scrape.add(self._count_failing)
        try:
            async with asyncio.TaskGroup() as group:
                for is_large, queue in self._writes.items():
                    group.create_task(queue.run(self._publish, 1 if is_large else _PARALLEL_WRITES))
        finally:
            telemetry.before_scrape.discard(self._count_failing)
            telemetry.schedules_failing.clear()

    async def _count_failing(self) -> None:
        """Set the gauge of failing Schedules, right before a scrape reads it."""
        failing = Counter(
            telemetry.namespace_label(one.namespace)
            for one in self.states.values()
            if one.shows_failing
        )
        telemetry.schedules_failing.clear()
        for label, count in failing.items():
            telemetry.schedules_failing.labels(label).set(count)

    # -- objects ------------------------------------------------------------

    def adopt(self, seen: Observed) -> None:
        """Take note of an observed object; a new one's status counts as the last one written."""
        schedule, now_us = self.states.get(seen.uid), self._term.clock.now_us()
        if schedule is None:
            schedule = self.states[seen.uid] = state.state_of(seen, self._term.installation)
            if records := self._term.services.outcomes.found.pop(seen.uid, None):
                state.adopt_records(schedule, records)
                self._changed(schedule, _START_SECONDS)
            may_resume = b'"suspendUntil"' in seen.spec
            due_us = state.first_look_us(schedule, now_us, may_resume=may_resume)
            if due_us is not None:
                self.look(seen.uid, max(_START_SECONDS, (due_us - now_us) / 1e6))
            return
        schedule.is_large = seen.is_large
        if seen.version <= schedule.version or seen.status == UNKNOWN:
            return
        schedule.version = seen.version
        shown = published.read(seen.status)
        if shown.managed_by in ("", self._term.installation):
            schedule.is_overwritten = shown != schedule.last()
            if schedule.is_overwritten:
                self.look(seen.uid, self._rest(schedule))
        else:
            self._term.services.others.found(seen, self._term.record)

    def report(self, uid: str, report: Report) -> None:
        """Apply a report of the reconciler."""
        schedule = self.states.get(uid)
        if schedule is None:
            return
        is_new = state.has_news(schedule, report)
        if state.apply_report(schedule, report):
            self._reported(schedule, is_new=is_new)

    def _reported(self, schedule: ScheduleState, *, is_new: bool) -> None:
        """Publish the newest report, as its check lets it stand."""
        assert schedule.report is not None  # noqa: S101 - it was applied
        report = statusconditions.as_checked(schedule.report, schedule.check)
        if is_new:
            self._record_all(changes.of_report(schedule.object, report))
        schedule.is_urgent = True
        self._changed(schedule)
        check = schedule.check if schedule.report.awaits_check else None
        is_of_this = check is not None and check.generation >= schedule.generation
        if check is not None and is_of_this and check.reason == Reason.INVALID_SPEC:
            self._refuse(schedule, Reason.INVALID_SPEC, check.message)  # only an edit can mend it

    def _refuse(self, schedule: ScheduleState, reason: Reason, message: str) -> None:
        """Remove a Schedule from the queue until the next edit."""
        refusal = statusconditions.stalled(schedule.generation, reason, message)
        self._term.services.reconciler.refuse(
            schedule.namespace, schedule.name, schedule.uid, refusal
        )

    def stored(self, uid: str, definition: Definition) -> None:
        """Take over the definition that the queue has now; nothing else has changed."""
        schedule = self.states.get(uid)
        if schedule is not None and schedule.definition is not None:
            schedule.definition = definition

    def restored(self, seen: Observed) -> None:
        """Handle a restored object: reports of newer generations are no longer true."""
        if (schedule := self.states.get(seen.uid)) is not None:
            state.restore(schedule, seen.status)

    def forget(self, uid: str) -> None:
        """Drop the state of an object that is gone."""
        self.states.pop(uid, None)
        self._term.services.outcomes.shown(uid)

    # -- events of runs --------------------------------------------------------------------------

    def event(self, event: RunEvent, *, by_queue: bool = False) -> None:
        """Apply a run event.

        Args:
            event: what happened to a slot.
            by_queue: whether a worker with the claim reported it; only such a worker ends slots.
        """
        self._term.services.runs.event(event)
        self._term.on_run(event)
        schedule = self.states.get(event.uid)
        if schedule is None:
            return  # its Schedule is gone
        if event.state is RunState.REPLACING:
            folding.announce(schedule, event)
            self._term.services.jobs.request(event.uid)
        elif event.state is RunState.CHECKED:
            self._check(schedule, event)
        elif event.state is RunState.PENDING:
            if not event.run_uid:  # else the ScheduleRun shows its slot
                self._put_off(schedule, event)
        elif (
            (event.job_name or (event.run_uid and not by_queue))
            and (event.state in ENDED or event.reason == Reason.RUN_FAILED)
            and not schedule.is_running(event)
        ):
            return  # it was counted, or a worker's report of its start will trigger a read
        else:
            self._fold(schedule, event, by_queue=by_queue)

    def _fold(self, schedule: ScheduleState, event: RunEvent, *, by_queue: bool) -> None:
        before = schedule.runs()
        folding.fold(schedule, event, by_queue=by_queue)
        after = schedule.runs()
        self._record_all(changes.of_event(schedule.object, event, before, after))
        if event.job_name:  # the metric of a delivery's end is counted by its worker
            _count_results(event.namespace, before, after)
        if event.is_regular and event.generation == schedule.generation:
            is_refused = event.reason == Reason.INVALID_JOB_TEMPLATE
            is_refused = is_refused and after.counts.missed > before.counts.missed
            schedule.refusals = schedule.refusals + 1 if is_refused else 0
            if schedule.refusals == statusconditions.REFUSALS:
                message = statusconditions.REFUSED + event.message
                self._refuse(schedule, Reason.INVALID_JOB_TEMPLATE, message)
        if event.state is not RunState.RUNNING:
            self._changed(schedule)
            return
        self._changed(schedule, _START_SECONDS)
        if event.job_name:
            self._term.services.jobs.late.record(event)
            self._term.services.jobs.request(event.uid)

    def _put_off(self, schedule: ScheduleState, event: RunEvent) -> None:
        uid, before = event.uid, schedule.runs()
        folding.put_off(schedule, event)
        after = schedule.runs()
        if event.reason:
            self._changed(schedule, _START_SECONDS)
        else:  # mostly the slot ends sooner, and one write shows its end
            self.look(uid)
        if event.reason == Reason.FORBIDDEN:
            self._term.services.jobs.request(uid)  # finished Jobs may fill the quota
        if event.reason and not summaries.has_ended(after, event.slot_us):
            self._record_all(changes.of_event(schedule.object, event, before, after))

    def _check(self, schedule: ScheduleState, check: RunEvent) -> None:
        """Apply a worker's check of the Secrets that a generation refers to."""
        answered = schedule.answered
        if state.apply_check(schedule, check):
            if check.reason == Reason.SECRET_UNAVAILABLE:
                self._term.record(
                    changes.new_event(schedule.object, "Reconcile", check.reason, check.message)
                )
            self._reported(schedule, is_new=schedule.generation > answered)

    # -- Jobs ------------------------------------------------------------------------------------

    def pods_refused(self, uid: str, job: kube_events.ObjectReference | None, message: str) -> None:
        """Report why a Job of the Schedule gets no Pods; None = no Job lacks Pods any more."""
        schedule = self.states.get(uid)
        if schedule is None or schedule.refused_pods == message:
            return
        schedule.refused_pods = message
        if job is not None:
            self._term.record(
                changes.new_event(schedule.object, "Run", Reason.PODS_REFUSED, message, related=job)
            )
        self._changed(schedule, _START_SECONDS)

    # -- what the queue shows --------------------------------------------------------------------

    async def definition(self, uid: str) -> Definition | None:
        """Return the definition in the queue, read at most once; raises QueueUnavailable."""
        schedule = self.states.get(uid)
        if schedule is None:
            return None
        is_unread = schedule.definition is None and not schedule.holds_nothing
        if is_unread and schedule.conditions is None:
            read = await self._term.services.reconciler.stored(uid, schedule.namespace)
            if schedule.conditions is None:  # no report arrived meanwhile
                schedule.definition = read
        return schedule.definition

    async def _read_queue(self, schedule: ScheduleState) -> None:
        """Read the position of the chain and the open slots from the queue into the state.

        Raises QueueUnavailable.
        """
        now_us, known = self._term.clock.now_us(), schedule.definition
        if not schedule.holds_nothing:
            stored = await self._term.services.reconciler.stored(schedule.uid, schedule.namespace)
            if not (stored and known and stored.timing_generation == known.timing_generation):
                return  # an edit is about to be reported, or the queue was emptied
            if not await folding.read_slots(self._term, schedule, stored):
                self.look(schedule.uid, _START_SECONDS)
        if folding.lost_deliveries(schedule, now_us):
            await self._term.services.outcomes.catch_up()
            for slot_us in folding.lost_deliveries(schedule, now_us):
                folding.end_unobserved(schedule, slot_us, now_us)

    # -- statuses --------------------------------------------------------------------------------

    async def _publish(self, uid: str) -> float | None:
        """Write one status in its turn; return seconds until the next look, None = no look."""
        # With 100,000 objects, a write costs the API server as much time as a page of their list.
        await self._term.services.resync.listed.wait()
        if (schedule := self.states.get(uid)) is None:
            return None
        await self._term.take_write(schedule.changed_at)
        changed_at, is_urgent = schedule.changed_at, schedule.is_urgent
        schedule.changed_at, schedule.is_urgent = None, False
        begun_at = self._term.clock.monotonic()
        try:
            await self._write(schedule)
        except Exception as trouble:
            schedule.changed_at = changed_at
            schedule.is_urgent = schedule.is_urgent or is_urgent
            self._note(trouble)
            raise
        if changed_at is not None:
            staleness = self._term.clock.monotonic() - changed_at
            telemetry.status_staleness_seconds.observe(staleness)
        if schedule.is_large:
            took = self._term.clock.monotonic() - begun_at
            await self._term.clock.sleep(_REST_AFTER_LARGE * took)
        now_us = self._term.clock.now_us()
        change_us = now_us if schedule.is_overwritten else state.next_change_us(schedule, now_us)
        return None if change_us is None else max((change_us - now_us) / 1e6, self._rest(schedule))

    async def _write(self, schedule: ScheduleState) -> None:
        """Render the status, and write it if it has changed; raises ApiError."""
        uid = schedule.uid
        await self.definition(uid)
        with contextlib.suppress(errors.TryLater):  # without Redis, render what was read before
            await self._read_queue(schedule)
        now_us = self._term.clock.now_us()
        state.resume(schedule, now_us)
        runs, fields = schedule.runs(), render.status_at(schedule, now_us)
        if not (are_stored := self._term.services.outcomes.are_stored(uid)):
            told = {"conditions": fields.conditions, "observed_generation": schedule.generation}
            fields = msgspec.structs.replace(schedule.last(), **told)  # no counts yet, but why
        if fields != schedule.last() or schedule.is_overwritten:
            version = await self._term.write_status(schedule, msgspec.to_builtins(fields))
            self._term.health.well("status")
            if version is None:
                return  # the watch will show that the object is gone
            schedule.written_at = self._term.clock.monotonic()
            schedule.published = msgspec.json.encode(fields)
            schedule.is_overwritten = False
            schedule.version = max(schedule.version, version)
            self._term.services.jobs.request(uid)
        if not are_stored:
            raise errors.QueueUnavailable("what runs have come to is not stored yet")
        # The status shows all of the ledger's record, except that a Job is being replaced, and
        # the active runs that it has no room for.
        is_shown = not runs.replacing and len(runs.running) == len(schedule.last().active)
        if runs is schedule.summary and is_shown:
            self._term.services.outcomes.shown(uid)

    def _note(self, trouble: Exception) -> None:
        """Report that the API server takes no statuses; pause if it asks for that."""
        if not isinstance(trouble, kube_errors.ApiError) or isinstance(
            trouble, kube_errors.Invalid
        ):
            return
        if isinstance(trouble, kube_errors.Throttled):
            for queue in self._writes.values():
                queue.pause(trouble.retry_after_seconds or 1.0)
        if self._term.health.unwell("status", str(trouble)):
            telemetry.logger.warning("statuses cannot be written", error=str(trouble))

    def look(self, uid: str, seconds: float = _WAITING_SECONDS) -> None:
        """Look in ``seconds`` at the latest whether the status has changed."""
        is_large = uid in self.states and self.states[uid].is_large
        self._writes[is_large].put(uid, uid, after=seconds)

    def _changed(self, schedule: ScheduleState, least_seconds: float = 0.0) -> None:
        """Queue a changed status, due after this and after a rest; an urgent one at once."""
        if schedule.changed_at is None:
            schedule.changed_at = self._term.clock.monotonic()
        seconds = max(least_seconds, self._rest(schedule))
        self.look(schedule.uid, 0.0 if schedule.is_urgent else seconds)

    def _rest(self, schedule: ScheduleState) -> float:
        """Return the seconds until a change of runs may be written: two after the last write."""
        return max(0.0, schedule.written_at + _STALENESS_SECONDS - self._term.clock.monotonic())

    # -- helpers ---------------------------------------------------------------------------------

    def _record_all(self, recorded: Iterable[kube_events.Event]) -> None:
        for event in recorded:
            self._term.record(event)


def _count_results(namespace: str, before: summaries.Summary, after: summaries.Summary) -> None:
    """Count in the metrics what an event of a Job adds to its Schedule's results."""
    label = telemetry.namespace_label(namespace)
    for result, count in (
        (RunState.SUCCEEDED, after.counts.succeeded - before.counts.succeeded),
        (RunState.FAILED, after.counts.failed - before.counts.failed),
        (RunState.REPLACED, after.counts.replaced - before.counts.replaced),
    ):
        if count > 0:
            telemetry.run_results_of(label, "job", result).inc(count)
