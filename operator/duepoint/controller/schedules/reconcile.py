"""Schedules, brought into the queue: ``reconcile`` is the whole of it, for one object.

``Reconciler.reconcile`` makes the queue hold what ``plan.decide`` names and reports it. It may be
repeated at any time, from any point of a former try: what is done already is found done. Of an
emptied queue many are stored at once before (``store_absent``); each is found in order then.

Trouble is reported where it belongs. Redis away: all workers wait together, with jitter, and only
statuses of objects with a change that is not applied say so. A bug of ours: that object alone is
``Reconciling`` with ``InternalError``, tried again with backoff, while the others go on. A newer
leader: the term ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import structlog

from duepoint import errors, faults, services, telemetry
from duepoint.controller import observed, plan, statusconditions
from duepoint.controller.observed import Observed
from duepoint.controller.schedules import dryruns, fingerprints
from duepoint.controller.schedules.store import Task
from duepoint.controller.status import published
from duepoint.controller.statusconditions import Report
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import AGAIN
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.messages import Armed
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, jobs, schedules
from duepoint.runs.run import RunEvent, RunState
from duepoint.runs.watermark import newest
from duepoint.schedules import actions, points, slots, spec
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition, State

#: Their calls share round trips: 32 fill an empty queue in half the CPU time of 8.
WORKERS = 32
#: A spec in objects takes a dozen times its text, so few large ones are in hand at a time.
_LARGE_AT_A_TIME = 4
#: Schedules found under one id before this is called a bug; two is already a rarity.
_MOST_COLLISIONS = 8
#: Decisions made anew because the stored definition changed meanwhile.
_MOST_ROUNDS = 5
#: Slots behind a watermark whose Jobs are looked for.
_MOST_LOOKED_AT = 2_000
#: What ends a term.
_ENDS = (queue_errors.Fenced, queue_errors.LayoutChanged)


class Reconciler:
    """The service; one for each term of a leader.

    Attributes:
        collisions: only of the few whose first id belonged to another Schedule.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        dry_runs: dryruns.DryRuns,
        has_own_streams: bool = True,
    ) -> None:
        self._term = term
        self._mark = published.mark(term.installation)
        self._key = term.queue.signed_blobs.digest("", b"fingerprint")
        self._dry_runs = dry_runs
        self._has_own_streams = has_own_streams
        self._large = asyncio.Semaphore(_LARGE_AT_A_TIME)
        self._queue_waits = services.backoff(first_seconds=0.2, most_seconds=5.0)
        self.collisions: dict[str, int] = {}
        #: What the API server or a worker has refused since this term began.
        self._refused: dict[str, Report] = {}
        #: Generations of which a Job was created while no dry run had given a verdict.
        self._proven: dict[str, int] = {}

    async def run(self) -> None:
        """Work until cancelled; raises queue_errors.Fenced where a newer leader has been here."""
        await self._term.services.store.tasks.run(self._handle, WORKERS)

    def refuse(self, namespace: str, name: str, uid: str, refusal: Report) -> None:
        """This generation is refused after it was armed: it leaves the queue until an edit."""
        self._refused[uid] = refusal
        self._term.services.store.look_again(namespace, name, uid, refusal.generation)

    def prove(self, uid: str, generation: int) -> None:
        """A Job of this generation was created: no dry run needs to say that it can be."""
        self._proven[uid] = generation
        self._term.services.store.hurry(uid)

    # -- one object ------------------------------------------------------------------------------

    async def _handle(self, task: Task) -> float | None:
        """Read it, reconcile it, and report trouble; seconds until the next try, if any."""
        try:
            if not (task.seen.deleted or task.seen.has_texts):
                if self._term.services.store.is_known(task.seen):
                    return None  # it was our own status
                seen = await self._read(task.seen)
                if seen is None:
                    return None
                task = msgspec.structs.replace(task, seen=seen)
            is_large = task.seen.size >= observed.LARGE_BYTES
            async with self._large if is_large else contextlib.nullcontext():
                again = await self.reconcile(task)
        except _ENDS:
            raise
        except kube_errors.ApiError as trouble:  # first: one that is away says "try later", too
            telemetry.logger.warning(
                "schedule not read", schedule=task.seen.identity, error=str(trouble)
            )
            return AGAIN
        except errors.TryLater as trouble:
            return self._queue_is_away(task, trouble)
        except Exception as bug:  # noqa: BLE001 - a bug in one object must not stop the others
            return self._went_wrong(task, bug)
        if self._term.health.well("queue"):
            telemetry.logger.info("queue available")
            self._queue_waits = services.backoff(first_seconds=0.2, most_seconds=5.0)
        return again

    async def _read(self, seen: Observed) -> Observed | None:
        """The object as it is now; None where it is gone, which the watch shows too."""
        store = self._term.services.store
        item = await schedules.read(
            self._term.api, seen.namespace, seen.name, not_before=seen.version
        )
        if item is None or item.metadata.uid != seen.uid or store.is_deleted(seen.uid):
            return None
        found = observed.of_object(item)
        if found.deleted:
            store.bury(found)
            return None
        self._term.services.reporter.adopt(found)
        return found

    async def reconcile(  # noqa: C901, PLR0911, PLR0912 - it is read from top to bottom
        self, task: Task
    ) -> float | None:
        """Make the queue hold what this object asks for, and report it.

        Returns seconds until the next try; None = it is done.
        """
        seen, others = task.seen, self._term.services
        if seen.deleted:
            await self._remove(seen)
            return None
        if others.store.has_applied(seen):
            return None  # an older state must not undo what a newer one did
        if task.went_back:
            self._forget(seen.uid)
            others.reporter.adopt(seen)  # it may have been forgotten meanwhile
        await faults.reach(FaultPoint.AFTER_SCHEDULE_READ)

        # A generation that was refused, here or by a former leader, is not tried again.
        status = self._status(seen)
        if (refusal := self._refusal(seen, status)) is not None:
            return await self._refuse(task, refusal)
        try:
            wanted = self._parsed(seen)
        except errors.InvalidSpec as error:
            return await self._refuse(task, statusconditions.invalid(seen.generation, error))

        # What was accepted before is not asked about again: a rebuild must not wait for answers.
        is_accepted = status.has_accepted(wanted.generation)
        if not await self._take_place(wanted, anyhow=is_accepted):
            full = statusconditions.too_many_streams(seen.generation, wanted.namespace)
            await self._refuse(task, full, is_final=False)
            return AGAIN
        needs_check = not is_accepted and wanted.action.target.needs_secrets

        for number in range(_MOST_ROUNDS):
            # Decide; anew where the queue holds another definition than it did when it was read.
            stored = await self.stored(wanted.uid, wanted.namespace)
            is_lost = stored is not None and plan.is_lost_edit(wanted, stored, status)
            if is_lost or (stored is None and number > 1):  # it is there, and its text is lost
                await self._remove_definition(seen)
                stored = None
                others.runs.request()
            made = self._decide(wanted, stored, status, task)
            if made is None:  # the queue holds a newer generation
                return self._record(task, None, stored)
            verdict = await self._verdict(wanted, made, is_accepted=is_accepted)
            if isinstance(verdict, jobs.InvalidTemplate):
                reason = Reason.INVALID_JOB_TEMPLATE
                refusal = statusconditions.stalled(seen.generation, reason, verdict.message)
                return await self._refuse(task, refusal)

            # Store. Unchanged: our own write with its answer lost, or a newer one; changed: the
            # chain to be kept is gone or another. Deciding again tells.
            armed = Armed.APPLIED  # what is stored already counts as applied
            if made.arming is not None:
                try:
                    armed = (await self._store([(made, wanted)]))[0]
                except errors.InvalidSpec as error:  # a due that the queue cannot store
                    invalid = statusconditions.invalid(seen.generation, error)
                    return await self._refuse(task, invalid)
            known = made.definition
            if armed is Armed.HELD:
                return self._record(task, None, stored, is_final=False)
            if armed is Armed.COLLISION:
                self._note_collision(known.uid, known.collision + 1)
            if armed is Armed.APPLIED and (not needs_check or await self._ask_for_check(known)):
                break
        else:
            raise errors.Bug(f"the definition of {seen.identity} does not come to rest")

        # Report. Without a verdict the Schedule is armed all the same: a quota or an outage of the
        # API server must not keep an edit from the queue.
        if plan.is_wider(stored, known):
            others.jobs.sync.widen(seen.uid)
        if isinstance(verdict, jobs.NotNow):
            report = statusconditions.dry_run_pending(wanted, made, verdict.message)
            return self._record(task, report, known, is_final=False)
        report = statusconditions.ready(wanted, made, awaits_check=needs_check)
        return self._record(task, report, known)

    async def _remove(self, seen: Observed) -> None:
        """The queue holds nothing of a Schedule that is gone, and nothing is known of it."""
        others = self._term.services
        await others.runs.schedule_leaves(seen)
        await self._remove_definition(seen)
        self.collisions.pop(seen.uid, None)
        self._forget(seen.uid)
        others.reporter.forget(seen.uid)
        others.runs.schedule_changed(seen)
        _count("removed", seen)

    async def _refuse(self, task: Task, refusal: Report, *, is_final: bool = True) -> float | None:
        """The queue holds nothing of it; its Jobs are kept by its own limits, where known."""
        await self._remove_definition(task.seen)
        self.collisions.pop(task.seen.uid, None)
        refusal = replace(refusal, keeps=spec.history_limits(task.seen.spec))
        return self._record(task, refusal, None, is_final=is_final)

    def _record(
        self,
        task: Task,
        report: Report | None,
        definition: Definition | None,
        *,
        is_final: bool = True,
    ) -> float | None:
        """Say what the queue holds now; the answer of ``reconcile``."""
        seen, others = task.seen, self._term.services
        if others.store.is_deleted(seen.uid):
            return None  # its removal follows at once
        is_of_this = definition is None or definition.generation == seen.generation
        if task.went_back and is_of_this and (definition or report):
            others.reporter.went_back(seen)
        if report is not None:
            others.reporter.report(seen.uid, report)
        elif definition is not None:
            others.reporter.held(seen.uid, definition)
        if not is_final:
            return AGAIN
        others.store.record_applied(seen)
        others.runs.schedule_changed(seen)
        _count("refused" if definition is None else _RESULTS[definition.state], seen)
        return None

    # -- many objects ----------------------------------------------------------------------------

    async def store_absent(self, listed: Sequence[Observed]) -> frozenset[str]:
        """Store those of which the queue holds nothing by one call: an emptied queue is filled so.

        What has to be asked about, or is wrong, is left out. Returns the uids of which the status
        says already what is true now; all others are still to be reconciled.
        """
        others, now_us = self._term.services, self._term.clock.now_us()
        found: list[tuple[plan.ArmingPlan, spec.ScheduleSpec, Observed, plan.PublishedStatus]] = []
        for seen in listed:
            # Hundreds of large ones would be decoded at once.
            if seen.size >= observed.LARGE_BYTES or not others.store.may_store(seen):
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
            answers = await self._store([(made, wanted) for made, wanted, _, _ in found])
        except (errors.InvalidSpec, errors.QueueUnavailable):
            return frozenset()  # which of them, and why, shows when each is alone
        done = set()
        for (made, _, seen, status), armed in zip(found, answers, strict=True):
            if others.store.is_deleted(seen.uid):  # it may have been removed before it was stored
                others.store.bury(seen)
            elif armed is Armed.APPLIED and self._is_reported(seen, status, made):
                self._record(Task(seen=seen, since_us=now_us), None, made.definition)
                done.add(seen.uid)
        return frozenset(done)

    def _is_reported(
        self, seen: Observed, status: plan.PublishedStatus, made: plan.ArmingPlan
    ) -> bool:
        """Whether the status says already what is true now.

        A status that another installation wrote is ours to write again.
        """
        is_accepted = status.has_accepted(seen.generation)
        return is_accepted and self._mark in seen.status and plan.is_published(status, made)

    # -- steps -----------------------------------------------------------------------------------

    def fingerprint(self, seen: Observed) -> bytes:
        """Of what a definition of this state would be made from."""
        return fingerprints.of(seen.spec, self._key, own_streams=self._has_own_streams)

    def _parsed(self, seen: Observed) -> spec.ScheduleSpec:
        parsed = spec.parse(
            seen.spec,
            namespace=seen.namespace,
            name=seen.name,
            uid=seen.uid,
            generation=seen.generation,
            created_us=seen.created_us,
            fingerprint=self.fingerprint(seen),
        )
        if not self._has_own_streams and actions.own_stream(parsed.action.target) is not None:
            raise errors.InvalidSpec((statusconditions.NO_OWN_STREAMS,))
        return parsed

    def _status(self, seen: Observed) -> plan.PublishedStatus:
        """What the status says, and what has ended since by what this process knows."""
        written = published.of(seen.status)
        known = self._term.services.states.get(seen.uid)
        if known is not None and known.waiting_timing and written.observed_generation < 0:
            # It was looked at, and the object was read before its status said so.
            written = msgspec.structs.replace(
                written,
                observed_generation=known.observed,
                waits=True,
                timing_hash=known.waiting_timing,
            )
        remembered = None if known is None else known.settled_if_folded()
        if known is None or remembered is None or not remembered.through_us:
            return written
        settled = newest(written.settled, remembered)
        return msgspec.structs.replace(
            written,
            started=max(written.started, known.runs().counts.regular),
            settled_us=settled.through_us,
            started_us=settled.started_us,
            waiting_us=settled.waiting_us,
            retried_us=tuple(one for one in written.retried_us if one > settled.through_us),
        )

    def _refusal(self, seen: Observed, status: plan.PublishedStatus) -> Report | None:
        """What this generation was refused with, here or, by the API server, by a forerunner.

        What a worker refused in a former term is looked at anew: the installation's settings may
        allow it by now.
        """
        if (known := self._refused.get(seen.uid)) is not None:
            if known.generation >= seen.generation:
                return replace(known, generation=seen.generation)
            del self._refused[seen.uid]
        is_of_this = status.observed_generation == seen.generation
        if is_of_this and status.stalled.startswith(statusconditions.REFUSED):
            return statusconditions.refused_again_and_again(seen.generation, status.stalled)
        return None

    def _forget(self, uid: str) -> None:
        """The object is gone, or what was found of it belongs to another state of it."""
        self._refused.pop(uid, None)
        self._proven.pop(uid, None)

    async def stored(self, uid: str, namespace: str) -> Definition | None:
        """What the queue holds for this uid."""
        first = self.collisions.get(uid, 0)
        for collision in range(first, _MOST_COLLISIONS):
            schedule_id = points.schedule_id(uid, namespace, collision=collision)
            found = await self._term.queue.definitions.definition(schedule_id)
            if found is None or found.uid == uid:
                self._note_collision(uid, collision)
                return found
        raise errors.Bug(f"{_MOST_COLLISIONS} schedules share the ids of {uid}")

    def _note_collision(self, uid: str, collision: int) -> None:
        if collision:
            self.collisions[uid] = collision

    def _decide(
        self,
        wanted: spec.ScheduleSpec,
        stored: Definition | None,
        status: plan.PublishedStatus,
        task: Task,
    ) -> plan.ArmingPlan | None:
        return plan.decide(
            wanted,
            stored,
            status if stored is not None else self._with_jobs(wanted, status),
            task.since_us,
            target=self._term.queue.signed_blobs.digest(wanted.namespace, wanted.blob),
            collision=self.collisions.get(wanted.uid, 0),
            replaces=task.replaces,
            acts_us=self._term.clock.now_us(),
        )

    def _with_jobs(
        self, wanted: spec.ScheduleSpec, status: plan.PublishedStatus
    ) -> plan.PublishedStatus:
        """The status with the slots behind its watermark that have their Jobs: they have ended.

        The workers' reports of these were lost, so their runs are counted here.
        """
        if not status.settled_us or not wanted.rule.whole_seconds:
            return status
        owner = jobs.JobOwner(wanted.namespace, wanted.name, wanted.uid)
        reporter, now_us = self._term.services.reporter, self._term.clock.now_us()
        timeline = slots.for_rule(
            wanted.rule, identity=wanted.identity, created_us=wanted.created_us
        )
        through_us = status.settled_us
        for _ in range(_MOST_LOOKED_AT):
            following = timeline.next_after(through_us)
            if following is None:
                break
            name = jobbuilder.name_of(wanted.name, following.slot_us)
            if not self._term.services.jobs.has(owner, name):
                break
            through_us = following.slot_us
            reporter.event(_created(wanted, through_us, name, now_us))
        if through_us > status.settled_us:
            reporter.settled_through(wanted.uid, through_us)
        return msgspec.structs.replace(status, settled_us=through_us)

    async def _verdict(
        self, wanted: spec.ScheduleSpec, made: plan.ArmingPlan, *, is_accepted: bool
    ) -> dryruns.Verdict:
        """Whether Jobs can be created; shown to the API server only once for each template."""
        target = wanted.action.target
        if not isinstance(target, actions.JobAction) or is_accepted or self._is_proven(wanted):
            return jobs.Valid()
        payload = wanted.action.payload
        verdict = await self._dry_runs.verdict(made.definition, target, payload)
        if isinstance(verdict, jobs.NotNow) and self._is_proven(wanted):
            return jobs.Valid()  # proven while the API server was asked
        return verdict

    def _is_proven(self, wanted: spec.ScheduleSpec) -> bool:
        return self._proven.get(wanted.uid) == wanted.generation

    async def _store(
        self, plans: Sequence[tuple[plan.ArmingPlan, spec.ScheduleSpec]]
    ) -> list[Armed]:
        """What became of these plans, each of which has an arming."""
        wanted = [(made.arming, one.blob) for made, one in plans if made.arming is not None]
        await faults.reach(FaultPoint.BEFORE_DEFINITIONS_STORED)
        answers = await self._term.queue.writer.upsert(wanted, self._term.epoch)
        await faults.reach(FaultPoint.AFTER_DEFINITIONS_STORED)
        return list(answers)

    async def _remove_definition(self, seen: Observed) -> None:
        collision = self.collisions.get(seen.uid, 0)
        schedule_id = points.schedule_id(seen.uid, seen.namespace, collision=collision)
        await faults.reach(FaultPoint.BEFORE_DEFINITION_REMOVED)
        await self._term.queue.writer.remove(
            schedule_id, seen.uid, seen.namespace, self._term.epoch
        )
        await faults.reach(FaultPoint.AFTER_DEFINITION_REMOVED)

    async def _ask_for_check(self, known: Definition) -> bool:
        """A worker reads what this generation refers to; False where the queue lost it again."""
        check = points.check(known.id, known.timing_version, known.generation)
        record = messages.OccurrenceRecord(trigger="Check")
        try:
            await self._term.queue.occurrences.enqueue(known, check, record, self._term.epoch)
        except _ENDS:
            raise
        except errors.WorldChanged:
            return False
        return True

    async def _take_place(self, wanted: spec.ScheduleSpec, *, anyhow: bool) -> bool:
        """Make its stream, if it has one in our Redis, one of the streams of its namespace.

        False where that has as many as it may.
        """
        stream = actions.own_stream(wanted.action.target)
        if stream is None:
            return True
        streams = self._term.queue.streams
        return await streams.enlist(wanted.namespace, stream.name, anyhow=anyhow)

    # -- trouble ---------------------------------------------------------------------------------

    def _queue_is_away(self, task: Task, trouble: errors.TryLater) -> float:
        tasks = self._term.services.store.tasks
        tasks.pause(trouble.retry_after_seconds or next(self._queue_waits))
        self._report_waiting(task, Reason.QUEUE_UNAVAILABLE, f"Redis cannot be asked: {trouble}")
        if self._term.health.unwell("queue", str(trouble)):
            self._term.services.index.suspect()
            telemetry.logger.warning(
                "queue unavailable", error=str(trouble), unapplied=len(tasks) + 1
            )
        return 0.0

    def _went_wrong(self, task: Task, bug: Exception) -> float:
        with structlog.contextvars.bound_contextvars(
            namespace=task.seen.namespace, schedule=task.seen.name, uid=task.seen.uid
        ):
            telemetry.logger.error("schedule not applied", error=repr(bug), exc_info=bug)
        self._report_waiting(
            task,
            Reason.INTERNAL_ERROR,
            f"Duepoint could not apply this generation ({type(bug).__name__}); this is a bug, "
            "please report it with the operator's log; it is tried again",
        )
        return AGAIN

    def _report_waiting(self, task: Task, reason: Reason, message: str) -> None:
        """Only of a change that is not applied; the others lack nothing that they would see."""
        seen = task.seen
        known = self._term.services.states.get(seen.uid)
        if seen.deleted or (known is not None and known.answered >= seen.generation):
            return
        settled_us, timing_hash = 0, ""
        if known is None or not known.runs().settled_us:  # nothing of it was ever armed
            with contextlib.suppress(errors.InvalidSpec):
                timing_hash = rules.timing_hash(self._parsed(seen).rule)
            is_later = known is not None and 0 <= known.observed < seen.generation
            if known is not None and is_later and known.is_edit(timing_hash):
                settled_us = task.since_us  # else the next look would take it for a creation
        report = statusconditions.waiting(
            seen.generation, reason, message, settled_us=settled_us, timing_hash=timing_hash
        )
        self._term.services.reporter.report(seen.uid, report)


def _created(wanted: spec.ScheduleSpec, slot_us: int, job_name: str, now_us: int) -> RunEvent:
    """The report of a Job that was lost with its worker's server."""
    return RunEvent(
        uid=wanted.uid,
        namespace=wanted.namespace,
        name=wanted.name,
        generation=wanted.generation,
        slot_us=slot_us,
        trigger="Schedule",
        state=RunState.RUNNING,
        reason=Reason.RUNNING,
        at_us=now_us,
        started_us=min(slot_us, now_us),
        job_name=job_name,
    )


def _count(result: str, seen: Observed) -> None:
    telemetry.logger.debug(
        "schedule applied",
        namespace=seen.namespace,
        schedule=seen.name,
        generation=seen.generation,
        result=result,
    )


#: By state of what the queue holds.
_RESULTS = tuple(state.name.lower() for state in State)
