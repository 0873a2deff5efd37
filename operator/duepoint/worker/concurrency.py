"""Decides by its schedule's concurrency policy whether a claimed slot may start now.

The queue counts the active runs and decides. Before a slot is refused or put off because of a Job,
the worker lists the Jobs, so that one that was deleted by hand, or ended while no worker watched,
delays no slot. None of this needs a leader. Streams end at once and need no decision, nor do
schedules that allow everything. Nothing here writes a settlement: the answer says how the attempt
goes on, or ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from duepoint import errors, telemetry
from duepoint.delayqueue import activeruns, messages, overlaps
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.delayqueue.messages import Settlement
from duepoint.delayqueue.overlaps import Facts, Verdict
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, times
from duepoint.runs.run import ENDED, RunEvent, RunState, Together
from duepoint.schedules import actions, slots
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import PointKind
from duepoint.targets import jobtarget, target
from duepoint.targets import outcome as outcomes
from duepoint.targets.jobtarget import JobState
from duepoint.targets.outcome import Retry
from duepoint.worker import endings
from duepoint.worker.plan import Attempt
from duepoint.worker.settler import Settler

#: A waiting slot asks again by itself after this, doubled each time up to ``LONGEST_BACKSTOP_US``.
BACKSTOP_US = 30_000_000
LONGEST_BACKSTOP_US = 300_000_000
#: Most requests about one slot before it is put off; each adds the facts that the last one lacked.
_ROUNDS = 10
_LOOK_AGAIN_US = 1_000_000
_BY_A_NEWER_ONE = "a newer slot took its place"
#: Targets that a policy applies to; entries and records end at once.
LASTING = (actions.JobAction, actions.WebhookAction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The slot may start.

    Attributes:
        run: the run to count; None if its Job exists already and nothing is counted.
        replaced: Jobs that were deleted in its favour.
        made_before: the outcome in place of an answer to a request, if its Job was seen. It is not
            created again: it may have been deleted since, in favour of a newer slot, and would be
            made twice.
    """

    run: activeruns.ActiveRun | None
    replaced: tuple[str, ...] = ()
    made_before: outcomes.Delivered | None = None


#: The slot may start; or it ends without this attempt, or waits in the queue; or it is put off.
Answer = Start | Settlement | Retry


def _run(attempt: Attempt, job: str) -> activeruns.ActiveRun:
    run = activeruns.run_of(attempt.point.member)
    return activeruns.active(run, attempt.point.timing_version, job)


class Question:
    """Asks the queue, and the API server if needed, whether one attempt may start."""

    def __init__(
        self,
        queue: DelayQueue,
        jobs: jobtarget.ActiveJobs,
        settler: Settler,
        attempt: Attempt,
        firing: target.Firing,
    ) -> None:
        self._queue = queue
        self._jobs = jobs
        self._settler = settler
        self._attempt = attempt
        self._known = attempt.definition
        self._place = self._known.namespace, self._known.name, self._known.uid
        #: The schedule's policy, or the one that a ScheduleRun sets instead.
        self._policy = attempt.record.concurrency or self._known.rule.policy.concurrency_policy
        #: The name of the slot's own Job; empty if it makes none.
        is_job = isinstance(firing.action.target, actions.JobAction)
        self._job = jobbuilder.job_name(firing) if is_job else ""
        self._exists = False

    async def ask(self) -> Answer:
        """Return how the attempt goes on; no error of queue or API server is raised."""
        deadline_us = _deadline_us(self._attempt)
        has_waited = self._attempt.point.kind is PointKind.QUEUED
        if has_waited and deadline_us is not None and self._settler.claim.judged_us > deadline_us:
            message = "startingDeadlineSeconds passed while it waited for a run to end"
            return self._end(RunState.MISSED, Reason.DEADLINE_EXCEEDED, message)
        try:
            ended = await self._made_or_ended_before()
            return await self._admitted() if ended is None else ended
        except kube_errors.ApiError as trouble:
            if isinstance(trouble, kube_errors.Forbidden):
                return _put_off(str(trouble), None, Reason.FORBIDDEN)
            return _put_off(str(trouble), target.after_us(trouble), Reason.API_UNAVAILABLE)
        except (errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.warning("concurrency not judged", error=str(trouble))
            return target.not_started()
        except Exception as bug:  # noqa: BLE001 - one schedule's trouble is not its neighbours'
            namespace, schedule, _ = self._place
            telemetry.logger.exception(
                "concurrency not judged", namespace=namespace, schedule=schedule
            )
            return _put_off(f"{type(bug).__name__} in the worker", None)

    async def report(
        self, start: Start | None, answer: outcomes.Outcome, ending: Settlement
    ) -> None:
        """Report how the attempt went, and add the end of its run unless that goes on.

        If its Job replaced others, report those; delete it if it was itself replaced meanwhile. If
        the queue or the API server does not answer, nothing is lost: the next slot finds both runs
        again.
        """
        is_over = any(
            isinstance(event, RunEvent) and event.state is not RunState.RUNNING
            for event in ending.events
        )
        if not ending.occurrences and (start is None or not self._job or is_over):
            ended = activeruns.EndedRun(definition=self._known, run=_run(self._attempt, self._job))
            ending.left.append(ended)
        if start is None or start.run is None or self._policy != overlaps.REPLACE:
            return
        if not self._job or not isinstance(answer, outcomes.Delivered):
            return
        try:
            found = await self._queue.concurrency.leave(
                self._settler.claim, self._known, jobs=start.replaced, look=start.run.run
            )
            if found.state is activeruns.ActiveRunState.REPLACED:
                await self._delete((start.run,), _BY_A_NEWER_ONE)
        except (errors.TryLater, errors.WorldChanged, kube_errors.ApiError) as trouble:
            telemetry.logger.warning("replaced runs not reported", error=str(trouble))

    def _start(
        self, run: activeruns.ActiveRun | None, replaced: tuple[str, ...] = (), *, exists: bool
    ) -> Start:
        made = None
        if exists:  # another request of the attempt that made it may still be in flight
            now_us = self._settler.now_us()
            made = outcomes.Delivered(
                accepted_us=now_us, running=True, job_name=self._job, may_come_again=True
            )
        return Start(run=run, replaced=replaced, made_before=made)

    async def _admitted(self) -> Answer:
        over = frozenset(self._settler.ended_runs(self._known.id))
        facts = Facts(over=over, checked=not self._job)
        for _ in range(_ROUNDS):
            request = self._request(facts)
            answer = await self._queue.concurrency.admit(self._settler.claim, request)
            match answer.verdict:
                case Verdict.IN:
                    message = f"the slot of {times.time_text(self._attempt.slot_us)} took its place"
                    if not await self._delete(answer.runs, message):
                        return target.not_started()
                    names = tuple(one.job for one in answer.runs)
                    return self._start(request.run, names, exists=self._exists)
                case Verdict.UNKNOWN | Verdict.CHECK:
                    more = await self._with_jobs(facts, answer)
                    if not isinstance(more, Facts):
                        return more
                    facts = more
                case Verdict.REPLACED:
                    return await self._replaced()
                case verdict:
                    return self._ended(verdict)
        return _put_off("other runs began and ended while this slot was decided on", _LOOK_AGAIN_US)

    def _request(self, facts: Facts) -> overlaps.Request:
        attempt, known, policy = self._attempt, self._known, self._known.rule.policy
        mark = str(known.generation)
        if policy.concurrency_policy == overlaps.ALLOW:
            mark = f"{mark}/{self._settler.claim.id.hex()}"  # other runs are not counted
        is_queue = self._policy == overlaps.QUEUE
        return overlaps.Request(
            member=attempt.point.member,
            run=_run(attempt, self._job),
            version=known.timing_version,
            policy=self._policy,
            most=1 if self._policy == overlaps.REPLACE else policy.max_concurrency,
            mark=mark,
            waiting=_waiting(attempt, self._settler.now_us()) if is_queue else None,
            limit=policy.queue_limit,
            facts=facts,
        )

    # -- Jobs of the API server ------------------------------------------------------------------

    async def _with_jobs(self, facts: Facts, answer: overlaps.Answer) -> Facts | Answer:
        """List the Jobs; return the facts with what the queue asked for, or a final answer."""
        try:
            listed = await self._listed()
        except kube_errors.ApiError:
            if self._policy != overlaps.QUEUE:
                raise
            return dataclasses.replace(facts, blind=True)  # the slot can wait without that fact
        own, is_unknown = self._own(listed), answer.verdict is Verdict.UNKNOWN
        if own is JobState.OVER or (own is JobState.ACTIVE and not is_unknown):
            return self._start(None, exists=True)  # it started before, though its event may be lost
        if is_unknown and self._is_replaced(listed):
            return await self._replaced()
        names = {job.name for job in listed if job.state is JobState.ACTIVE}
        ended = {one for one in answer.runs if one.job not in names}
        active = {one.run for one in answer.runs if one not in ended}
        facts = dataclasses.replace(
            facts,
            checked=own is JobState.ABSENT,
            over=facts.over | ended,
            verified=facts.verified | active,
        )
        if not is_unknown:
            return facts
        version, schedule = self._attempt.point.timing_version, self._known.name
        seen = tuple(
            activeruns.active(
                activeruns.run_of_job(job.name, schedule, job.slot_us), version, job.name
            )
            for job in listed
            if job.name in names
        )
        verified = facts.verified | {one.run for one in seen}
        return dataclasses.replace(facts, listed=answer.mark, seen=seen, verified=verified)

    async def _listed(self) -> Sequence[jobtarget.Listed]:
        return await self._jobs.of_schedule(*self._place)

    def _own(self, listed: Sequence[jobtarget.Listed]) -> JobState:
        """Return the state of the slot's own Job, and note whether it exists."""
        slot_us = self._attempt.slot_us
        states = (job.state for job in listed if (job.name, job.slot_us) == (self._job, slot_us))
        state = next(states, JobState.ABSENT)
        self._exists = state is not JobState.ABSENT
        return state

    # -- Replace ---------------------------------------------------------------------------------

    async def _delete(self, replaced: Sequence[activeruns.ActiveRun], message: str) -> bool:
        """Report why, then delete the Jobs of these runs; return False if the claim is lost.

        In this order the operator never takes the deletion for a user's, however late it sees it,
        and even if this worker dies between the two. The watch of Jobs reports the end of each run.
        """
        if not replaced:
            return True
        now_us = self._settler.now_us()
        events: list[RunEvent | Together] = [
            endings.slot_event(
                self._known,
                one.slot_us,
                RunState.REPLACING,
                Reason.REPLACED,
                now_us,
                trigger="Manual" if one.is_wanted else "Schedule",
                message=message,
                job_name=one.job,
            )
            for one in replaced
        ]
        if not await self._settler.report(Settlement(events=events)):
            return False
        for one in replaced:
            try:
                await self._jobs.delete(*self._place, one.job)
            except kube_errors.ApiError as trouble:
                if not kube_errors.may_be_carried_out(trouble):
                    raise
                # Usually it is gone. Until the newer Job exists, only Redis shows that it was.
                await self._jobs.delete(*self._place, one.job)
        return True

    def _is_replaced(self, listed: Sequence[jobtarget.Listed]) -> bool:
        """Whether a newer slot has taken the place of this one, or is about to.

        For a queue that has lost which run replaced which. A replaced Job is deleted, so an absent
        Job does not mean that the slot never started. The Job of the newer slot, active or over,
        shows that it did. If that Job does not exist yet, a slot that has started, has no Job and
        has a due successor is over too: its Job may have been deleted in favour of the successor.
        """
        attempt = self._attempt
        if self._policy != overlaps.REPLACE or not attempt.is_regular:
            return False
        if any(job.slot_us > attempt.slot_us for job in listed):
            return True
        has_started = attempt.point.kind is PointKind.RETRY
        if self._exists or not has_started or self._known.rule.policy.catch_up_policy == "None":
            return False
        return self._is_behind()

    def _is_behind(self) -> bool:
        """Whether a newer slot is due as well."""
        known = self._known
        timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
        newest_us = timeline.at_or_before(self._settler.now_us())
        return newest_us is not None and newest_us > self._attempt.slot_us

    async def _made_or_ended_before(self) -> Answer | None:
        """Return the answer for a slot that has started or ended before; None if it has not.

        An overdue slot lists the Jobs. After a loss of Redis the newest slot may be judged first,
        and the queue has all active runs from then on. A Job of this slot that was deleted in
        favour of a newer one is in no list, but the Job of the newer one is, active or over.

        If the slot may have been tried, this looks for its own Job before the queue admits it.
        Later, the Job could have been deleted in favour of a newer one, and would be made again.
        """
        attempt = self._attempt
        if self._policy != overlaps.REPLACE or not self._job:
            return None
        is_overdue = attempt.is_regular and self._is_behind()
        if not is_overdue and not attempt.is_retry and not self._settler.claim.reclaimed:
            return None
        listed = await self._listed()
        own = self._own(listed)
        if not is_overdue:
            return None
        if own is JobState.OVER:
            return self._start(None, exists=True)
        if any(job.slot_us > attempt.slot_us for job in listed):
            return await self._replaced()
        return None

    async def _replaced(self) -> Answer:
        """End a slot whose place a newer one took; delete a Job that was created meanwhile."""
        message = "a newer slot took its place before it started"
        if not self._job and self._attempt.first_try_us:
            message = "a newer slot took its place; it is not tried again"
            return self._end(RunState.REPLACED, Reason.REPLACED, message)
        if not self._job or self._own(await self._listed()) is JobState.ABSENT:
            return self._end(RunState.SKIPPED, Reason.REPLACED, message)
        # Its Job exists, and the watch sees how it ended.
        if not await self._delete((_run(self._attempt, self._job),), _BY_A_NEWER_ONE):
            return target.not_started()
        return self._start(None, exists=True)

    def _ended(self, verdict: Verdict) -> Answer:
        policy = self._known.rule.policy
        most = policy.max_concurrency
        active = "a former run is" if most == 1 else f"{most} former runs are"
        match verdict:
            case Verdict.FORBIDDEN:
                reason, message = Reason.CONCURRENCY_LIMIT, f"{active} active"
            case Verdict.FULL:
                reason = Reason.QUEUE_FULL
                message = f"more than {policy.queue_limit} waited while {active} active"
            case Verdict.WAITS:
                attempt, now_us = self._attempt, self._settler.now_us()
                reason, message, made = Reason.CONCURRENCY_LIMIT, f"{active} active", attempt.number
                return endings.still_open(
                    attempt, reason, message, attempts=made - 1, now_us=now_us
                )
            case _:
                return target.not_started()
        return self._end(RunState.SKIPPED, reason, message)

    def _end(self, state: RunState, reason: Reason, message: str) -> Settlement:
        """Return the settlement of a slot that ends without this attempt."""
        attempt, now_us = self._attempt, self._settler.now_us()
        event = endings.attempt_event(
            attempt,
            state,
            reason,
            message,
            now_us,
            started_us=attempt.first_try_us,
            finished_us=now_us if state in ENDED else 0,
            attempts=attempt.number - 1,
            settled_us=attempt.slot_us if attempt.is_regular else 0,
            completed=attempt.completes and attempt.is_regular,
        )
        ended = activeruns.EndedRun(definition=self._known, run=_run(attempt, self._job))
        return Settlement(finished=[attempt.point.member], events=[event], left=[ended])


def _waiting(attempt: Attempt, now_us: int) -> messages.Occurrence:
    """Return the occurrence that the slot waits as; a retry or a ScheduleRun's keeps its own."""
    point, record = attempt.point, attempt.record
    if point.kind in (PointKind.PLANNED, PointKind.QUEUED):
        before = record.attempt if point.kind is PointKind.QUEUED else 0
        record = msgspec.structs.replace(record, attempt=before + 1, trigger=attempt.trigger)
        point = dataclasses.replace(point, kind=PointKind.QUEUED)
        wait_us = min(BACKSTOP_US << min(before, 10), LONGEST_BACKSTOP_US)
    else:
        wait_us = BACKSTOP_US
    due_us = now_us + wait_us
    if (deadline_us := _deadline_us(attempt)) is not None:
        due_us = max(min(due_us, deadline_us + 1), now_us)
    return messages.Occurrence(point=dataclasses.replace(point, due_us=due_us), record=record)


def _deadline_us(attempt: Attempt) -> int | None:
    """Return until when a waiting slot may start; None for a ScheduleRun's: it waits for ever."""
    return attempt.deadline_us if attempt.is_regular else None


def _put_off(message: str, after_us: int | None, reason: Reason = Reason.INTERNAL_ERROR) -> Retry:
    return Retry(reason=reason, message=message, after_us=after_us, started=False, counted=False)
