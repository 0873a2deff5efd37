"""The state of one Schedule: its published status, and everything learned since.

A ``ScheduleState`` has the published status, the newest report of the reconciler, the newest check
of a worker, the definition in the queue, and the fold of its runs. The functions here apply
reports, checks and published statuses to it; ``folding`` applies run events; ``render`` makes the
resulting status. A field that this process has not determined yet is read from the published
status, lazily, because a takeover creates one state for every object. No I/O, no clock.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from duepoint.controller import plan, statusconditions
from duepoint.controller.observed import Observed
from duepoint.controller.status import published
from duepoint.controller.status.published import Status
from duepoint.controller.statusconditions import Report
from duepoint.kube import events, jobs
from duepoint.runs import history as histories
from duepoint.runs import summary as summaries
from duepoint.runs import watermark
from duepoint.runs.run import RunEvent, RunState
from duepoint.runs.watermark import OpenSlots, Watermark
from duepoint.schedules import manualruns
from duepoint.schedules.conditions import Condition, ConditionType, Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.diagnosis import Shown

#: How long after its published next slot a status is rendered again, if nothing was reported.
_NEXT_GRACE_US = 5_000_000
#: How often open slots are read again, in case the report of an end was lost.
_OPEN_US = 600_000_000
_FAILING_TEXT = f'"{ConditionType.FAILING}"'.encode()
#: Conditions that come from reports; the others follow from runs, slots and Jobs.
_OF_REPORTS = {ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED}


class ScheduleState(msgspec.Struct, kw_only=True):
    """One Schedule.

    Attributes:
        generation: the newest one reported or published.
        answered: the newest generation that was accepted or refused.
        report: the newest report.
        conditions: those of the report, as its check lets them stand; None = the published hold.
        definition: the definition in the queue, once known.
        holds_nothing: whether the Schedule was refused and so has left the queue.
        summary: the fold of its runs; None until it is needed.
        open: slots that had not ended when the queue was last read, although later ones may have.
        check: the newest check of a worker.
        refusals: how many slots in a row the API server has refused for their Job template.
        managed_by: our installation, as the status names it.
        is_overwritten: whether another client has written another status.
        shows_failing: whether the published status has a Failing condition.
        may_show_running: whether the published status may list an active run.
        changed_at: since when the status has changed, monotonic; None = the published one is true.
        is_urgent: whether that change is written as soon as possible.
        is_large: whether writing it keeps the API server busy for longer than most others.
        written_at: when the status was last written, monotonic.
        version: the newest resourceVersion that we have read or written; 0 = unknown.
        refused_pods: why one of its Jobs has no Pods; "" = all have some.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    answered: int = -1
    report: Report | None = None
    conditions: tuple[Condition, ...] | None = None
    target: str | None = None
    definition: Definition | None = None
    holds_nothing: bool = False
    summary: summaries.Summary | None = None
    open: OpenSlots = ()
    check: RunEvent | None = None
    refusals: int = 0
    refused_pods: str = ""
    managed_by: str = ""
    is_overwritten: bool = False
    shows_failing: bool = False
    may_show_running: bool = False
    changed_at: float | None = None
    is_urgent: bool = False
    is_large: bool = False
    written_at: float = float("-inf")
    version: int = 0
    _compressed: bytes = zlib.compress(b"{}")

    @property
    def object(self) -> events.ObjectReference:
        return events.ObjectReference(namespace=self.namespace, name=self.name, uid=self.uid)

    @property
    def owner(self) -> jobs.JobOwner:
        """The Schedule as the controller of its Jobs."""
        return jobs.JobOwner(self.namespace, self.name, self.uid)

    # -- published -------------------------------------------------------------------------------

    @property
    def published(self) -> bytes:
        """The JSON text of the status in the API server, as far as we know."""
        return zlib.decompress(self._compressed)

    @published.setter
    def published(self, status: bytes) -> None:
        self._compressed = zlib.compress(status, 1)
        self.shows_failing = _FAILING_TEXT in status
        # Cheaper than decoding the text.
        self.may_show_running = b'"activeCount"' in status or b'"Running"' in status

    def last(self) -> Status:
        """Return the published status, read-only."""
        return published.decompressed(self._compressed)

    def reported_conditions(self) -> tuple[Condition, ...]:
        """Return the conditions of the newest report, else of the published status."""
        if self.conditions is not None:
            return self.conditions
        return tuple(_reported(self.last().conditions))

    def has_ended(self, slot_us: int) -> bool:
        """Whether the published status says that a slot has ended for good.

        False if an edit of the timing has passed the slot while a worker still requests its Job:
        the name of that Job must not become free.
        """
        return self.last().watermark.has_ended(slot_us) and not self.is_open(slot_us)

    def running_jobs_shown(self) -> frozenset[str]:
        """Return the Jobs that the published status shows as running."""
        status, last_run = self.last(), self.last().last_run
        names = {reference.name for reference in status.active}
        if last_run is not None and last_run.outcome == RunState.RUNNING:
            names.add(last_run.job_name)
        return frozenset(names)

    # -- runs ------------------------------------------------------------------------------------

    def settled(self) -> Watermark:
        """Return the slots that have ended as far as we know, published or not."""
        return watermark.settled(self.open, self.runs().settled_us)

    def settle(self, through_us: int, open_slots: OpenSlots) -> None:
        """Record that every slot up to here has ended, except these open ones."""
        listable_us = watermark.listable_us(open_slots, through_us)
        self.summary, self.open = summaries.settled(self.runs(), listable_us), open_slots

    def is_open(self, slot_us: int) -> bool:
        """Whether the slot had not ended when the queue was last read."""
        return any(slot.slot_us == slot_us for slot in self.open)

    @property
    def timing_generation(self) -> int:
        """The generation of the last edit of the timing; never above the generation itself.

        After a restore of the objects, the generation may be the lower one.
        """
        if self.definition is None:
            return 0
        return min(self.definition.timing_generation, self.definition.generation)

    def runs(self) -> summaries.Summary:
        """Return the fold of its runs; the first call reads it from the published status."""
        if self.summary is None:
            self.summary = self.last().summary(self.name)
        return self.summary

    def is_running(self, event: RunEvent) -> bool:
        """Whether the run of the event is active, as far as we know."""
        return summaries.state_of(self.runs(), event) is RunState.RUNNING

    def running_jobs(self) -> list[tuple[tuple[int, str], str]]:
        """Return the active runs that have Jobs: slot and who wanted it, and the Job's name."""
        if self.summary is None and not self.may_show_running:
            return []
        return [(key, job) for key, job in self.runs().running.items() if job]


# -- a published status ------------------------------------------------------------------------


def state_of(seen: Observed, managed_by: str = "") -> ScheduleState:
    """Return the state of a newly observed object."""
    status = published.read(seen.status)
    state = ScheduleState(
        namespace=seen.namespace,
        name=seen.name,
        uid=seen.uid,
        version=seen.version,
        is_large=seen.is_large,
        managed_by=managed_by,
        generation=status.observed_generation,
        answered=status.answered_generation,
        open=watermark.open_slots(status.watermark),
        refused_pods=status.condition(ConditionType.PODS_REFUSED).message,
    )
    state.published = seen.status
    return state


def adopt_records(state: ScheduleState, texts: Iterable[bytes]) -> None:
    """Continue from the newest of these ledger records, if the status does not show it yet."""
    state.runs()
    for record in map(summaries.unpack, texts):
        if record.order >= state.runs().order:
            settled = Watermark(record.settled_us, record.started_us, record.waiting_us)
            state.summary = record
            state.open = watermark.open_slots(settled)


def restore(state: ScheduleState, status: bytes) -> None:
    """Handle a restore of the object with this status; the runs since then still count."""
    state.summary = replace(state.runs(), edited=0, resumed=0)
    state.published = status
    state.generation = state.last().observed_generation
    state.answered = state.last().answered_generation
    state.conditions = state.target = state.report = state.check = None


# -- reports -----------------------------------------------------------------------------------


def has_news(state: ScheduleState, report: Report) -> bool:
    """Whether the report says something about its generation that was not published yet."""
    if report.generation > state.answered:
        return True
    former = {condition.type for condition in state.reported_conditions()}
    return {condition.type for condition in report.conditions} != former


def apply_report(state: ScheduleState, report: Report) -> bool:
    """Apply a report; return False if its generation is older than the known one."""
    if report.generation < state.generation:
        return False
    if report.generation > state.generation:
        state.refusals = 0
    state.report = report
    report = statusconditions.as_checked(report, state.check)
    state.generation = report.generation
    state.conditions = report.conditions
    state.target = report.target if report.target is not None else state.target
    if report.is_settled:
        state.answered = max(state.answered, report.generation)
        state.holds_nothing = report.definition is None
        if state.holds_nothing:
            state.open = ()
    if report.definition is not None or report.is_settled:
        state.definition = report.definition
    state.summary = _after_report(state.runs(), report)
    return True


def _after_report(runs: summaries.Summary, report: Report) -> summaries.Summary:
    """Count the slots that the edit itself ended."""
    # A former leader may have recorded the slots that the edit ended without publishing them.
    made, runs = report.made, summaries.settled(runs, report.settled_us)
    if made is None:
        return runs
    if report.generation > runs.edited and (made.missed or made.skipped):
        counts = replace(
            runs.counts,
            missed=runs.counts.missed + made.missed,
            skipped=runs.counts.skipped + made.skipped,
        )
        runs = replace(runs, counts=counts, edited=report.generation)
        if made.skipped:
            runs = _suspended(runs, made.definition, report.settled_us, made.skipped)
    return replace(runs, completed=made.definition.is_complete)


def _suspended(
    runs: summaries.Summary, known: Definition, through_us: int, count: int
) -> summaries.Summary:
    """Add an entry to the history: this many slots passed while the Schedule was suspended."""
    newest_us = manualruns.timeline(known).at_or_before(through_us)
    skipped = histories.PastSlot(
        slot_us=newest_us or through_us,
        trigger="Schedule",
        outcome=RunState.SKIPPED,
        reason=Reason.SUSPENDED,
        count=count,
    )
    return replace(runs, history=histories.added(runs.history, skipped))


def _reported(listed: Iterable[Shown]) -> Iterator[Condition]:
    """Yield the published conditions that come from reports."""
    for shown in listed:
        with contextlib.suppress(ValueError):  # another version wrote it; the next report mends it
            type_, reason = ConditionType(shown.type), Reason(shown.reason)
            if type_ in _OF_REPORTS:
                yield Condition(
                    type=type_, status=shown.status, reason=reason, message=shown.message
                )


# -- checks ------------------------------------------------------------------------------------


def apply_check(state: ScheduleState, check: RunEvent) -> bool:
    """Apply a worker's check; return whether the newest report awaited it."""
    if check.generation < state.generation or (
        state.check is not None and _outweighs(state.check, check)
    ):
        return False
    state.check = check
    return (
        state.report is not None and state.report.awaits_check and apply_report(state, state.report)
    )


def _outweighs(current: RunEvent, check: RunEvent) -> bool:
    """Whether to keep the current check. A good one stays: later losses fail runs, not the spec."""
    if current.generation != check.generation:
        return current.generation > check.generation
    return not current.reason or current.at_us > check.at_us


# -- time --------------------------------------------------------------------------------------


def resume(state: ScheduleState, now_us: int) -> None:
    """Count the slots of a suspension that has ended by itself as skipped, once.

    The status write that publishes the count also replaces Suspended, so no leader counts twice.
    """
    definition = state.definition
    if definition is None or not plan.has_resumed(definition, now_us):
        return
    runs = state.runs()
    if runs.resumed == definition.timing_generation:
        return
    runs = replace(runs, resumed=definition.timing_generation)
    if state.last().ready.reason == Reason.SUSPENDED:
        count = plan.skipped_by_suspension(definition, now_us)
        last_us = (definition.rule.timing.suspend_until_us or 0) - 1
        runs = replace(runs, counts=replace(runs.counts, skipped=runs.counts.skipped + count))
        if count:
            runs = _suspended(runs, definition, last_us, count)
        runs = summaries.settled(runs, last_us)
    state.summary = runs


def next_change_us(state: ScheduleState, now_us: int) -> int | None:
    """Return when the status will change without any event; None = never.

    If no event comes (a slot waits for others, or its receiver is away), nextScheduleTime would
    stay in the past. An event mostly comes within moments, or after a burst, so there is a grace.
    """
    changes = [slot.due_us + watermark.OVERDUE_US for slot in state.open if slot.may_be_late]
    if state.open:
        changes.append(now_us + _OPEN_US)
    if state.definition is not None:
        changes.append(state.definition.rule.timing.suspend_until_us or 0)
    if next_us := published.instant_us(state.last().next_schedule_time):
        due_us = next_us
        if state.definition is not None:  # a slot is the next one until it is due
            due_us = plan.slots_of(state.definition).due_slot(next_us).due_us
        changes.append(due_us + _NEXT_GRACE_US)
    return min((at_us for at_us in changes if at_us > now_us), default=None)


def first_look_us(state: ScheduleState, now_us: int, *, may_resume: bool) -> int | None:
    """Return when a new leader should first update the status: now, if it may be out of date."""
    next_us = published.instant_us(state.last().next_schedule_time)
    if may_resume or state.open or 0 < next_us < now_us:
        return now_us
    return next_change_us(state, now_us)
