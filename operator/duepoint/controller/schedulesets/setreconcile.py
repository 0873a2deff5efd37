"""One ScheduleSet, brought into the queue: read, decide, store.

``SetReconcile.apply`` makes the queue hold what the object says and answers with what to report. It
may be repeated at any time. The record of a set whose spec is refused is stored as well, with the
target that it had, so that its members are held and the HTTP API can say why; that of a set without
an object is what a deletion removes. The spread is chosen once, from the first limit, because every
member's place hangs on it; after a lost Redis the status says it.

Raises QueueUnavailable, WorldChanged where a newer leader has been here, and what ``kube`` raises.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from duepoint import errors, faults
from duepoint.controller import statusconditions
from duepoint.controller.observed import Observed
from duepoint.controller.schedules.dryruns import DryRuns
from duepoint.controller.schedulesets import setstatus
from duepoint.controller.schedulesets.setstatus import SetReport
from duepoint.controller.term import TermContext
from duepoint.faults import FaultPoint
from duepoint.kube import jobs
from duepoint.model import scheduleset as model
from duepoint.schedules import actions, ownstreams
from duepoint.schedules import definition as definitions
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Reason
from duepoint.schedules.sets import setspec
from duepoint.schedules.sets.setrecord import SetRecord, SetState

#: Of a Job that is only asked about.
_EXAMPLE = rules.Rule(timing=rules.Timing(schedules=("@hourly",)), whole_seconds=True)
_LONGEST_NAME = 52


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSet:
    """The result of one look.

    Attributes:
        record: what the queue holds; None where it holds nothing of this set.
        spec: the accepted spec; None where it was refused.
        was_absent: the queue held nothing of this set before.
        former: a record of another set of the same name, which has to be removed first.
    """

    report: SetReport
    record: SetRecord | None = None
    spec: setspec.SetSpec | None = None
    was_absent: bool = False
    former: SetRecord | None = None


class SetReconcile:
    """Stores sets for the leader of one term."""

    def __init__(
        self, term: TermContext, *, dry_runs: DryRuns, own_streams: ownstreams.OwnStreams
    ) -> None:
        self._term = term
        self._dry_runs = dry_runs
        self._own_streams = own_streams

    async def apply(self, seen: Observed, *, spread: int | None, is_accepted: bool) -> AppliedSet:
        """The queue holds this generation, or holds its members back where it is refused.

        Args:
            seen: the object with its texts.
            spread: as the status says it; None where it says nothing.
            is_accepted: this generation was accepted before: nothing is asked for it again.
        """
        stored = await self._term.queue.sets.read(seen.namespace, seen.name)
        if stored is not None and stored.uid != seen.uid:
            return AppliedSet(report=setstatus.former_set(seen.generation), former=stored)
        if spread is None:
            spread = _spread(seen, stored)
        try:
            spec = self._parsed(seen, stored)
        except errors.InvalidSpec as error:
            report = setstatus.invalid(seen.generation, error, spread=spread)
            return await self._refuse(seen, stored, report, spread)
        refusal = await self._refusal(spec, is_accepted=is_accepted)
        verdict = None if refusal else await self._verdict(spec, is_accepted=is_accepted)
        if isinstance(verdict, jobs.InvalidTemplate):
            refusal = (Reason.INVALID_JOB_TEMPLATE, verdict.message)
        if refusal:
            report = setstatus.stalled(seen.generation, *refusal, spread=spread)
            return await self._refuse(seen, stored, report, spread)
        record = SetRecord(
            namespace=spec.namespace,
            name=spec.name,
            uid=spec.uid,
            generation=spec.generation,
            state=SetState.SUSPENDED if spec.suspend else SetState.READY,
            spread=spread,
            target=self._term.queue.signed_blobs.digest(spec.namespace, spec.blob),
            settings=spec.settings,
            is_managed=spec.is_managed,
        )
        await faults.reach(FaultPoint.BEFORE_SET_STORED)
        await self._term.queue.sets.store(record, spec.blob, self._term.epoch)
        await faults.reach(FaultPoint.AFTER_SET_STORED)
        if isinstance(verdict, jobs.NotNow):
            report = setstatus.dry_run_pending(spec, verdict.message, spread=spread)
        else:
            report = setstatus.ready(spec, spread=spread)
        return AppliedSet(report=report, record=record, spec=spec, was_absent=stored is None)

    async def hold(self, record: SetRecord) -> SetRecord:
        """No member of this set fires or changes; it has no object."""
        return await self._stored_as(record, SetState.STALLED)

    async def mark_deleting(self, record: SetRecord) -> SetRecord:
        """No member of this set fires or changes from now on, because they are removed."""
        return await self._stored_as(record, SetState.DELETING)

    async def begin_deletion(self, seen: Observed, *, spread: int | None) -> SetRecord:
        """No member fires or changes from now on; the record that the steps of a deletion take."""
        stored = await self._term.queue.sets.read(seen.namespace, seen.name)
        if stored is not None and stored.uid == seen.uid:
            return await self._stored_as(stored, SetState.DELETING)
        record = _without_spec(
            seen, SetState.DELETING, _spread(seen, None) if spread is None else spread
        )
        if stored is not None:
            return record  # its place belongs to another set: only shards may hold members
        return await self._stored_as(record, SetState.DELETING)

    async def _stored_as(self, record: SetRecord, state: SetState) -> SetRecord:
        """The record in this state, stored without a text of its target."""
        changed = msgspec.structs.replace(record, state=state)
        await self._term.queue.sets.store(changed, b"", self._term.epoch)
        return changed

    async def _refuse(
        self, seen: Observed, stored: SetRecord | None, report: SetReport, spread: int
    ) -> AppliedSet:
        """The members are held; their target stays what it was."""
        record = _without_spec(seen, SetState.STALLED, spread)
        if stored is not None:
            record = msgspec.structs.replace(
                record,
                target=stored.target,
                settings=stored.settings,
                is_managed=stored.is_managed,
            )
        record = await self._stored_as(record, SetState.STALLED)
        return AppliedSet(report=report, record=record, was_absent=stored is None)

    def _parsed(self, seen: Observed, stored: SetRecord | None) -> setspec.SetSpec:
        spec = setspec.parse(
            seen.spec,
            namespace=seen.namespace,
            name=seen.name,
            uid=seen.uid,
            generation=seen.generation,
            created_us=seen.created_us,
        )
        refused = self._own_streams.refusal(spec.action.target)
        if refused is not None:
            raise errors.InvalidSpec((refused,))
        is_known = stored is not None and bool(stored.target)
        if is_known and stored and stored.settings.whole_seconds != spec.settings.whole_seconds:
            raise errors.InvalidSpec((_OTHER_KIND,))
        return spec

    async def _refusal(
        self, spec: setspec.SetSpec, *, is_accepted: bool
    ) -> tuple[Reason, str] | None:
        stream = ownstreams.own(spec.action.target)
        if stream is None:
            return None
        if await self._term.queue.streams.enlist(spec.namespace, stream.name, anyhow=is_accepted):
            return None
        return Reason.TOO_MANY_STREAMS, statusconditions.no_room_for_stream(spec.namespace)

    async def _verdict(
        self, spec: setspec.SetSpec, *, is_accepted: bool
    ) -> jobs.Valid | jobs.InvalidTemplate | jobs.NotNow | None:
        """Whether Jobs of the template can be created; asked only for what was never accepted."""
        target = spec.action.target
        if not isinstance(target, actions.JobAction) or is_accepted:
            return None
        example = definitions.Definition(
            namespace=spec.namespace,
            name=spec.name[:_LONGEST_NAME],
            uid=spec.uid,
            generation=spec.generation,
            timing_generation=spec.generation,
            created_us=spec.created_us,
            not_before_us=self._term.clock.now_us(),
            state=definitions.State.ARMED,
            rule=_EXAMPLE,
            target=self._term.queue.signed_blobs.digest(spec.namespace, spec.blob),
        )
        return await self._dry_runs.verdict(example, target, spec.action.payload)


_OTHER_KIND = errors.FieldError(
    reason=Reason.INVALID_SCHEDULE,
    path="spec",
    message="a set with a jobTemplate keeps one, and a set without one gets none, because the "
    "slots of Jobs are whole seconds; create another set and move its members",
)


def _without_spec(seen: Observed, state: SetState, spread: int) -> SetRecord:
    """Of a set of which no accepted spec is known."""
    return SetRecord(
        namespace=seen.namespace,
        name=seen.name,
        uid=seen.uid,
        generation=seen.generation,
        state=state,
        spread=spread,
        target="",
        settings=setspec.SetSettings(),
    )


class _Members(msgspec.Struct):
    members: int | None = None


class _Limits(msgspec.Struct):
    limits: _Members | None = None


_limits_decoder = msgspec.json.Decoder(_Limits)


def _spread(seen: Observed, stored: SetRecord | None) -> int:
    """Of a set that has none yet: by the limit, also where the rest of the spec is wrong."""
    if stored is not None:
        return stored.spread
    try:
        limits = _limits_decoder.decode(seen.spec).limits or _Members()
    except (msgspec.DecodeError, RecursionError):
        limits = _Members()
    members = setspec.SetLimits().members if limits.members is None else limits.members
    return setspec.spread(min(max(members, 1), model.MOST_MEMBERS))
