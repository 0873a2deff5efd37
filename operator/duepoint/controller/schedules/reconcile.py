"""One Schedule, brought into the queue: read, decide, perform.

``Reconcile.apply`` makes the queue hold what ``plan.decide`` names and answers with what to say of
it. It may be repeated at any time, from any point of a former try: what is done already is found
done. A jobTemplate that was never accepted is shown to the API server first, so that ``Ready``
means that Jobs can be created; while there is no verdict the Schedule is armed all the same,
because a quota or an outage of the API server must not keep an edit from the queue.

Raises QueueUnavailable, and WorldChanged where a newer leader has been here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
from msgspec import structs

from duepoint import errors
from duepoint.controller import observed, plan, statusconditions
from duepoint.controller.observed import Observed
from duepoint.controller.report import Report
from duepoint.controller.schedules import dryruns, fingerprints
from duepoint.controller.status import published
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.kube import jobs
from duepoint.schedules import actions, ownstreams, points, spec
from duepoint.schedules.definition import Definition

#: ``plan.decide`` of one object, for (spec, what is stored).
_Decide = Callable[..., plan.Plan | None]
#: Schedules found under one id before this is called a bug; two is already a rarity.
_MOST_COLLISIONS = 8
#: Decisions made anew because the stored definition changed meanwhile.
_MOST_ROUNDS = 5


class Applied(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What came of one look.

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
    """One object to be looked at: as ``Reconcile.apply`` takes it."""

    seen: Observed
    shown: plan.Shown
    since_us: int


class _New(msgspec.Struct, frozen=True, gc=False):
    """A plan for a schedule of which the queue holds nothing.

    Attributes:
        is_told: the status says already what will be true.
    """

    spec: spec.ScheduleSpec
    plan: plan.Plan
    arming: messages.Arming
    is_told: bool


class Reconcile:
    """Performs plans for the leader of one term."""

    def __init__(
        self,
        *,
        queue: DelayQueue,
        dry_runs: dryruns.DryRuns,
        epoch: messages.Epoch,
        managed_by: str = "",
        own_streams: ownstreams.OwnStreams = ownstreams.USUAL,
    ) -> None:
        self._queue = queue
        self._mark = published.mark(managed_by)
        self._key = queue.definitions.digest("", b"fingerprint")
        self._dry_runs = dry_runs
        self._epoch = epoch
        self._own_streams = own_streams
        #: Namespaces and names of streams in our Redis that have their place in this term.
        self._enlisted: set[tuple[str, str]] = set()
        #: Only of the few whose first id belonged to somebody else.
        self.collisions: dict[str, int] = {}
        #: What the API server or a worker has refused since this term began.
        self._refused: dict[str, Report] = {}
        #: Generations of which a Job was created while no dry run had given a verdict.
        self._proven: dict[str, int] = {}

    def fingerprint(self, seen: Observed) -> bytes:
        """Of what a definition of this state would be made from."""
        return fingerprints.of(seen.spec, self._key, own_streams=self._own_streams.enabled)

    async def apply(
        self,
        seen: Observed,
        shown: plan.Shown,
        since_us: int,
        *,
        is_absent: bool = False,
        replaces: bytes = b"",
        acts_us: int | None = None,
    ) -> Applied:
        """The queue holds this generation, or nothing of it where it is refused.

        Args:
            seen: the object.
            shown: what its status said.
            since_us: when this generation was first seen.
            is_absent: the queue was just found to hold nothing of it, which spares a look; where
                that is not true any more the queue refuses, and is looked at.
            replaces, acts_us: as ``plan.decide`` takes them.
        """
        decide = functools.partial(
            plan.decide, shown=shown, now_us=since_us, replaces=replaces, acts_us=acts_us
        )
        applied = await self._looked_at(seen, shown, decide, is_absent=is_absent)
        return _with_limits(applied, seen) if applied.definition is None else applied

    async def _looked_at(
        self, seen: Observed, shown: plan.Shown, decide: _Decide, *, is_absent: bool
    ) -> Applied:
        if (refusal := self._refusal(seen, shown)) is not None:
            await self.remove(seen)
            return Applied(report=refusal)
        try:
            wanted = self._parsed(seen, shown)
            return await self._apply(seen, wanted, shown, decide, is_absent=is_absent)
        except errors.InvalidSpec as error:  # also from the queue: a due that it cannot store
            await self.remove(seen)
            return Applied(report=statusconditions.invalid(seen.generation, error))

    async def apply_new(self, looks: Sequence[Look]) -> list[Applied | None]:
        """As ``apply`` of many of which the queue was found to hold nothing.

        None for those that need a look of their own: refused or wrong, never accepted with
        something to ask for first, or held by the queue after all.
        """
        made = [self._new(look) for look in looks]
        wanted = [(one.arming, one.spec.blob) for one in made if one is not None]
        try:
            answers = iter(await self._queue.definitions.upsert(wanted, self._epoch))
        except errors.InvalidSpec:
            return [None] * len(looks)
        return [None if one is None else _applied_new(one, next(answers)) for one in made]

    def _new(self, look: Look) -> _New | None:
        seen = look.seen
        if self._refusal(seen, look.shown) is not None or seen.uid in self.collisions:
            return None
        try:
            wanted = self._parsed(seen, look.shown)
            digest = self._queue.definitions.digest(wanted.namespace, wanted.blob)
            made = plan.decide(wanted, None, look.shown, look.since_us, target=digest)
        except errors.InvalidSpec:
            return None
        if made is None or made.arming is None or not self._has_place(wanted):
            return None
        if not look.shown.has_accepted(wanted.generation):
            if actions.needs_secrets(wanted.action.target) or not self._can_create(wanted, made):
                return None
            return _New(wanted, made, made.arming, is_told=False)
        # A status that another installation wrote is ours to write again.
        is_told = self._mark in seen.status and plan.is_told(look.shown, made)
        return _New(wanted, made, made.arming, is_told=is_told)

    def _can_create(self, wanted: spec.ScheduleSpec, made: plan.Plan) -> bool:
        """Whether nobody has to be asked about its Jobs."""
        target = wanted.action.target
        if not isinstance(target, actions.JobAction):
            return True
        return self._dry_runs.is_valid(made.definition, target, wanted.action.payload)

    def refuse(self, uid: str, refusal: Report) -> None:
        """Nothing of this generation, nor of an older one, belongs into the queue any more."""
        self._refused[uid] = refusal

    def prove(self, uid: str, generation: int) -> None:
        """The API server has created a Job of this generation."""
        self._proven[uid] = generation

    def forget(self, uid: str) -> None:
        """The object is gone, or what was found of it belongs to another state of it."""
        self._refused.pop(uid, None)
        self._proven.pop(uid, None)

    def _refusal(self, seen: Observed, shown: plan.Shown) -> Report | None:
        """What this generation was refused with, here or, by the API server, by a forerunner.

        What a worker refused in a former term is looked at anew: the installation's settings may
        allow it by now.
        """
        if (known := self._refused.get(seen.uid)) is not None:
            if known.generation >= seen.generation:
                return replace(known, generation=seen.generation)
            del self._refused[seen.uid]
        is_of_this = shown.observed_generation == seen.generation
        if is_of_this and shown.stalled.startswith(statusconditions.REFUSED):
            return statusconditions.refused_again_and_again(seen.generation, shown.stalled)
        return None

    async def remove(self, seen: Observed) -> None:
        """The queue holds nothing of this uid."""
        await self._remove(seen)
        self.collisions.pop(seen.uid, None)

    async def _remove(self, seen: Observed) -> None:
        collision = self.collisions.get(seen.uid, 0)
        schedule_id = points.schedule_id(seen.uid, seen.namespace, collision=collision)
        await self._queue.definitions.remove(schedule_id, seen.uid, seen.namespace, self._epoch)

    async def stored(self, uid: str, namespace: str) -> Definition | None:
        """What the queue holds for this uid."""
        first = self.collisions.get(uid, 0)
        for collision in range(first, _MOST_COLLISIONS):
            schedule_id = points.schedule_id(uid, namespace, collision=collision)
            found = await self._queue.definitions.definition(self.shard(schedule_id), schedule_id)
            if found is None or found.uid == uid:
                self._note_collision(uid, collision)
                return found
        raise errors.Bug(f"{_MOST_COLLISIONS} schedules share the ids of {uid}")

    async def wanted(self, known: Definition) -> frozenset[int]:
        """Slots that ScheduleRuns want of it and that have not ended; raises QueueUnavailable."""
        return frozenset(
            [
                one.slot_us
                for shard in sharding.homes(known.id, self._queue.layouts.known())
                async for one in self._queue.occurrences.all_occurrences(shard, of=known.id)
                if one.kind in points.RUN_KINDS
            ]
        )

    def shard(self, schedule_id: points.ScheduleId) -> messages.ShardId:
        """The shard of an id."""
        return sharding.home(schedule_id, self._queue.layouts.known())

    async def _apply(
        self,
        seen: Observed,
        wanted: spec.ScheduleSpec,
        shown: plan.Shown,
        decide: _Decide,
        *,
        is_absent: bool,
    ) -> Applied:
        blob = wanted.blob
        digest = self._queue.definitions.digest(wanted.namespace, blob)
        verdict: dryruns.Verdict | None = None
        # A generation that was accepted is not asked for again.
        is_accepted = shown.has_accepted(wanted.generation)
        if not await self._take_place(wanted, anyhow=is_accepted):
            await self.remove(seen)
            refused = statusconditions.too_many_streams(seen.generation, wanted.namespace)
            return Applied(report=refused, is_final=False)
        awaits_check = not is_accepted and actions.needs_secrets(wanted.action.target)
        for number in range(_MOST_ROUNDS):
            is_known = is_absent and number == 0
            stored = None if is_known else await self.stored(wanted.uid, wanted.namespace)
            if stored is None and number > 1:
                await self._remove(seen)  # it is there, and a text that it names is lost
            collision = self.collisions.get(wanted.uid, 0)
            made = decide(wanted, stored, target=digest, collision=collision)
            if made is None:
                return Applied(report=None, definition=stored)
            if verdict is None:
                verdict = await self._verdict(wanted, made, shown)
            if (
                isinstance(verdict, jobs.NotNow)
                and self._proven.get(wanted.uid) == wanted.generation
            ):
                verdict = jobs.Valid()  # proven while the API server was asked
            if isinstance(verdict, jobs.InvalidTemplate):
                await self.remove(seen)
                return Applied(
                    report=statusconditions.invalid_template(seen.generation, verdict.message)
                )
            armed = await self._perform(made, blob, awaits_check=awaits_check)
            if armed is messages.Armed.HELD:
                return Applied(report=None, definition=stored, is_final=False)
            if armed is messages.Armed.APPLIED:
                applied = _applied(wanted, made, verdict, awaits_check=awaits_check)
                return structs.replace(applied, is_wider=plan.is_wider(stored, made.definition))
        raise errors.Bug(f"the definition of {wanted.identity} does not come to rest")

    async def _verdict(
        self, wanted: spec.ScheduleSpec, made: plan.Plan, shown: plan.Shown
    ) -> dryruns.Verdict:
        """Asked only for a generation that was never accepted: a rebuild must not wait for it."""
        target = wanted.action.target
        if not isinstance(target, actions.JobAction) or shown.has_accepted(wanted.generation):
            return jobs.Valid()
        if self._is_proven(wanted):
            return jobs.Valid()
        return await self._dry_runs.verdict(made.definition, target, wanted.action.payload)

    def _is_proven(self, wanted: spec.ScheduleSpec) -> bool:
        return self._proven.get(wanted.uid) == wanted.generation

    async def _perform(self, made: plan.Plan, blob: bytes, *, awaits_check: bool) -> messages.Armed:
        """Neither APPLIED nor HELD where the decision has to be made anew."""
        try:
            armed = await self._armed(made, blob)
            if awaits_check and armed is messages.Armed.APPLIED:
                await self._ask_for_check(made.definition)
        except (queue_errors.Fenced, queue_errors.LayoutChanged):
            raise
        except errors.WorldChanged:  # the definition is gone that was to be checked
            return messages.Armed.CHANGED
        if armed is messages.Armed.COLLISION:
            self._note_collision(made.definition.uid, made.definition.collision + 1)
        # Unchanged: our own write with its answer lost, or a newer one; changed: the chain to be
        # kept is gone or another. Reading again tells.
        return armed

    async def _armed(self, made: plan.Plan, blob: bytes) -> messages.Armed:
        """What is stored already counts as applied."""
        if made.arming is None:
            return messages.Armed.APPLIED
        (armed,) = await self._queue.definitions.upsert([(made.arming, blob)], self._epoch)
        return armed

    async def _ask_for_check(self, known: Definition) -> None:
        """A worker looks at what this generation refers to; the operator reads no Secret."""
        check = points.check(known.id, known.timing_version, known.generation)
        record = messages.OccurrenceRecord(trigger="Check")
        await self._queue.occurrences.enqueue(known, check, record, self._epoch)

    def _parsed(self, seen: Observed, shown: plan.Shown) -> spec.ScheduleSpec:
        parsed = spec.parse(
            seen.spec,
            namespace=seen.namespace,
            name=seen.name,
            uid=seen.uid,
            generation=seen.generation,
            created_us=seen.created_us,
            fingerprint=self.fingerprint(seen),
        )
        is_accepted = shown.has_accepted(seen.generation)
        refused = self._own_streams.refusal(parsed.action.target, is_accepted=is_accepted)
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
        taken = await self._queue.streams.enlist(wanted.namespace, stream.name, anyhow=anyhow)
        if taken:
            self._enlisted.add((wanted.namespace, stream.name))
        return taken

    def _note_collision(self, uid: str, collision: int) -> None:
        if collision:
            self.collisions[uid] = collision


def _with_limits(refused: Applied, seen: Observed) -> Applied:
    """The Jobs of a refused spec are kept by its own limits, where its text is known."""
    if refused.report is None or seen.spec == observed.UNKNOWN:
        return refused
    keeps = spec.history_limits(seen.spec)
    return structs.replace(refused, report=replace(refused.report, keeps=keeps))


def _applied_new(one: _New, armed: messages.Armed) -> Applied | None:
    if armed is not messages.Armed.APPLIED:
        return None
    report = None if one.is_told else statusconditions.ready(one.spec, one.plan)
    return Applied(report=report, definition=one.plan.definition)


def _applied(
    wanted: spec.ScheduleSpec, made: plan.Plan, verdict: dryruns.Verdict, *, awaits_check: bool
) -> Applied:
    if isinstance(verdict, jobs.NotNow):
        return Applied(
            report=statusconditions.dry_run_pending(wanted, made, verdict.message),
            definition=made.definition,
            is_final=False,
        )
    report = statusconditions.ready(wanted, made, awaits_check=awaits_check)
    return Applied(report=report, definition=made.definition)
