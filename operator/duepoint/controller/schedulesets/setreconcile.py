"""The record of a ScheduleSet in the queue, and the count of its members.

Both steps are idempotent, and update the state that the status is rendered from. The record of a
refused set is stored as well, with its former target, so that its members do not fire and the HTTP
API can say why. The spread is chosen once, from the first accepted limit, because the place of
every member depends on it; after a lost Redis it is read from the status.

The members of a set have no second copy, so a loss is only noticed by counting: the queue has no
record of a set that had members, a shard lacks the set's entry because its server was emptied, or a
server went back in time and has fewer members. The scripts that end slots count them in each shard;
if shards show lower counts than before, the difference is added again.
"""

from __future__ import annotations

import msgspec

from duepoint import errors, telemetry
from duepoint.controller import statusconditions
from duepoint.controller.observed import Observed
from duepoint.controller.schedules.dryruns import Verdict
from duepoint.controller.schedulesets import setstatus
from duepoint.controller.schedulesets.setstatus import FollowedSet, Lost
from duepoint.controller.term import TermContext
from duepoint.kube import jobbuilder, jobs, times
from duepoint.schedules import actions, conditions
from duepoint.schedules.conditions import Condition, Reason
from duepoint.schedules.sets import setspec
from duepoint.schedules.sets.setrecord import SetRecord, SetState

#: A member that is late by less is just being claimed: that is not a lag.
_NO_LAG_US = 1_000_000
_LONGEST_NAME = 52
#: Reasons of a verdict that only an edit changes.
_REFUSALS = (Reason.TARGET_UNAVAILABLE, Reason.INVALID_JOB_TEMPLATE)


async def apply(
    term: TermContext, state: FollowedSet, seen: Observed, stored: SetRecord | None
) -> tuple[Condition, ...]:
    """Store this generation in the queue, or stop its members if it is refused.

    Returns the conditions of the generation. Raises QueueUnavailable, LayoutChanged, WorldChanged
    if there is a newer leader, and the errors of ``kube``.
    """
    status, queue = state.status, term.queue
    if status.spread is None and stored is not None and stored.target:
        status.spread = stored.spread
    if status.lost is not None and status.lost.generation != seen.generation:
        status.lost = None
    spec, verdict = None, None
    try:
        spec = _parsed(term, seen, stored)
    except errors.InvalidSpec as invalid:
        first = invalid.errors[0].reason if invalid.errors else Reason.INVALID_SPEC
        verdict = jobs.JobRefused(Reason(first), str(invalid))
    else:
        is_accepted = state.accepted == seen.generation
        verdict = await _verdict(term, spec, is_accepted=is_accepted)
    if spec is None or (verdict is not None and verdict.reason in _REFUSALS):
        assert verdict is not None  # noqa: S101 - it says why there is no spec
        answer = conditions.stalled(verdict.reason, verdict.message)
        record = without_spec(seen, SetState.STALLED, status.spread)
        if stored is not None:  # its members keep their target
            record = msgspec.structs.replace(
                record,
                target=stored.target,
                settings=stored.settings,
                is_managed=stored.is_managed,
            )
        await queue.sets.store(record, b"", term.epoch)
        state.spec = None
    else:
        if status.spread is None:
            status.spread = setspec.spread(spec.settings.limits.members)
        record = SetRecord(
            namespace=spec.namespace,
            name=spec.name,
            uid=spec.uid,
            generation=spec.generation,
            state=SetState.SUSPENDED if spec.suspend else SetState.READY,
            spread=status.spread,
            target=queue.signed_blobs.digest(spec.namespace, spec.blob),
            settings=spec.settings,
            is_managed=spec.is_managed,
        )
        await queue.sets.store(record, spec.blob, term.epoch)
        status.target = spec.action.target.text
        answer = setstatus.ready(spec)
        if verdict is not None:
            why = f"the API server gave no verdict on spec.jobTemplate: {verdict.message}"
            answer = conditions.reconciling(Reason.FORBIDDEN, why)
        else:
            state.accepted = seen.generation
        state.spec = spec.without_texts()
    state.record = record
    if stored is None and status.members:
        _note_loss(term, state, status.members)
    if stored is None or status.lost is not None:
        state.rows_of = None
    return answer


def _parsed(term: TermContext, seen: Observed, stored: SetRecord | None) -> setspec.SetSpec:
    spec = setspec.parse(
        seen.spec,
        namespace=seen.namespace,
        name=seen.name,
        uid=seen.uid,
        generation=seen.generation,
        created_us=seen.created_us,
    )
    if not term.has_own_streams and actions.own_stream(spec.action.target) is not None:
        raise errors.InvalidSpec((statusconditions.NO_OWN_STREAMS,))
    is_known = stored is not None and bool(stored.target)
    if (
        is_known
        and stored
        and stored.settings.defaults.whole_seconds != spec.settings.defaults.whole_seconds
    ):
        raise errors.InvalidSpec((_OTHER_KIND,))
    return spec


async def _verdict(term: TermContext, spec: setspec.SetSpec, *, is_accepted: bool) -> Verdict:
    """Return why its slots cannot run, or why this is not known yet; None = they can.

    Does not check the Jobs of an accepted generation again.
    """
    target = spec.action.target
    if (stream := actions.own_stream(target)) is not None:
        streams = term.queue.streams
        if not await streams.enlist(spec.namespace, stream.name, anyhow=is_accepted):
            full = statusconditions.no_room_for_stream(spec.namespace)
            return jobs.JobRefused(Reason.TARGET_UNAVAILABLE, full)
    if not isinstance(target, actions.JobAction) or is_accepted:
        return None
    facts = jobbuilder.SlotFacts(
        namespace=spec.namespace,
        schedule_name=spec.name[:_LONGEST_NAME],
        schedule_uid=spec.uid,
        slot_us=term.clock.now_us(),
        previous_us=None,
        trigger="Schedule",
        payload=bytes(spec.action.payload) if spec.action.payload else None,
        time_zone="Etc/UTC",
    )
    return await term.services.dry_runs.verdict(target, facts)


# -- counting ----------------------------------------------------------------------------------


async def count(term: TermContext, state: FollowedSet) -> None:
    """Update the state with the current numbers; notices lost members and counts."""
    assert state.record is not None  # noqa: S101 - it was applied
    counted = await term.queue.sets.counts(state.record)
    if (lost := state.tally.beyond(counted.ended)) is not None:
        await term.queue.sets.count_again(state.record, lost, term.epoch)
    state.tally = counted.ended if lost is None else counted.ended.plus(lost)
    upheavals = term.queue.health.upheavals
    went_back = state.upheavals not in (None, upheavals)
    state.upheavals = upheavals
    status, due_us = state.status, counted.oldest_overdue_us
    before = status.members or 0
    if before > counted.members and (went_back or counted.shards_without):
        _note_loss(term, state, before)
    if counted.shards_without:
        state.is_unread = True  # shards lack the set's entry, so it must be stored again
    if status.lost is not None and counted.members >= status.lost.members:
        status.lost = None
    late_us = 0 if due_us is None else term.clock.now_us() - due_us
    next_us = counted.next_due_us
    status.members, status.in_flight = counted.members, counted.in_flight
    status.next_due_time = times.time_text(next_us) if next_us else None
    status.lag_seconds = 0 if late_us < _NO_LAG_US else round(late_us / 1_000_000, 1)


def _note_loss(term: TermContext, state: FollowedSet, before: int) -> None:
    """Record and report that Redis has lost members; there were ``before``."""
    known = state.status.lost
    state.status.lost = Lost(
        time=times.time_text(term.clock.now_us()),
        members=max(before, 0 if known is None else known.members),
        generation=state.seen.generation,
    )
    telemetry.logger.warning(
        "members of a set were lost with Redis", set=state.seen.identity, before=before
    )
    note = f"Redis lost members: there were {before} when they were counted last"
    term.record(setstatus.event(state, Reason.MEMBERS_LOST, note))


_OTHER_KIND = errors.FieldError(
    reason=Reason.INVALID_SPEC,
    path="spec",
    message="a set with a jobTemplate keeps one, and a set without one gets none, because the "
    "slots of Jobs are whole seconds; create another set and move its members",
)


def without_spec(seen: Observed, state: SetState, spread: int | None) -> SetRecord:
    """Return the record of a set without an accepted spec."""
    return SetRecord(
        namespace=seen.namespace,
        name=seen.name,
        uid=seen.uid,
        generation=seen.generation,
        state=state,
        spread=setspec.spread(setspec.SetLimits().members) if spread is None else spread,
        target="",
        settings=setspec.SetSettings(),
    )
