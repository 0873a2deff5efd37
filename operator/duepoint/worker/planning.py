"""Plans points one by one: which attempts to make, and which points end without one. Pure.

The input is the definitions and the claim, the output a Plan. Catch-up and deadline judge a chain
as of its first claim, however often it was taken over since: so exactly those slots run that a
former owner may have started. Ordinary points go in batches (``planner``).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from duepoint.delayqueue import messages, overlaps
from duepoint.runs.run import RunState
from duepoint.schedules import definition as definitions
from duepoint.schedules import points, policies, slots
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.worker import endings, runlimits
from duepoint.worker import plan as plans

Definitions = Mapping[points.ScheduleId, definitions.Definition]

_NO_LIMITS: runlimits.RunsLeft = {}


def plan(
    claim: messages.Claim,
    found: Definitions,
    *,
    attempt_limit_us: Callable[[definitions.Definition], int],
    unreadable: Collection[points.ScheduleId] = (),
    runs_left: runlimits.RunsLeft = _NO_LIMITS,
) -> plans.Plan:
    """Return what to do with each point of the claim.

    Args:
        claim: fresh or reclaimed.
        found: the newest definitions, read after the claim.
        attempt_limit_us: how long one attempt of this definition's target may take; a chain whose
            next slot comes sooner is split, so that a slow target delays no later slot.
        unreadable: schedules whose definition cannot be read: their points are dead letters, and
            the operator's comparison with the objects writes definition and chain anew.
        runs_left: how many slots the chains of schedules with maxRuns may hand over.
    """
    made = plans.Plan()
    for member, score in claim.unknown_members:
        made.settlement.dead.append(endings.unrecognised(member, score))
    for point in sorted(claim.points, key=_order_us):
        known = found.get(point.schedule_id)
        if known is not None:
            one = _PointPlan(claim, point, known, runs_left.get(point.schedule_id))
            try:
                one.decide(attempt_limit_us)
                one.leave()
            except Exception as trouble:  # noqa: BLE001 - one point's trouble is not its neighbours'
                made.unplanned.append((point, trouble))
                if claim.reclaimed >= messages.POISON_RECLAIMS:
                    made.settlement.dead.append(one.letter(Reason.INTERNAL_ERROR, repr(trouble)))
            else:
                made.add(one.made)
        elif point.schedule_id in unreadable:
            made.settlement.dead.append(endings.undefined(point))
        else:  # its schedule is deleted, and its regular slots have no reader
            made.settlement.finished.append(point.member)
            record = claim.records.get(point.member, plans.NO_RECORD)
            if (news := endings.withdrawn(point, record, claim.now_us)) is not None:
                made.settlement.events.append(news)
    return made


def _order_us(point: DuePoint) -> int:
    """Return the sort key: oldest slot first; ScheduleRuns in the order of their requests."""
    return point.due_us if point.kind in points.RUN_KINDS else point.slot_us


class _PointPlan:
    """Plans one point.

    Attributes:
        made: the plan; incomplete after an exception.
        runs_left: how many slots its chain may still hand over; None = no limit.
    """

    def __init__(
        self,
        claim: messages.Claim,
        point: DuePoint,
        known: definitions.Definition,
        runs_left: int | None,
    ) -> None:
        self.made = plans.Plan()
        self._settlement = self.made.settlement
        self._claim = claim
        self._point = point
        self._known = known
        self._runs_left = runs_left
        self._record = claim.records.get(point.member, plans.NO_RECORD)

    def decide(self, attempt_limit_us: Callable[[definitions.Definition], int]) -> None:
        """Decide what to do with the point; raises the errors of the schedule's rule."""
        claim, point = self._claim, self._point
        if claim.is_poison:
            self._bury()
        elif point.member in claim.unreadable:
            message = "the record of its attempts cannot be read"
            self._settlement.dead.append(self.letter(Reason.INTERNAL_ERROR, message))
            self._give_up(Reason.INTERNAL_ERROR, message)
        elif self._is_superseded():
            self._supersede()
        elif self._known.is_paused:
            self._put_back()
        elif point.kind is PointKind.EXPIRY:
            self._expire()
        elif point.kind is PointKind.CHAIN:
            self._plan_chain(attempt_limit_us(self._known))
        elif point.kind is PointKind.CHECK:
            self._plan_check()
        else:
            self._plan_occurrence()

    @functools.cached_property
    def _timeline(self) -> slots.Slots:
        known = self._known
        return slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)

    # -- points that end ---------------------------------------------------------------------------

    def letter(self, reason: Reason, message: str) -> messages.DeadLetter:
        """Return the point as a dead letter."""
        return endings.dead(self._point, self._known, self._record, reason, message)

    def _add_event(self, slot_us: int, state: RunState, reason: str, **more: Any) -> None:  # noqa: ANN401 - fields of RunEvent
        self._settlement.events.append(
            endings.slot_event(self._known, slot_us, state, reason, self._claim.now_us, **more)
        )

    def _give_up(self, reason: Reason, message: str) -> None:
        """Report the slot as missed: every slot leaves a trace, even one that kills workers."""
        point = self._point
        if point.kind is PointKind.CHECK:
            return
        more: dict[str, Any] = {"settled_us": point.slot_us}
        if point.kind in points.RUN_KINDS:
            more = {"trigger": self._record.trigger, "run_uid": self._record.run_uid}
        self._add_event(point.slot_us, RunState.MISSED, reason, message=message, **more)

    def _complete(self, newest_us: int) -> None:
        more: dict[str, Any] = {"count": 0, "settled_us": newest_us, "completed": True}
        self._add_event(newest_us, RunState.MISSED, Reason.COMPLETED, **more)

    def _skip_for_runs(self, slots_us: Sequence[int]) -> None:
        self._add_event(
            slots_us[-1],
            RunState.SKIPPED,
            Reason.COMPLETED,
            message="every run that spec.maxRuns allows has started or is being started",
            count=len(slots_us),
            settled_us=slots_us[-1],
            since_us=slots_us[0],
        )

    def _is_superseded(self) -> bool:
        point, known = self._point, self._known
        if point.kind not in points.TIMED_KINDS:
            return False
        return point.timing_version != known.timing_version or (
            point.kind is PointKind.CHAIN and known.state is not definitions.State.ARMED
        )

    def _supersede(self) -> None:
        """End a point of an outdated timing; a slot that was ready at a suspension is skipped."""
        point = self._point
        self._settlement.finished.append(point.member)
        if point.kind is PointKind.EXPIRY:
            return
        if self._known.rule.timing.suspend and point.kind is not PointKind.CHAIN:
            message = "it had not started when its Schedule was suspended"
            self._add_event(point.slot_us, RunState.SKIPPED, Reason.SUSPENDED, message=message)
        else:
            self._add_event(point.slot_us, RunState.SUPERSEDED, Reason.REPLACED)

    def _put_back(self) -> None:
        """Give the point back with its due: its set is paused, and the queue keeps the point."""
        point = self._point
        if point.kind is PointKind.CHAIN:
            self._settlement.chains.append((point.member, point.due_us))
        else:
            waiting = messages.Occurrence(point=point, record=self._record, source=point.member)
            self._settlement.occurrences.append(waiting)

    def _expire(self) -> None:
        """Remove an ended member that was kept as long as its set specifies."""
        self._settlement.finished.append(self._point.member)

    def leave(self) -> None:
        """Let a member of a set leave if this point, ending without an attempt, was its last."""
        made, kind = self._settlement, self._point.kind
        if self._known.owner is None or not (made.finished or made.dead):
            return
        why = messages.Leaving.DEAD if made.dead else messages.Leaving.ENDED
        if kind is PointKind.EXPIRY and not self._is_superseded():
            why = messages.Leaving.EXPIRED
        made.leaving.append((self._point.schedule_id, why))

    def _bury(self) -> None:
        """Bury a slot that kills its workers; its schedule goes on with the next one."""
        point = self._point
        reason = f"claimed alone {self._claim.alone} times and never settled"
        letter = self.letter(Reason.INTERNAL_ERROR, reason)
        self._give_up(Reason.INTERNAL_ERROR, reason)
        if point.kind is PointKind.CHAIN:
            self._settlement.dead.append(dataclasses.replace(letter, member=b""))
            self._settlement.move(point.member, self._timeline.next_after(point.slot_us))
        else:
            self._settlement.dead.append(letter)

    # -- chains ------------------------------------------------------------------------------------

    def _plan_chain(self, limit_us: int) -> None:
        chain, known, claim, timeline = self._point, self._known, self._claim, self._timeline
        if known.rule.timing.zone_data and not _has_slot(timeline, chain.due_us):
            following = timeline.next_after(chain.due_us)
            if following is None or following.due_us > claim.now_us:
                self._settlement.move(chain.member, following)
                if following is None:
                    self._complete(chain.due_us)
                return
            chain = dataclasses.replace(chain, due_us=following.due_us)
        first_us = timeline.at_or_before(chain.due_us) or 0
        if known.runs_left == 0:
            self._settlement.move(chain.member, None)
            self._complete(first_us)
            return
        decided = policies.decide(
            timeline,
            known.rule.policy,
            chain_due_us=chain.due_us,
            now_us=claim.judged_us,
            most=runlimits.most_planned(claim),
        )
        decision = self._within_runs(decided, first_us)
        following = decision.following
        if not decision.run:
            self._settlement.move(chain.member, following)
            if self._settlement.events and following is None:
                self._complete(decision.newest_us)
            return
        is_simple = len(decision.run) == 1 and not self._settlement.events and not self._is_judged()
        # With one run left the chain has no other slot to hand over while this one is tried.
        may_wait = following is None or following.due_us >= claim.now_us + limit_us
        if is_simple and (self._runs_left == 1 or may_wait):
            only = decision.run[0]
            attempt = self._attempt_of(chain, only, following, begins_first=True)
            self.made.attempts.append((attempt,))
            return
        self._split(chain, decision.run, following, begins_first=is_simple)

    def _within_runs(self, decided: policies.Decision, first_us: int) -> policies.Decision:
        """Limit the decision to the runs that are left; report the slots that do not run."""
        decision, skipped = runlimits.within(decided, self._runs_left)
        for group in decision.missed:
            self._add_event(
                group.newest_us,
                RunState.MISSED,
                group.reason,
                count=group.count,
                settled_us=group.newest_us,
                since_us=first_us,
            )
        if skipped:
            self._skip_for_runs([one.slot_us for one in skipped])
        return decision

    def _is_judged(self) -> bool:
        """Whether a policy decides if a slot starts: the chain is split then, so it can wait."""
        return self._known.rule.policy.concurrency_policy != overlaps.ALLOW

    def _split(
        self,
        chain: DuePoint,
        run: tuple[policies.Chosen, ...],
        following: slots.DueSlot | None,
        *,
        begins_first: bool,
    ) -> None:
        """Move the chain on before its slots are tried; store them as occurrences beside it."""
        attempts = tuple(
            self._attempt_of(
                dataclasses.replace(
                    chain, kind=PointKind.PLANNED, due_us=one.due_us, slot_us=one.slot_us
                ),
                one,
                following,
                begins_first=begins_first,
            )
            for one in run
        )
        occurrences = [
            messages.Occurrence(
                point=one.point, record=messages.OccurrenceRecord(trigger=one.trigger)
            )
            for one in attempts
        ]
        self.made.attempts.append(attempts)
        oldest, *later = attempts
        # The slots are open from then on: the end of a later slot does not count as theirs. Later
        # events of them must be read after this one.
        split = messages.Settlement(planned=occurrences)
        split.move(chain.member, following)
        split.events.append(
            endings.slot_event(
                self._known,
                oldest.slot_us,
                RunState.PENDING,
                "",
                self._claim.now_us,
                trigger=oldest.trigger,
                due_us=oldest.due_us,
                more_us=tuple([one.slot_us for one in later]),
            )
        )
        self.made.splits.append(split)

    def _attempt_of(
        self,
        point: DuePoint,
        chosen: policies.Chosen,
        following: slots.DueSlot | None,
        *,
        begins_first: bool,
    ) -> plans.Attempt:
        """Return the first attempt of a slot that a policy has chosen."""
        timeline = self._timeline
        return plans.Attempt(
            point=point,
            definition=self._known,
            slot_us=chosen.slot_us,
            due_us=chosen.due_us,
            previous_us=timeline.previous_before(chosen.slot_us),
            trigger=plans.TRIGGER_CATCH_UP if chosen.catch_up else plans.TRIGGER_SCHEDULE,
            following=following,
            completes=following is None and timeline.next_after(chosen.slot_us) is None,
            begins_first=begins_first,
            is_judged=self._is_judged(),
        )

    # -- occurrences -------------------------------------------------------------------------------

    def _plan_occurrence(self) -> None:
        point, known, record = self._point, self._known, self._record
        is_run = point.kind in points.RUN_KINDS
        has_started = runlimits.has_started(known, record.first_try_us)
        if known.runs_left == 0 and not is_run and not has_started:
            # An edit lowered maxRuns, and other slots have taken the runs that were left.
            self._settlement.finished.append(point.member)
            self._skip_for_runs([point.slot_us])
            return
        if (reason := self._refused_release()) is not None:
            self._settlement.finished.append(point.member)
            self._give_up(
                reason, "it had waited for a run to end until concurrencyPolicy was edited"
            )
            return
        # The instant that its age counts from: the replay of a dead letter, the request of a
        # ScheduleRun (not its slot), else the due of the slot.
        due_us = record.replayed_us or (
            (record.first_try_us or point.due_us)
            if is_run
            else self._timeline.due_slot(point.slot_us).due_us
        )
        attempt = plans.Attempt(
            point=point,
            definition=known,
            slot_us=point.slot_us,
            due_us=due_us,
            previous_us=self._timeline.previous_before(point.slot_us),
            trigger=record.trigger,
            # A slot that waited was not tried: the number in its record counts how often it waited.
            number=1 if point.kind is PointKind.QUEUED else record.attempt + 1,
            first_try_us=record.first_try_us,
            record=record,
            completes=self._timeline.next_after(point.slot_us) is None,
            is_judged=self._is_judged() or record.concurrency not in ("", overlaps.ALLOW),
        )
        self.made.attempts.append((attempt,))

    def _refused_release(self) -> Reason | None:
        """Return why a slot that waited does not run after an edit of the concurrency policy.

        The new policy lets no slot wait. All that waited are judged together, as after an outage.
        """
        policy = self._known.rule.policy
        if self._point.kind is not PointKind.QUEUED or policy.concurrency_policy == overlaps.QUEUE:
            return None
        judged_us = self._claim.judged_us
        return policies.refusal(
            self._timeline, policy, slot_us=self._point.slot_us, now_us=judged_us
        )

    def _plan_check(self) -> None:
        """Plan a check of the newest generation; an older one ends, as the newest has its own."""
        point, now_us = self._point, self._claim.now_us
        if point.slot_us < self._known.generation:
            self._settlement.finished.append(point.member)
            return
        check = plans.Attempt(
            point=point,
            definition=self._known,
            slot_us=now_us,
            due_us=now_us,
            previous_us=None,
            trigger=plans.TRIGGER_CHECK,
            number=self._record.attempt + 1,
        )
        self.made.attempts.append((check,))


def _has_slot(timeline: slots.Slots, due_us: int) -> bool:
    """Whether a chain's due is that of a slot.

    It is not if it was computed with other zone data: that slot does not exist any more, and
    earlier slots that only the present data have are in the past.
    """
    slot_us = timeline.at_or_before(due_us)
    return slot_us is not None and timeline.due_slot(slot_us).due_us == due_us
