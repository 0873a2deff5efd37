"""The decision what to store in the queue for a Schedule; no I/O.

``decide`` compares an accepted spec with the stored definition and the published status, and
returns the arming that brings the queue up to date, if one is needed. Its rules:

- The queue never goes back to an older generation of the same uid, unless a complete list shows
  that the objects were restored. It takes the same generation with a different content.
- A change of the timing counts from the moment it is seen and never fires a past slot. Any other
  change leaves points, claims and retries alone.
- A lost index is rebuilt from the status: the chain from the watermark, and an occurrence for each
  open slot. A Schedule that was never processed starts from its creation. One whose timing has
  changed since starts from now, and keeps those open slots that have started.
- A new ``@at`` that passed before the creation runs if its deadline covers it; without a deadline
  only if that was a moment before.

Pure: time and everything stored are arguments. Instants in microseconds since the epoch.
"""

from __future__ import annotations

import msgspec

from duepoint.controller.status.published import Status
from duepoint.delayqueue import messages
from duepoint.runs.watermark import Watermark
from duepoint.schedules import manualruns, points, policies, slots
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.spec import ScheduleSpec

#: Clocks differ a little and storing takes a while: a point that is due within this is left to the
#: worker that claims it, and a new timeline begins after it.
MOVING_US = 1_000_000
#: The distance between the open slots of one schedule when they are tried after a lost index.
REOPEN_STEP_US = 50_000


class ArmingPlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What to store in the queue, and the result.

    Attributes:
        arming: what to store; None = the queue has this generation already.
        definition: the definition that the queue has afterwards.
        missed: the number of slots that are missed because they were in the past when first seen.
        skipped: the number of slots that passed during a suspension that ends now.
    """

    arming: messages.Arming | None
    definition: Definition
    missed: int = 0
    skipped: int = 0


def decide(
    spec: ScheduleSpec,
    stored: Definition | None,
    status: Status,
    now_us: int,
    *,
    target: str,
    went_back: bool = False,
    acts_us: int | None = None,
) -> ArmingPlan | None:
    """Return the plan for a spec; None = the queue already has a newer generation.

    Args:
        spec: the accepted spec.
        stored: the definition that the queue has for this uid.
        status: the published status.
        now_us: when this generation was first seen; an edit counts from here.
        target: digest of the spec's action, as the queue spells it.
        went_back: whether a complete list shows that the objects were restored to this generation.
        acts_us: when the plan is carried out; None = ``now_us``.
    """
    if stored is None:
        return _first(spec, status, now_us, target=target)
    if stored.generation > spec.generation and not went_back:
        return None
    if (stored.generation, stored.fingerprint) == (spec.generation, spec.fingerprint):
        # A leader may have crashed after it stored this, before it published the missed slots.
        is_unseen = status.is_new and stored.state is State.COMPLETED
        missed = len(_past_once(spec)) if is_unseen else 0
        return ArmingPlan(arming=None, definition=stored, missed=missed)
    # The data of its time zone may change without an edit.
    timing = msgspec.structs.replace(stored.rule.timing, zone_data=spec.rule.timing.zone_data)
    if timing == spec.rule.timing and stored.rule.whole_seconds == spec.rule.whole_seconds:
        return _same_timing(spec, stored, now_us if acts_us is None else acts_us, target=target)
    started = stored.started if stored.runs_left is not None else status.counts.regular
    # The slots of a suspension that ended by itself are counted when its end is published.
    is_counted = has_resumed(stored, now_us) and status.ready.reason != Reason.SUSPENDED
    skipped = 0 if is_counted else skipped_by_suspension(stored, now_us)
    return _armed(
        spec, not_before_us=now_us, target=target, skipped=skipped, started=started, former=stored
    )


def is_published(status: Status, made: ArmingPlan) -> bool:
    """Whether the status of an accepted generation already matches the result of the plan.

    This is so for nearly all objects when an index is rebuilt: their chains continue from the
    watermark, and no status has to be written again.
    """
    definition = made.definition
    goes_on = (
        definition.state is State.ARMED and definition.not_before_us == status.watermark.through_us
    )
    return (
        goes_on
        and status.ready.reason == Reason.ARMED
        and status.timing_hash == rules.timing_hash(definition.rule)
        and definition.rule.timing.max_runs is None
        and not definition.rule.timing.suspend
        and not (made.missed or made.skipped)
    )


def is_lost_edit(spec: ScheduleSpec, stored: Definition, status: Status) -> bool:
    """Whether the queue had this timing, but went back to that of an older generation.

    The Schedule is then stored as after a lost index, and continues from its watermark.
    """
    return (
        stored.generation < spec.generation
        and status.has_accepted(spec.generation)
        and bool(status.settled_through)
        and status.timing_hash == rules.timing_hash(spec.rule)
        and status.timing_hash != rules.timing_hash(stored.rule)
    )


def chain_due_us(definition: Definition, settled_us: int = 0) -> int | None:
    """Return when the chain of an armed definition should be due; None = no slot is left."""
    if definition.state is not State.ARMED or definition.runs_left == 0:
        return None
    following = slots_of(definition).next_after(max(definition.not_before_us, settled_us))
    return None if following is None else following.due_us


def slots_of(definition: Definition) -> slots.Slots:
    """Return the slots of a stored definition."""
    return slots.for_rule(
        definition.rule, identity=definition.identity, created_us=definition.created_us
    )


def suspended_us(definition: Definition, now_us: int) -> tuple[int, int]:
    """Return the start and the end of the time whose slots a suspension has swallowed."""
    timing, after_us = definition.rule.timing, definition.not_before_us
    if not timing.suspend:
        return after_us, after_us
    ends_us = now_us if timing.suspend_until_us is None else timing.suspend_until_us - 1
    return after_us, min(now_us, ends_us)


def skipped_by_suspension(definition: Definition, now_us: int) -> int:
    """Return how many slots the definition's suspension has swallowed up to now."""
    return manualruns.timeline(definition).count(*suspended_us(definition, now_us))


def has_resumed(definition: Definition, now_us: int) -> bool:
    """Whether a suspension with an end time is over."""
    timing = definition.rule.timing
    until_us = timing.suspend_until_us
    return timing.suspend and until_us is not None and until_us <= now_us


# -- nothing stored ----------------------------------------------------------------------------


def _first(spec: ScheduleSpec, status: Status, now_us: int, *, target: str) -> ArmingPlan:
    if status.is_new:
        return _new(spec, now_us, target=target)
    is_same_timing = status.timing_hash == rules.timing_hash(spec.rule)
    goes_on = status.has_accepted(spec.generation) or is_same_timing
    is_known = goes_on and bool(status.settled_through)
    settled = status.watermark
    if not is_known:
        settled = Watermark(now_us, (*settled.started_us, *status.retried_us))
    made = _armed(
        spec, not_before_us=settled.through_us, target=target, started=status.counts.regular
    )
    return _reopened(made, settled, now_us)


def _reopened(made: ArmingPlan, settled: Watermark, now_us: int) -> ArmingPlan:
    """Add an occurrence for each open slot to a plan, due from now on, one after the other.

    A slot that has started continues as a retry with the same identity. One that has not is handed
    over again, so that the concurrency policy applies.
    """
    if made.arming is None or not settled.open_us:
        return made
    started = frozenset(settled.started_us)
    definition = made.definition
    timeline = slots_of(definition)
    occurrences = [
        reopened(definition, slot_us, now_us + number * REOPEN_STEP_US,
                 first_us=timeline.due_slot(slot_us).due_us if slot_us in started else 0)
        for number, slot_us in enumerate(settled.open_us)
    ]  # fmt: skip
    arming = msgspec.structs.replace(made.arming, open=tuple(occurrences))
    return msgspec.structs.replace(made, arming=arming)


def reopened(
    definition: Definition, slot_us: int, due_us: int, *, first_us: int
) -> messages.Occurrence:
    """Return the occurrence of an open slot whose point was lost.

    Args:
        first_us: if the slot has started, when it was due: its age counts from there; else 0.
    """
    point = points.DuePoint(
        schedule_id=definition.id,
        timing_version=definition.timing_version,
        kind=points.PointKind.RETRY if first_us else points.PointKind.PLANNED,
        due_us=due_us,
        slot_us=slot_us,
    )
    record = messages.OccurrenceRecord(attempt=1 if first_us else 0, first_try_us=first_us)
    return messages.Occurrence(point=point, record=record)


def _new(spec: ScheduleSpec, now_us: int, *, target: str) -> ArmingPlan:
    past, policy = _past_once(spec), spec.rule.policy
    # A deadline counts until the start; without one, the slot is judged at its creation.
    judged_us = spec.created_us if policy.deadline_us is None else now_us
    covered = [slot for slot in past if not policies.had_passed(slot, policy, judged_us)]
    return _armed(
        spec,
        not_before_us=min(covered) - 1 if covered else spec.created_us,
        target=target,
        missed=len(past) - len(covered),
    )


def _past_once(spec: ScheduleSpec) -> list[int]:
    """Return ``@at`` slots that were past at creation; none if there are other expressions."""
    timing = spec.rule.timing
    are_once = all(text.strip().lower().startswith("@at") for text in timing.schedules)
    if _is_suspended(spec.rule) or not are_once:
        return []
    timeline = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
    return list(timeline.walk_back(spec.created_us, -1))


# -- something stored --------------------------------------------------------------------------


def _same_timing(spec: ScheduleSpec, stored: Definition, now_us: int, *, target: str) -> ArmingPlan:
    """Keep the chain; if the same texts may now name other slots, move it to the next of those.

    That happens after a change of the zone data, or of the meaning of specs: neither is an edit. A
    chain that is due already, or within a moment, keeps its place, and the worker that claims it
    continues with the new slots.
    """
    changed = msgspec.structs.replace(
        stored,
        generation=spec.generation,
        rule=spec.rule,
        target=target,
        fingerprint=spec.fingerprint,
    )
    after_us = now_us + MOVING_US
    due_us = _first_due_us(changed, after_us) if _may_move(stored, changed, after_us) else None
    arming = messages.Arming(
        definition=changed,
        due_us=due_us,
        after_us=0 if due_us is None else after_us,
        keep_chain=True,
        replaces=stored.fingerprint,
    )
    return ArmingPlan(arming=arming, definition=changed)


def _may_move(stored: Definition, changed: Definition, after_us: int) -> bool:
    """Whether the next slot may differ from the one that the chain waits for.

    If it does not, the chain is better left alone, because workers move it while we decide. If
    neither zone data nor target differ, the meaning of specs may have changed; we cannot compute
    the former meaning.
    """
    if stored.rule.timing.zone_data != changed.rule.timing.zone_data:
        return _first_due_us(stored, after_us) != _first_due_us(changed, after_us)
    return changed.generation <= stored.generation and stored.target == changed.target


def _first_due_us(definition: Definition, after_us: int) -> int | None:
    """Return the first due time after an instant; with jitter, its slot may be earlier."""
    timeline = slots_of(definition)
    slot_us = timeline.at_or_before(after_us)
    if slot_us is not None and slot_us > definition.not_before_us:
        due_us = timeline.due_slot(slot_us).due_us
        if due_us > after_us and definition.state is State.ARMED and definition.runs_left != 0:
            return due_us
    return chain_due_us(definition, after_us)


# -- arming ------------------------------------------------------------------------------------


def _armed(
    spec: ScheduleSpec,
    *,
    not_before_us: int,
    target: str,
    missed: int = 0,
    skipped: int = 0,
    started: int = 0,
    former: Definition | None = None,
) -> ArmingPlan:
    """Return the plan for a definition whose timing counts from this generation, with its chain.

    No timing reuses the number of a former one, even if a restore of the objects has lowered their
    generations: otherwise points of the former timing would not count as superseded.
    """
    after_former = 0 if former is None else former.timing_generation + 1
    wanted = Definition(
        namespace=spec.namespace,
        name=spec.name,
        uid=spec.uid,
        generation=spec.generation,
        timing_generation=max(spec.generation, after_former),
        created_us=spec.created_us,
        not_before_us=not_before_us,
        state=State.SUSPENDED if _is_suspended(spec.rule) else State.ARMED,
        rule=spec.rule,
        target=target,
        started=started if spec.rule.timing.max_runs is not None else 0,
        fingerprint=spec.fingerprint,
    )
    due_us = chain_due_us(wanted)
    if wanted.state is State.ARMED and due_us is None:
        wanted = msgspec.structs.replace(wanted, state=State.COMPLETED)
    arming = messages.Arming(
        definition=wanted,
        due_us=due_us,
        after_us=0 if former is None else chain_due_us(former, not_before_us) or 0,
        replaces=b"" if former is None else former.fingerprint,
    )
    return ArmingPlan(arming=arming, definition=wanted, missed=missed, skipped=skipped)


def _is_suspended(rule: rules.Rule) -> bool:
    """Whether the suspension has no end; with one, the chain waits for the first slot after it."""
    return rule.timing.suspend and rule.timing.suspend_until_us is None
