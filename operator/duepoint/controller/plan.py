"""What the queue should hold for a Schedule: the decision, without its performance.

``decide`` compares an accepted spec with what the queue holds and with what the status says, and
names the arming that brings them together, or none. The rules it owns:

- the queue never goes back to an older generation of the same uid, unless a complete list shows
  that the objects were restored; the same generation with another content is taken;
- a change of the timing starts anew from the moment it is seen and never fires a past slot; any
  other change leaves points, claims and retries alone;
- a lost index is rebuilt from what has ended by the status: the chain from the watermark, and an
  occurrence for each open slot; a Schedule never looked at starts from its creation, and one that
  has another timing since from now, with those open slots that have started;
- a new ``@at`` that passed before the creation runs where its deadline covers it; without one only
  if that was a moment before.

Pure: time and everything stored are arguments. Instants in microseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from duepoint.delayqueue import messages
from duepoint.runs.watermark import Watermark
from duepoint.schedules import points, policies, slots
from duepoint.schedules import rule as rules
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.spec import ScheduleSpec

if TYPE_CHECKING:  # the command line decides by this module, too, and loads no Redis client
    from duepoint.delayqueue.definitions.occurrences import StoredOccurrence

#: The clocks differ a little and the way to the queue takes a while: what is due within this is
#: left to the worker that claims it, and of another timeline only what is due later counts.
MOVING_US = 1_000_000
#: Open slots of one schedule are tried this far apart after their index was lost.
REOPEN_STEP_US = 50_000


class PublishedStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the status says, as far as a decision needs it.

    Attributes:
        observed_generation: the newest that was looked at; -1 = none was yet.
        accepted: Ready was True when that generation was observed.
        settled_us: the watermark, or None where there is none.
        started_us, waiting_us: open slots, as ``Watermark`` has them.
        retried_us: slots above the watermark whose delivery failed and is repeated, oldest first.
            The chain comes to them again, unless the timing changes.
        armed, suspended: Ready says so.
        stalled: why that generation is refused; empty where it is not.
        waits: that generation was looked at, and neither accepted nor refused.
        started: runs of regular slots so far, as the status counts them.
        timing_hash: of the timing that the watermark and the open slots belong to; where there are
            none, of the one that was looked at and waits. Empty = not known.
    """

    observed_generation: int = -1
    accepted: bool = False
    settled_us: int | None = None
    started_us: tuple[int, ...] = ()
    waiting_us: tuple[int, ...] = ()
    retried_us: tuple[int, ...] = ()
    armed: bool = False
    suspended: bool = False
    stalled: str = ""
    waits: bool = False
    started: int = 0
    timing_hash: str = ""

    @property
    def settled(self) -> Watermark:
        """What has ended."""
        return Watermark(self.settled_us or 0, self.started_us, self.waiting_us)

    @property
    def is_new(self) -> bool:
        """Whether no generation of this object was ever armed or refused.

        One may have been looked at, while Redis was away: its slots still count from the creation.
        An edit of its timing that is seen after that counts from there, also where the spec was
        refused before: its status has a watermark although it waits.
        """
        if self.observed_generation < 0:
            return True
        return self.waits and self.settled_us is None

    def has_accepted(self, generation: int) -> bool:
        """Whether this generation is the one that was accepted."""
        return self.accepted and self.observed_generation == generation


class ArmingPlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What to do, and what will then be true.

    Attributes:
        arming: what to store; None where the queue holds this generation already.
        definition: what the queue holds afterwards.
        missed: slots that end without a run because they lay in the past when first seen.
        skipped: slots that passed under a suspension that ends now.
    """

    arming: messages.Arming | None
    definition: Definition
    missed: int = 0
    skipped: int = 0


def decide(
    spec: ScheduleSpec,
    stored: Definition | None,
    status: PublishedStatus,
    now_us: int,
    *,
    target: str,
    collision: int = 0,
    replaces: bytes = b"",
    acts_us: int | None = None,
) -> ArmingPlan | None:
    """The plan for a spec, or None where the queue already holds a newer generation.

    Args:
        spec: the accepted spec.
        stored: what the queue holds for this uid.
        status: what the published status says.
        now_us: when this generation was first seen; an edit counts from here.
        target: digest of the spec's action, as the queue spells it.
        collision: counter of the id under which nothing of another uid was found.
        replaces: fingerprint that the queue held before a complete list began that shows this
            generation: a newer one with that fingerprint was undone by a restore of the objects.
        acts_us: the time at which the plan is performed; None = ``now_us``.
    """
    if stored is None:
        return _first(spec, status, now_us, target=target, collision=collision)
    if stored.generation > spec.generation and stored.fingerprint != replaces:
        return None
    if (stored.generation, stored.fingerprint) == (spec.generation, spec.fingerprint):
        # A first sight may have been cut off by a crash before its misses were published.
        is_unseen = status.is_new and stored.state is State.COMPLETED
        missed = len(_past_once(spec)) if is_unseen else 0
        return ArmingPlan(arming=None, definition=stored, missed=missed)
    # The data of its zone may be others without an edit.
    timing = msgspec.structs.replace(stored.rule.timing, zone_data=spec.rule.timing.zone_data)
    if timing == spec.rule.timing and stored.rule.whole_seconds == spec.rule.whole_seconds:
        return _same_timing(spec, stored, now_us if acts_us is None else acts_us, target=target)
    started = stored.started if stored.runs_left is not None else status.started
    # A suspension that ended by itself is counted when its end is published.
    is_counted = has_resumed(stored, now_us) and not status.suspended
    skipped = 0 if is_counted else skipped_by_suspension(stored, now_us)
    return _armed(
        spec,
        not_before_us=now_us,
        target=target,
        collision=stored.collision,
        skipped=skipped,
        started=started,
        former=stored,
    )


def is_published(status: PublishedStatus, made: ArmingPlan) -> bool:
    """Whether the status of an accepted generation says what will be true after the plan.

    So it is of nearly all objects when an index is rebuilt: their chains go on from the watermark,
    and as after any change of leaders no status has to be written again.
    """
    definition = made.definition
    goes_on = definition.state is State.ARMED and definition.not_before_us == status.settled_us
    return (
        goes_on
        and status.armed
        and status.timing_hash == rules.timing_hash(definition.rule)
        and definition.rule.timing.max_runs is None
        and not definition.rule.timing.suspend
        and not (made.missed or made.skipped)
    )


def is_lost_edit(spec: ScheduleSpec, stored: Definition, status: PublishedStatus) -> bool:
    """Whether the queue held this timing before it went back to that of an older generation.

    Then it is put as after a loss of the whole index, and goes on from its watermark.
    """
    return (
        stored.generation < spec.generation
        and status.has_accepted(spec.generation)
        and status.settled_us is not None
        and status.timing_hash == rules.timing_hash(spec.rule)
        and status.timing_hash != rules.timing_hash(stored.rule)
    )


def is_wider(stored: Definition | None, edited: Definition) -> bool:
    """Whether an edit lets slots start, or end, that wait for runs of the schedule to end."""
    if stored is None or stored.rule.policy.concurrency != "Queue":
        return False
    was, now = stored.rule.policy, edited.rule.policy
    is_other = now.concurrency != "Queue" or stored.timing_version != edited.timing_version
    return is_other or now.max_concurrency > was.max_concurrency


def is_superseded(point: points.DuePoint | StoredOccurrence, definition: Definition) -> bool:
    """Whether an edit of the timing has ended the slot of a point."""
    return point.kind in points.TIMED_KINDS and point.timing_version != definition.timing_version


def chain_due_us(definition: Definition, settled_us: int = 0) -> int | None:
    """The due of the chain point that an armed definition should have; None = no slot left."""
    if definition.state is not State.ARMED or definition.runs_left == 0:
        return None
    following = slots_of(definition).next_after(max(definition.not_before_us, settled_us))
    return None if following is None else following.due_us


def slots_of(definition: Definition) -> slots.Slots:
    """The slots of a stored definition."""
    return slots.for_rule(
        definition.rule, identity=definition.identity, created_us=definition.created_us
    )


def awake_slots_of(definition: Definition) -> slots.Slots:
    """Its slots as they would be if no suspension held them up."""
    awake = msgspec.structs.replace(definition.rule.timing, suspend=False, suspend_until_us=None)
    rule = msgspec.structs.replace(definition.rule, timing=awake)
    return slots.for_rule(rule, identity=definition.identity, created_us=definition.created_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swallowed:
    """The slots in ``(after_us, through_us]`` of a timeline that no suspension holds up."""

    timeline: slots.Slots
    after_us: int
    through_us: int


def swallowed_by_suspension(definition: Definition, now_us: int) -> Swallowed | None:
    """The slots that the definition's suspension has swallowed up to now."""
    timing = definition.rule.timing
    if not timing.suspend:
        return None
    ends_us = now_us if timing.suspend_until_us is None else timing.suspend_until_us - 1
    return Swallowed(
        timeline=awake_slots_of(definition),
        after_us=definition.not_before_us,
        through_us=min(now_us, ends_us),
    )


def skipped_by_suspension(definition: Definition, now_us: int) -> int:
    """How many slots the definition's suspension has swallowed up to now."""
    gone = swallowed_by_suspension(definition, now_us)
    return 0 if gone is None else gone.timeline.count(gone.after_us, gone.through_us)


def has_resumed(definition: Definition, now_us: int) -> bool:
    """Whether a suspension with an end is over."""
    timing = definition.rule.timing
    until_us = timing.suspend_until_us
    return timing.suspend and until_us is not None and until_us <= now_us


# -- nothing stored ----------------------------------------------------------------------------


def _first(
    spec: ScheduleSpec, status: PublishedStatus, now_us: int, *, target: str, collision: int
) -> ArmingPlan:
    is_same_timing = status.timing_hash == rules.timing_hash(spec.rule)
    if status.is_new and (is_same_timing or not status.timing_hash):
        return _new(spec, now_us, target=target, collision=collision)
    goes_on = status.has_accepted(spec.generation) or is_same_timing
    is_known = goes_on and status.settled_us is not None
    under_way = (*status.started_us, *status.retried_us)
    settled = status.settled if is_known else Watermark(now_us, under_way)
    made = _armed(
        spec,
        not_before_us=settled.through_us,
        target=target,
        collision=collision,
        started=status.started,
    )
    return _reopened(made, settled, now_us)


def _reopened(made: ArmingPlan, settled: Watermark, now_us: int) -> ArmingPlan:
    """The plan with an occurrence for each open slot, due now one after the other.

    What has started goes on as a retry, with the same identity; what has not is handed over anew,
    so that its concurrency policy is asked.
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
    """An open slot whose point was lost.

    Args:
        first_us: of a slot that has started, when it was due: its age counts from there; else 0.
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


def _new(spec: ScheduleSpec, now_us: int, *, target: str, collision: int) -> ArmingPlan:
    past, policy = _past_once(spec), spec.rule.policy
    # A deadline counts until the start; what has none is judged as it was written.
    judged_us = spec.created_us if policy.deadline_us is None else now_us
    covered = [slot for slot in past if not policies.had_passed(slot, policy, judged_us)]
    return _armed(
        spec,
        not_before_us=min(covered) - 1 if covered else spec.created_us,
        target=target,
        collision=collision,
        missed=len(past) - len(covered),
    )


def _past_once(spec: ScheduleSpec) -> list[int]:
    """Slots of ``@at`` texts that lay in the past at creation; none beside other expressions."""
    timing = spec.rule.timing
    are_once = all(text.strip().lower().startswith("@at") for text in timing.schedules)
    if _is_suspended(spec.rule) or not are_once:
        return []
    timeline = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
    return list(timeline.walk_back(spec.created_us, -1))


# -- something stored --------------------------------------------------------------------------


def _same_timing(spec: ScheduleSpec, stored: Definition, now_us: int, *, target: str) -> ArmingPlan:
    """The chain goes on; where the same texts may name other slots, from the next of those.

    So it is after a change of the zone data, or of what a spec means: neither is an edit. A chain
    that is due already, or within a moment, keeps its place, and the worker that claims it goes on
    with the new slots.
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
    """Whether the next slot may be another one than that for which the chain waits.

    A chain that has no other slot to go to is better left alone: it moves on while this is decided.
    Where neither zone nor target differ, it may be what a spec means that has changed; the former
    meaning cannot be asked.
    """
    if stored.rule.timing.zone_data != changed.rule.timing.zone_data:
        return _first_due_us(stored, after_us) != _first_due_us(changed, after_us)
    return changed.generation <= stored.generation and stored.target == changed.target


def _first_due_us(definition: Definition, after_us: int) -> int | None:
    """The first due after an instant; its slot may be earlier, by the jitter."""
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
    collision: int,
    missed: int = 0,
    skipped: int = 0,
    started: int = 0,
    former: Definition | None = None,
) -> ArmingPlan:
    """A definition whose timing counts from this generation on, with the chain it wants.

    No timing has the number of a former one, also where a restore of the objects has taken their
    generations back: what was armed under that number is superseded.
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
        collision=collision,
        started=started if spec.rule.timing.max_runs is not None else 0,
        fingerprint=spec.fingerprint,
    )
    due_us = chain_due_us(wanted)
    if wanted.state is State.ARMED and due_us is None:
        wanted = msgspec.structs.replace(wanted, state=State.COMPLETED)
    arming = messages.Arming(
        definition=wanted,
        due_us=due_us,
        replaces=b"" if former is None else former.fingerprint,
    )
    return ArmingPlan(
        arming=arming,
        definition=wanted,
        missed=missed,
        skipped=skipped,
    )


def _is_suspended(rule: rules.Rule) -> bool:
    """Without an end; with one the chain waits for the first slot from then on."""
    return rule.timing.suspend and rule.timing.suspend_until_us is None
