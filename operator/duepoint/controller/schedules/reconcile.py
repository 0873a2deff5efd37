"""Schedules, brought into the queue: read, decide, store.

``Reconcile.apply`` makes the queue hold what ``plan.decide`` names for each object that it is given
and answers with what to report of it. It may be repeated at any time, from any point of a former
try: what is done already is found done. Several objects are stored by one call; what has to be
asked for first (a stored definition, a dry run, a place for a stream) is asked for one object
alone, so that no object waits for the questions of another. A jobTemplate that was never accepted
is shown to the API server first, so that ``Ready`` means that Jobs can be created; while there is
no verdict the Schedule is armed all the same, because a quota or an outage of the API server must
not keep an edit from the queue.

Raises QueueUnavailable, and WorldChanged where a newer leader has been here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from duepoint import errors, faults
from duepoint.controller import observed, plan, statusconditions
from duepoint.controller.observed import Observed
from duepoint.controller.schedules import dryruns, fingerprints
from duepoint.controller.status import published
from duepoint.controller.statusconditions import Report
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.faults import FaultPoint
from duepoint.kube import jobs
from duepoint.schedules import actions, ownstreams, points, spec
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition

#: Schedules found under one id before this is called a bug; two is already a rarity.
_MOST_COLLISIONS = 8
#: Decisions made anew because the stored definition changed meanwhile.
_MOST_ROUNDS = 5


class Applied(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of one look.

    Attributes:
        report: what to say; None where a newer generation is in the queue already, and where the
            status says it.
        definition: what the queue holds; None for nothing.
        is_final: False where the same look should be repeated later.
        is_wider: an edit lets slots start, or end, that wait for runs to end.
    """

    report: Report | None
    definition: Definition | None = None
    is_final: bool = True
    is_wider: bool = False


class Look(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One object to be brought into the queue.

    Attributes:
        seen: the object.
        status: as it was published.
        since_us: when this generation was first seen.
        acts_us, replaces: as ``plan.decide`` takes them.
        is_absent: the queue was just found to hold nothing of it, which spares a read; where that
            is not true any more the queue refuses, and is read.
    """

    seen: Observed
    status: plan.PublishedStatus
    since_us: int
    acts_us: int
    is_absent: bool = False
    replaces: bytes = b""


class _Decision(msgspec.Struct, frozen=True, gc=False):
    """What the queue is to hold of an object; ``stored`` is what it held when this was decided."""

    look: Look
    spec: spec.ScheduleSpec
    stored: Definition | None
    plan: plan.ArmingPlan
    verdict: dryruns.Verdict
    needs_check: bool


class Reconcile:
    """Performs plans for the leader of one term."""

    def __init__(
        self,
        term: TermContext,
        *,
        dry_runs: dryruns.DryRuns,
        own_streams: ownstreams.OwnStreams = ownstreams.USUAL,
    ) -> None:
        self._term = term
        self._mark = published.mark(term.installation)
        self._key = term.queue.signed_blobs.digest("", b"fingerprint")
        self._dry_runs = dry_runs
        self._own_streams = own_streams
        #: Namespaces and names of streams in our Redis that have their place in this term.
        self._enlisted: set[tuple[str, str]] = set()
        #: Only of the few whose first id belonged to another Schedule.
        self.collisions: dict[str, int] = {}
        #: What the API server or a worker has refused since this term began.
        self._refused: dict[str, Report] = {}
        #: Generations of which a Job was created while no dry run had given a verdict.
        self._proven: dict[str, int] = {}

    def fingerprint(self, seen: Observed) -> bytes:
        """Of what a definition of this state would be made from."""
        return fingerprints.of(seen.spec, self._key, own_streams=self._own_streams.enabled)

    def timing_hash(self, seen: Observed) -> str:
        """Of the object's timing; "" where its spec is wrong."""
        try:
            return rules.timing_hash(self._parsed(seen).rule)
        except errors.InvalidSpec:
            return ""

    async def apply(self, looks: Sequence[Look], *, is_alone: bool) -> list[Applied | None]:
        """The queue holds these generations, or nothing of those that are refused.

        Args:
            looks: one object, or several that the queue is thought to hold nothing of.
            is_alone: whether it is one, and may wait for answers to questions. If not, the result
                is None for those that need a look of their own: refused or wrong ones, those with a
                question to ask first, and those that the queue holds after all.
        """
        for number in range(_MOST_ROUNDS):
            decided = [await self._decide(look, number, is_alone=is_alone) for look in looks]
            applied = await self._store(decided, is_alone=is_alone)
            if not is_alone or applied[0] is not None:
                return applied
        raise errors.Bug(f"the definition of {looks[0].seen.identity} does not come to rest")

    def refuse(self, uid: str, refusal: Report) -> None:
        """Nothing of this generation, nor of an older one, may be in the queue any more."""
        self._refused[uid] = refusal

    def prove(self, uid: str, generation: int) -> None:
        """The API server has created a Job of this generation."""
        self._proven[uid] = generation

    def forget(self, uid: str) -> None:
        """The object is gone, or what was found of it belongs to another state of it."""
        self._refused.pop(uid, None)
        self._proven.pop(uid, None)

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

    async def remove(self, seen: Observed) -> None:
        """The queue holds nothing of this uid."""
        await self._remove(seen)
        self.collisions.pop(seen.uid, None)

    async def _remove(self, seen: Observed) -> None:
        collision = self.collisions.get(seen.uid, 0)
        schedule_id = points.schedule_id(seen.uid, seen.namespace, collision=collision)
        await faults.reach(FaultPoint.BEFORE_DEFINITION_REMOVED)
        await self._term.queue.writer.remove(
            schedule_id, seen.uid, seen.namespace, self._term.epoch
        )
        await faults.reach(FaultPoint.AFTER_DEFINITION_REMOVED)

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

    def shard(self, schedule_id: points.ScheduleId) -> messages.ShardId:
        """The shard of an id."""
        return sharding.home(schedule_id, self._term.queue.layouts.known())

    async def _decide(
        self, look: Look, number: int, *, is_alone: bool
    ) -> _Decision | Applied | None:
        """What to store in this round, or the result where nothing is to be stored.

        None where an object that is not alone needs a look of its own.
        """
        seen = look.seen
        refusal = self._refusal(seen, look.status)
        if refusal is None:
            try:
                return await self._compare(look, number, is_alone=is_alone)
            except errors.InvalidSpec as error:
                refusal = statusconditions.invalid(seen.generation, error)
        return await self._remove_refused(seen, refusal) if is_alone else None

    async def _compare(
        self, look: Look, number: int, *, is_alone: bool
    ) -> _Decision | Applied | None:
        """The same for a spec that was not refused before; raises InvalidSpec."""
        seen, status = look.seen, look.status
        wanted = self._parsed(seen)
        is_accepted = status.has_accepted(wanted.generation)  # then nothing is asked for again
        needs_check = not is_accepted and actions.needs_secrets(wanted.action.target)
        if not is_alone and (needs_check or not self._has_place(wanted)):
            return None
        if not await self._take_place(wanted, anyhow=is_accepted):
            refusal = statusconditions.too_many_streams(seen.generation, wanted.namespace)
            return await self._remove_refused(seen, refusal, is_final=False)
        stored = None
        if not look.is_absent or number > 0:
            stored = await self.stored(wanted.uid, wanted.namespace)
        if stored is None and number > 1:
            await self._remove(seen)  # it is there, and a text that it names is lost
        made = plan.decide(
            wanted,
            stored,
            status,
            look.since_us,
            target=self._term.queue.signed_blobs.digest(wanted.namespace, wanted.blob),
            collision=self.collisions.get(wanted.uid, 0),
            replaces=look.replaces,
            acts_us=look.acts_us,
        )
        if made is None:
            return Applied(report=None, definition=stored)
        verdict = await self._verdict(wanted, made, status, asks=is_alone)
        if isinstance(verdict, jobs.Valid | jobs.NotNow):
            return _Decision(look, wanted, stored, made, verdict, needs_check)
        if verdict is None or not is_alone:
            return None
        refusal = statusconditions.stalled(
            seen.generation, Reason.INVALID_JOB_TEMPLATE, verdict.message
        )
        return await self._remove_refused(seen, refusal)

    async def _remove_refused(
        self, seen: Observed, refusal: Report, *, is_final: bool = True
    ) -> Applied:
        """The queue holds nothing of it; its Jobs are kept by its own limits, where known."""
        await self.remove(seen)
        if seen.spec != observed.UNKNOWN:
            refusal = replace(refusal, keeps=spec.history_limits(seen.spec))
        return Applied(report=refusal, is_final=is_final)

    async def _verdict(
        self,
        wanted: spec.ScheduleSpec,
        made: plan.ArmingPlan,
        status: plan.PublishedStatus,
        *,
        asks: bool,
    ) -> dryruns.Verdict | None:
        """Asked only for a generation that was never accepted: a rebuild must not wait for it."""
        target = wanted.action.target
        is_known = status.has_accepted(wanted.generation) or self._is_proven(wanted)
        if not isinstance(target, actions.JobAction) or is_known:
            return jobs.Valid()
        payload = wanted.action.payload
        verdict = await self._dry_runs.verdict(made.definition, target, payload, asks=asks)
        if isinstance(verdict, jobs.NotNow) and self._is_proven(wanted):
            return jobs.Valid()  # proven while the API server was asked
        return verdict

    def _is_proven(self, wanted: spec.ScheduleSpec) -> bool:
        return self._proven.get(wanted.uid) == wanted.generation

    async def _store(
        self, decided: Sequence[_Decision | Applied | None], *, is_alone: bool
    ) -> list[Applied | None]:
        """The results; None where the decision has to be made anew."""
        to_store = [one for one in decided if isinstance(one, _Decision)]
        wanted = [(one.plan.arming, one.spec.blob) for one in to_store if one.plan.arming]
        try:
            await faults.reach(FaultPoint.BEFORE_DEFINITIONS_STORED)
            answers = iter(await self._term.queue.writer.upsert(wanted, self._term.epoch))
            await faults.reach(FaultPoint.AFTER_DEFINITIONS_STORED)
        except errors.InvalidSpec as error:  # a due that the queue cannot store
            if not is_alone:
                return [None] * len(decided)
            seen = to_store[0].look.seen
            refusal = statusconditions.invalid(seen.generation, error)
            return [await self._remove_refused(seen, refusal)]
        applied: list[Applied | None] = []
        for one in decided:
            if isinstance(one, _Decision):
                # What is stored already counts as applied.
                armed = next(answers) if one.plan.arming else messages.Armed.APPLIED
                applied.append(await self._stored_as(one, armed, is_alone=is_alone))
            else:
                applied.append(one)
        return applied

    async def _stored_as(
        self, one: _Decision, armed: messages.Armed, *, is_alone: bool
    ) -> Applied | None:
        """The result of one object by the queue's answer.

        Unchanged: our own write with its answer lost, or a newer one; changed: the chain to be kept
        is gone or another. Deciding again tells.
        """
        known = one.plan.definition
        if armed is messages.Armed.COLLISION:
            self._note_collision(known.uid, known.collision + 1)
        if armed is messages.Armed.HELD and is_alone:
            return Applied(report=None, definition=one.stored, is_final=False)
        if armed is not messages.Armed.APPLIED:
            return None
        if one.needs_check and not await self._ask_for_check(known):
            return None
        is_wider = plan.is_wider(one.stored, known)
        if isinstance(one.verdict, jobs.NotNow):
            report = statusconditions.dry_run_pending(one.spec, one.plan, one.verdict.message)
            return Applied(report=report, definition=known, is_final=False, is_wider=is_wider)
        if not is_alone and one.stored is None and self._is_reported(one):
            return Applied(report=None, definition=known)
        report = statusconditions.ready(one.spec, one.plan, awaits_check=one.needs_check)
        return Applied(report=report, definition=known, is_wider=is_wider)

    def _is_reported(self, one: _Decision) -> bool:
        """Whether the status says already what is true now.

        A status that another installation wrote is ours to write again.
        """
        seen, status = one.look.seen, one.look.status
        is_accepted = status.has_accepted(one.spec.generation)
        return is_accepted and self._mark in seen.status and plan.is_published(status, one.plan)

    async def _ask_for_check(self, known: Definition) -> bool:
        """A worker reads what this generation refers to; False where the queue lost it again."""
        check = points.check(known.id, known.timing_version, known.generation)
        record = messages.OccurrenceRecord(trigger="Check")
        try:
            await self._term.queue.occurrences.enqueue(known, check, record, self._term.epoch)
        except (queue_errors.Fenced, queue_errors.LayoutChanged):
            raise
        except errors.WorldChanged:
            return False
        return True

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
        refused = self._own_streams.refusal(parsed.action.target)
        if refused is not None:
            raise errors.InvalidSpec((refused,))
        return parsed

    def _has_place(self, wanted: spec.ScheduleSpec) -> bool:
        """Whether its stream, if it has one in our Redis, is known to be one of its namespace's."""
        stream = ownstreams.own(wanted.action.target)
        return stream is None or (wanted.namespace, stream.name) in self._enlisted

    async def _take_place(self, wanted: spec.ScheduleSpec, *, anyhow: bool) -> bool:
        """The stream is one of its namespace's; False where that has as many as it may."""
        stream = ownstreams.own(wanted.action.target)
        if stream is None or self._has_place(wanted):
            return True
        taken = await self._term.queue.streams.enlist(wanted.namespace, stream.name, anyhow=anyhow)
        if taken:
            self._enlisted.add((wanted.namespace, stream.name))
        return taken

    def _note_collision(self, uid: str, collision: int) -> None:
        if collision:
            self.collisions[uid] = collision
