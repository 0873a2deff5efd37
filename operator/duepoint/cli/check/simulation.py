"""What becomes of each slot of a Schedule in a stretch of time with outages and suspensions.

Nothing is decided here. The operator's ``controller.plan.decide`` says what the queue holds after
each edit, the worker's ``schedules.policies.decide`` what a claimed chain leads to; this is a
cluster's time line around them: a chain is claimed when its due comes, or when an outage ends;
an edit is seen when it is made, or when an outage ends, and then before anything is claimed.
A run takes no time.

Windows are half open: down or suspended from the first instant on, back at the last. Slots come
out one by one, oldest first, and nothing is kept of them, so a year of seconds is as small as a
day. Pure; instants in microseconds since the epoch.
"""

from __future__ import annotations

import enum
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from duepoint.controller import plan
from duepoint.schedules import policies
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.slots import Slots
from duepoint.schedules.spec import ScheduleSpec
from duepoint.worker import runlimits

#: In place of the digest of an action, which is not looked up here.
_TARGET = ""

Window = tuple[int, int]


class End(enum.StrEnum):
    """How a slot ends."""

    STARTED = "Started"
    SKIPPED = "Skipped"
    MISSED = "Missed"
    SUPERSEDED = "Superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One slot and its end.

    Attributes:
        reason: why it did not run; empty where it did.
        fired_us: when it started, or None.
        catch_up: it was late, or one of several.
    """

    slot_us: int
    end: End
    reason: str = ""
    fired_us: int | None = None
    catch_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What happens around the Schedule from ``from_us`` until before ``to_us``."""

    from_us: int
    to_us: int
    down: tuple[Window, ...] = ()
    suspended: tuple[Window, ...] = ()

    def up_at(self, instant_us: int) -> int:
        """The instant, or the end of the outage that it lies in."""
        index = bisect_right(self.down, instant_us, key=lambda window: window[0]) - 1
        if index >= 0 and instant_us < self.down[index][1]:
            return self.down[index][1]
        return instant_us


def joined(windows: Sequence[Window]) -> tuple[Window, ...]:
    """The windows in order, those that touch drawn together."""
    row: list[Window] = []
    for begin, end in sorted(windows):
        if row and begin <= row[-1][1]:
            row[-1] = (row[-1][0], max(row[-1][1], end))
        else:
            row.append((begin, end))
    return tuple(row)


def outcomes(spec: ScheduleSpec, course: Course, *, is_new: bool) -> Iterator[Ended]:
    """Each slot in the course and its end, oldest first.

    Args:
        spec: the Schedule as it was written.
        course: windows in order that do not touch (``joined``).
        is_new: it was created in the course; else all slots before the course have ended.
    """
    for ended in _Timeline(spec, course, is_new=is_new).run():
        if ended.slot_us >= course.to_us:
            return
        yield ended


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    """A spec that the operator sees from ``seen_us`` on; what is due then is already its own."""

    seen_us: int
    spec: ScheduleSpec


class _Timeline:
    """One Schedule's way through the course."""

    def __init__(self, spec: ScheduleSpec, course: Course, *, is_new: bool) -> None:
        self._spec = spec
        self._course = course
        self._is_new = is_new
        self._stored: Definition | None = None
        self._slots: Slots | None = None
        self._chain_due_us: int | None = None
        self._ended_us = 0  # every slot of the present timing up to here has ended

    def run(self) -> Iterator[Ended]:
        yield from self._begin()
        for edit in self._edits():
            yield from self._go_on(until_us=edit.seen_us)
            yield from self._accept(edit.spec, edit.seen_us)
        yield from self._go_on(until_us=None)

    # -- the operator --------------------------------------------------------------------------

    def _begin(self) -> Iterator[Ended]:
        before_us = self._course.from_us - 1
        status = plan.PublishedStatus()
        if not self._is_new:
            status = plan.PublishedStatus(
                observed_generation=self._spec.generation, accepted=True, settled_us=before_us
            )
        now_us = self._course.up_at(self._spec.created_us) if self._is_new else before_us
        made = plan.decide(self._spec, None, status, now_us, target=_TARGET)
        if made is not None:
            self._take(made)
            yield from self._missed_at_once(made.missed)

    def _missed_at_once(self, count: int) -> Iterator[Ended]:
        """``@at`` slots that lay in the past when the Schedule was created, oldest first."""
        if count and self._slots is not None:
            past = [*self._slots.walk_back(self._spec.created_us, -1)]
            for slot_us in past[::-1][:count]:
                yield _missed(slot_us, Reason.DEADLINE_EXCEEDED)

    def _edits(self) -> Iterator[_Edit]:
        """Suspended and resumed; of edits made in one outage only the last is ever seen."""
        made: dict[int, bool] = {}
        for begin_us, end_us in self._course.suspended:
            made[self._course.up_at(max(begin_us, self._course.from_us))] = True
            made[self._course.up_at(end_us)] = False
        for number, (seen_us, suspended) in enumerate(made.items(), start=1):
            generation = self._spec.generation + number
            spec = msgspec.structs.replace(self._spec, generation=generation)
            yield _Edit(seen_us=seen_us, spec=_suspended(spec) if suspended else spec)

    def _accept(self, spec: ScheduleSpec, seen_us: int) -> Iterator[Ended]:
        made = plan.decide(spec, self._stored, plan.PublishedStatus(), seen_us - 1, target=_TARGET)
        if made is None:
            return
        if made.arming is not None and not made.arming.keep_chain:
            yield from self._superseded(seen_us - 1)
        self._take(made)

    def _superseded(self, through_us: int) -> Iterator[Ended]:
        if self._chain_due_us is not None and self._slots is not None:
            for slot_us in self._slots.walk(self._ended_us, through_us):
                yield Ended(slot_us=slot_us, end=End.SUPERSEDED, reason=Reason.STALE_VERSION)

    def _take(self, made: plan.ArmingPlan) -> None:
        self._stored = made.definition
        if made.arming is None or made.arming.keep_chain:
            return
        self._slots = plan.slots_of(made.definition)
        self._chain_due_us = made.arming.due_us
        self._ended_us = made.definition.not_before_us

    # -- the worker ----------------------------------------------------------------------------

    def _go_on(self, *, until_us: int | None) -> Iterator[Ended]:
        """Everything that is decided before the next edit is seen."""
        stored, timeline = self._stored, self._slots
        if stored is None or timeline is None:
            return
        yield from self._skipped(stored, self._course.to_us if until_us is None else until_us)
        while stored.state is State.ARMED and self._chain_due_us is not None:
            now_us = self._course.up_at(self._chain_due_us)
            if until_us is not None and now_us >= until_us:
                return
            decision = policies.decide(
                timeline, stored.rule.policy, chain_due_us=self._chain_due_us, now_us=now_us
            )
            decision, skipped = runlimits.within(decision, stored.runs_left)
            yield from _decided(timeline, self._ended_us, decision, now_us)
            self._ended_us = decision.newest_us
            following = decision.following
            stored = self._stored = msgspec.structs.replace(
                stored, started=stored.started + len(decision.run)
            )
            if stored.runs_left == 0:
                following = None
                yield from _out_of_runs(timeline, skipped)
            self._chain_due_us = None if following is None else following.due_us

    def _skipped(self, stored: Definition, until_us: int) -> Iterator[Ended]:
        gone = plan.swallowed_by_suspension(stored, until_us - 1)
        if gone is not None:
            for slot_us in gone.timeline.walk(gone.after_us, gone.through_us):
                yield Ended(slot_us=slot_us, end=End.SKIPPED, reason=Reason.SUSPENDED)


def _decided(
    timeline: Slots, after_us: int, decision: policies.Decision, now_us: int
) -> Iterator[Ended]:
    """The slots of one claim: those that are missed come before those that run."""
    if decision.missed:
        slots_us = timeline.walk(after_us, decision.newest_us)
        for group in decision.missed:
            for slot_us in itertools.islice(slots_us, group.count):
                yield _missed(slot_us, group.reason)
    for chosen in decision.run:
        yield Ended(
            slot_us=chosen.slot_us, end=End.STARTED, fired_us=now_us, catch_up=chosen.catch_up
        )


def _out_of_runs(timeline: Slots, skipped: runlimits.SkippedRuns | None) -> Iterator[Ended]:
    """Overdue slots that come after the last run of ``maxRuns``."""
    if skipped is not None:
        for slot_us in timeline.walk(skipped.oldest_us - 1, skipped.newest_us):
            yield Ended(slot_us=slot_us, end=End.SKIPPED, reason=Reason.MAX_RUNS)


def _missed(slot_us: int, reason: Reason) -> Ended:
    return Ended(slot_us=slot_us, end=End.MISSED, reason=reason)


def _suspended(spec: ScheduleSpec) -> ScheduleSpec:
    timing = msgspec.structs.replace(spec.rule.timing, suspend=True, suspend_until_us=None)
    return msgspec.structs.replace(spec, rule=msgspec.structs.replace(spec.rule, timing=timing))
