"""The reconciler of Schedules: stores each Schedule's definition in the queue and reports on it.

``Reconciler.reconcile`` handles one object: it makes the queue match ``plan.decide``. It is
idempotent, so it may be repeated after any failure: a step that is already done has no effect.
``store_absent`` refills an emptied queue in bulk first; ``reconcile`` then finds nothing to do.

Errors are reported where they belong. If Redis is unavailable, all workers pause together, with
jitter, and only objects with an unapplied change say so in their status. If our code has a bug,
that object alone becomes ``Reconciling`` with ``InternalError`` and is retried with backoff, while
the others go on. If there is a newer leader, the term ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from duepoint import errors, services, telemetry
from duepoint.controller import observed, plan, statusconditions
from duepoint.controller.observed import Observed
from duepoint.controller.schedules import dryruns
from duepoint.controller.schedules.store import Task
from duepoint.controller.status import folding, published
from duepoint.controller.status.published import Status, instant
from duepoint.controller.statusconditions import Report
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import AGAIN
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, overlaps
from duepoint.delayqueue.messages import Armed
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, jobs, schedules
from duepoint.runs.run import RunState
from duepoint.schedules import actions, points, slots, spec
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import ConditionType, Reason
from duepoint.schedules.definition import Definition

#: Concurrent workers share round trips: 32 fill an empty queue in half the CPU time of 8.
WORKERS = 32
#: A decoded spec takes a dozen times the memory of its text, so few large ones are decoded at once.
_LARGE_AT_A_TIME = 4
#: Attempts per reconcile, because the stored definition may change between read and write.
_MOST_ROUNDS = 5
#: Slots after a watermark that are checked for Jobs.
_MOST_LOOKED_AT = 2_000
#: The errors that end a term.
_ENDS = (queue_errors.Fenced, queue_errors.LayoutChanged)


class Reconciler:
    """The service; one for each term of a leader."""

    def __init__(self, term: TermContext) -> None:
        self._term = term
        self._large = asyncio.Semaphore(_LARGE_AT_A_TIME)
        self._queue_waits = services.backoff(first_seconds=0.2, most_seconds=5.0)
        #: By uid: the generations that the API server or a worker has refused in this term.
        self._refused: dict[str, Report] = {}

    async def run(self) -> None:
        """Work until cancelled; raises queue_errors.Fenced if there is a newer leader."""
        await self._term.services.store.tasks.run(self._handle, WORKERS)

    def refuse(self, namespace: str, name: str, uid: str, refusal: Report) -> None:
        """Refuse a generation that was armed: remove it from the queue until the next edit."""
        self._refused[uid] = refusal
        self._term.services.store.reconcile_again(namespace, name, uid, refusal.generation)

    # -- one object ------------------------------------------------------------------------------

    async def _handle(self, task: Task) -> float | None:
        """Read and reconcile one object; return seconds until the next try, if any."""
        try:
            if not (task.seen.deleted or task.seen.spec != observed.UNKNOWN):
                if self._term.services.store.has_applied(task.seen):
                    return None
                seen = await self._read(task.seen)
                if seen is None:
                    return None
                task = msgspec.structs.replace(task, seen=seen)
            async with self._large if task.seen.is_large else contextlib.nullcontext():
                again = await self.reconcile(task)
        except _ENDS:
            raise
        except Exception as trouble:
            self._report_waiting(task, trouble)
            if isinstance(trouble, kube_errors.ApiError) or not isinstance(
                trouble, errors.TryLater
            ):
                raise  # it concerns this object alone
            return self._queue_is_away(trouble)
        if self._term.health.well("queue"):
            telemetry.logger.info("queue available")
            self._queue_waits = services.backoff(first_seconds=0.2, most_seconds=5.0)
        return again

    async def _read(self, seen: Observed) -> Observed | None:
        """Return the object as it is now; None = gone, which the watch will report, too."""
        store = self._term.services.store
        item = await schedules.read(
            self._term.api, seen.namespace, seen.name, not_before=seen.version
        )
        if item is None or item.metadata.uid != seen.uid or store.is_deleted(seen.uid):
            return None
        found = observed.of_object(item)
        if found.deleted:
            store.queue_removal(found)
            return None
        self._term.services.reporter.adopt(found)
        return found

    async def reconcile(  # noqa: C901, PLR0911, PLR0912 - it is read from top to bottom
        self, task: Task
    ) -> float | None:
        """Make the queue match this object's spec, and report the result.

        Returns seconds until the next try; None = done.
        """
        seen, others = task.seen, self._term.services
        if seen.deleted:
            await self._remove(seen)
            return None
        if others.store.has_applied(seen):
            return None  # an older version must not overwrite a newer one
        if task.went_back:
            self._refused.pop(seen.uid, None)
            others.reporter.adopt(seen)  # the reporter may have forgotten it meanwhile

        # Do not retry a generation that this leader or a former one has refused.
        status = self._status(seen)
        if (refusal := self._refusal(seen, status)) is not None:
            return await self._refuse(task, refusal)
        try:
            wanted = self._parsed(seen)
        except errors.InvalidSpec as error:
            return await self._refuse(task, statusconditions.invalid(seen.generation, error))

        is_accepted = status.has_accepted(wanted.generation)
        for number in range(_MOST_ROUNDS):
            # Decide; decide again if the stored definition changed after we read it.
            stored = await self._still_stored(seen, wanted, status, is_text_lost=number > 1)
            made = self._decide(wanted, stored, status, task)
            if made is None:  # the queue holds a newer generation
                return self._record(task, None, stored)
            verdict = await self._verdict(wanted, made, is_accepted=is_accepted)
            if verdict is not None and verdict.reason in dryruns.REFUSALS:
                refusal = statusconditions.stalled(seen.generation, verdict.reason, verdict.message)
                is_final = verdict.reason is Reason.INVALID_JOB_TEMPLATE  # else room may come
                return await self._refuse(task, refusal, is_final=is_final)

            # Store. If the queue rejects the write, either our own write arrived and its answer was
            # lost, or someone else changed the definition or its chain. Deciding again tells.
            armed = Armed.APPLIED  # a plan without an arming is stored already
            if made.arming is not None:
                try:
                    (armed,) = await self._term.queue.writer.upsert(
                        [(made.arming, wanted.blob)], self._term.epoch
                    )
                except errors.InvalidSpec as error:  # a due time that the queue cannot store
                    invalid = statusconditions.invalid(seen.generation, error)
                    return await self._refuse(task, invalid)
            known = made.definition
            if armed is Armed.HELD and made.arming and made.arming.keep_chain:
                return self._record(task, None, stored, is_final=False)
            if armed is Armed.HELD:  # the former timing has run since: the new one counts from now
                task = msgspec.structs.replace(task, since_us=self._term.clock.now_us())
            if armed is Armed.COLLISION:
                raise errors.Bug(f"another Schedule has the id of {seen.identity}; recreate it")
            if armed is Armed.APPLIED and (is_accepted or await self._request_check(wanted, known)):
                break
        else:
            raise errors.Bug(f"the definition of {seen.identity} keeps changing")

        # Report. The Schedule is armed even without a dry-run verdict: a quota or an outage of the
        # API server must not keep an edit out of the queue.
        if stored is not None and stored.rule.policy.concurrency_policy == overlaps.QUEUE:
            others.jobs.job_ended(seen.uid, "")  # slots that wait for others may start, or end
        pending = "" if verdict is None else verdict.message
        report = statusconditions.stored(wanted, made, is_new=not is_accepted, pending=pending)
        return self._record(task, report, known, is_final=not pending)

    async def _remove(self, seen: Observed) -> None:
        """Remove a deleted Schedule from the queue and forget its state."""
        others = self._term.services
        await self._remove_definition(seen)
        self._refused.pop(seen.uid, None)
        others.reporter.forget(seen.uid)
        others.runs.schedule_changed(seen)

    async def _refuse(self, task: Task, refusal: Report, *, is_final: bool = True) -> float | None:
        """Remove the Schedule from the queue and report why."""
        await self._remove_definition(task.seen)
        return self._record(task, refusal, None, is_final=is_final)

    def _record(
        self,
        task: Task,
        report: Report | None,
        definition: Definition | None,
        *,
        is_final: bool = True,
    ) -> float | None:
        """Report what the queue holds now; return what ``reconcile`` returns."""
        seen, others = task.seen, self._term.services
        if others.store.is_deleted(seen.uid):
            return None  # the removal follows at once
        is_of_this = definition is None or definition.generation == seen.generation
        if task.went_back and is_of_this and (definition or report):
            others.reporter.restored(seen)
        if report is not None:
            others.reporter.report(seen.uid, report)
        elif definition is not None:
            others.reporter.stored(seen.uid, definition)
        if not is_final:
            return AGAIN
        others.store.record_applied(seen)
        others.runs.schedule_changed(seen)
        return None

    # -- many objects ----------------------------------------------------------------------------

    async def store_absent(self, listed: Sequence[Observed]) -> frozenset[str]:
        """Store Schedules that are absent from the queue in one call, to refill an emptied queue.

        Leaves out those that need a check first or are invalid. Returns the uids whose published
        status is already true; ``reconcile`` must handle all others.
        """
        others, now_us = self._term.services, self._term.clock.now_us()
        found: list[tuple[plan.ArmingPlan, spec.ScheduleSpec, Observed, Status]] = []
        for seen in listed:
            # Leave out large specs: this loop could decode hundreds of them at once.
            if seen.is_large or not others.store.may_store(seen):
                continue
            others.reporter.adopt(seen)
            status = self._status(seen)
            is_accepted = status.has_accepted(seen.generation)
            try:
                wanted = self._parsed(seen)
            except errors.InvalidSpec:
                continue
            target = wanted.action.target
            is_job = isinstance(target, actions.JobAction)
            needs_answer = not is_accepted and (is_job or target.needs_secrets)
            if needs_answer or actions.own_stream(target) or self._refusal(seen, status):
                continue
            made = self._decide(wanted, None, status, Task(seen=seen, since_us=now_us))
            if made is not None and made.arming is not None:
                found.append((made, wanted, seen, status))
        try:
            answers = await self._term.queue.writer.upsert(
                [(made.arming, wanted.blob) for made, wanted, _, _ in found if made.arming],
                self._term.epoch,
            )
        except (errors.InvalidSpec, errors.QueueUnavailable):
            return frozenset()  # reconciling them one by one shows which one failed, and why
        done = set()
        for (made, _, seen, status), armed in zip(found, answers, strict=True):
            if others.store.is_deleted(seen.uid):  # its removal may have come before our write
                others.store.queue_removal(seen)
            elif (
                armed is Armed.APPLIED
                and status.managed_by == self._term.installation  # else it is written again
                and status.has_accepted(seen.generation)
                and plan.is_published(status, made)
            ):
                self._record(Task(seen=seen, since_us=now_us), None, made.definition)
                done.add(seen.uid)
        return frozenset(done)

    # -- steps -----------------------------------------------------------------------------------

    def _parsed(self, seen: Observed) -> spec.ScheduleSpec:
        parsed = spec.parse(
            seen.spec,
            namespace=seen.namespace,
            name=seen.name,
            uid=seen.uid,
            generation=seen.generation,
            created_us=seen.created_us,
            fingerprint=self._term.services.store.fingerprint(seen),
        )
        if not self._term.has_own_streams and actions.own_stream(parsed.action.target) is not None:
            raise errors.InvalidSpec((statusconditions.NO_OWN_STREAMS,))
        return parsed

    def _status(self, seen: Observed) -> Status:
        """Return the published status, with the slots that this process has seen end since."""
        written = published.read(seen.status)
        known = self._term.services.states.get(seen.uid)
        if known is None or known.summary is None or not known.settled().through_us:
            return written
        # The watermark never falls, so the larger one is newer, and its open slots with it.
        settled = max(known.settled(), written.watermark, key=lambda one: one.through_us)
        if known.definition is not None:  # statuses may wait for minutes; it is armed all the same
            written = msgspec.structs.replace(
                written,
                observed_generation=max(written.observed_generation, known.answered),
                timing_hash=rules.timing_hash(known.definition.rule),
            )
        return msgspec.structs.replace(
            written,
            runs=max(written.counts, known.runs().counts, key=lambda one: one.regular),
            settled_through=instant(settled.through_us),
            open_slots=published.open_slots(settled),
        )

    def _refusal(self, seen: Observed, status: Status) -> Report | None:
        """Return why this generation was refused, in this term or, by the API server, before it.

        A worker's refusal from a former term does not count: the installation's settings may allow
        the spec by now.
        """
        if (known := self._refused.get(seen.uid)) is not None:
            if known.generation >= seen.generation:
                return replace(known, generation=seen.generation)
            del self._refused[seen.uid]
        message = status.condition(ConditionType.STALLED).message
        if status.observed_generation == seen.generation and message.startswith(
            statusconditions.REFUSED
        ):
            return statusconditions.stalled(seen.generation, Reason.INVALID_JOB_TEMPLATE, message)
        return None

    async def stored(self, uid: str, namespace: str) -> Definition | None:
        """Return the definition that the queue holds for this uid."""
        found = await self._term.queue.definitions.definition(points.schedule_id(uid, namespace))
        return found if found is not None and found.uid == uid else None

    async def _still_stored(
        self, seen: Observed, wanted: spec.ScheduleSpec, status: Status, *, is_text_lost: bool
    ) -> Definition | None:
        """Return the stored definition; remove one from before a lost edit, or without its text."""
        stored = await self.stored(wanted.uid, wanted.namespace)
        is_kept = stored is not None and not plan.is_lost_edit(wanted, stored, status)
        if is_kept or (stored is None and not is_text_lost):
            return stored
        await self._remove_definition(seen)
        self._term.services.runs.request()
        return None

    async def _verdict(
        self, wanted: spec.ScheduleSpec, made: plan.ArmingPlan, *, is_accepted: bool
    ) -> dryruns.Verdict:
        """Return why slots cannot run; None = they can."""
        facts = functools.partial(dryruns.facts_of, made.definition)
        return await self._term.services.dry_runs.verdict(
            wanted.action, wanted.namespace, facts, is_accepted=is_accepted
        )

    def _decide(
        self,
        wanted: spec.ScheduleSpec,
        stored: Definition | None,
        status: Status,
        task: Task,
    ) -> plan.ArmingPlan | None:
        return plan.decide(
            wanted,
            stored,
            status if stored is not None else self._with_jobs(wanted, status),
            task.since_us,
            target=self._term.queue.signed_blobs.digest(wanted.namespace, wanted.blob),
            went_back=task.went_back,
            acts_us=self._term.clock.now_us(),
        )

    def _with_jobs(self, wanted: spec.ScheduleSpec, status: Status) -> Status:
        """Raise the watermark over the next slots that already have Jobs; return that status.

        The workers' reports of these slots were lost, so this reports their runs.
        """
        if not status.settled_through or not wanted.rule.whole_seconds:
            return status
        owner = jobs.JobOwner(wanted.namespace, wanted.name, wanted.uid)
        reporter, now_us = self._term.services.reporter, self._term.clock.now_us()
        timeline = slots.for_rule(
            wanted.rule, identity=wanted.identity, created_us=wanted.created_us
        )
        through_us = status.watermark.through_us
        for _ in range(_MOST_LOOKED_AT):
            following = timeline.next_after(through_us)
            if following is None:
                break
            name = jobbuilder.name_of(wanted.name, following.slot_us)
            if self._term.services.jobs.find(owner, name) is None:
                break
            through_us = following.slot_us
            created = folding.of_run(
                owner,
                through_us,
                now_us,
                state=RunState.RUNNING,
                reason=Reason.RUNNING,
                started_us=min(through_us, now_us),
                settled_us=through_us,
                job_name=name,
            )
            reporter.event(created)
        return msgspec.structs.replace(status, settled_through=instant(through_us))

    async def _remove_definition(self, seen: Observed) -> None:
        schedule_id = points.schedule_id(seen.uid, seen.namespace)
        await self._term.queue.writer.remove(
            schedule_id, seen.uid, seen.namespace, self._term.epoch
        )

    async def _request_check(self, wanted: spec.ScheduleSpec, known: Definition) -> bool:
        """Ask a worker to check the Secrets, if the target needs some.

        Returns False if the queue has lost the definition again.
        """
        if not wanted.action.target.needs_secrets:
            return True
        check = points.check(known.id, known.timing_version, known.generation)
        record = messages.OccurrenceRecord(trigger="Check")
        try:
            await self._term.queue.occurrences.enqueue(known, check, record, self._term.epoch)
        except _ENDS:
            raise
        except errors.WorldChanged:
            return False
        return True

    # -- trouble ---------------------------------------------------------------------------------

    def _queue_is_away(self, trouble: errors.TryLater) -> float:
        """Let all workers wait; return what ``_handle`` returns."""
        tasks = self._term.services.store.tasks
        tasks.pause(trouble.retry_after_seconds or next(self._queue_waits))
        if self._term.health.unwell("queue", str(trouble)):
            self._term.services.index.suspect()
            telemetry.logger.warning("queue unavailable", error=str(trouble))
        return 0.0

    def _report_waiting(self, task: Task, trouble: Exception) -> None:
        """Report the error if an edit is not applied yet; otherwise it affects no user."""
        seen = task.seen
        known = self._term.services.states.get(seen.uid)
        if seen.deleted or (known is not None and known.answered >= seen.generation):
            return
        # Without a watermark, a spec that was refused before would start from its creation.
        was_refused = known is not None and known.answered >= 0 and not known.runs().settled_us
        report = statusconditions.Report(
            generation=seen.generation,
            conditions=statusconditions.not_applied(trouble),
            settled_us=task.since_us if was_refused else 0,
        )
        self._term.services.reporter.report(seen.uid, report)
