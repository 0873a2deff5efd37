"""What the reporter knows of one Schedule, and the status that follows from it.

An ``Entry`` holds what was last written, what has been reported since, and the fold of its runs.
``status_at`` is the whole status as it should be now: a pure function of the entry and the time.
What nobody has reported in this process is carried over from what was written before, so that a
takeover needs to look at no object that is in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from duepoint.controller.jobs import unended
from duepoint.controller.schedules import plan, verdicts
from duepoint.controller.schedules.report import Report
from duepoint.controller.sighting import UNKNOWN, Sighting
from duepoint.controller.status import (
    activetext,
    opentext,
    packed,
    receivertext,
    shown,
    statustext,
    worst,
)
from duepoint.runs import summary as summaries
from duepoint.runs.openslots import OpenSlot, OpenSlots
from duepoint.runs.run import ENDED, RunEvent, RunState
from duepoint.runs.settled import Settled
from duepoint.schedules import conditions
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Condition, ConditionType, Reason
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.rule import Policy

#: How many of the next slots a status shows.
UPCOMING = 5
#: How many references to active Jobs a status holds; the count tells of all.
ACTIVE = activetext.MOST_LISTED
#: A delivery that goes on by what was told, and that the queue does not hold, has ended unseen
#: when its slot is as old as this.
_UNSEEN_AFTER_US = 3_600_000_000

_DERIVED = frozenset(
    {
        *(ConditionType.LAST_RUN_SUCCEEDED, ConditionType.OVERDUE, ConditionType.NAME_CONFLICT),
        *(ConditionType.ENDPOINT_GONE, ConditionType.CIRCUIT_OPEN, ConditionType.PODS_REFUSED),
    }
)
_USUAL_POLICY = Policy()
_OVERDUE_TEXT = f'"{ConditionType.OVERDUE}"'.encode()
_NEXT = ("nextScheduleTime", "upcomingTimes")


class Entry(msgspec.Struct, kw_only=True):
    """One Schedule.

    Attributes:
        generation: the newest one reported or written.
        observed: value for observedGeneration: the newest generation that was looked at.
        answered: the newest generation that was accepted or refused.
        told: conditions of the newest report; None = those written stay.
        definition: what the queue holds, once known.
        holds_nothing: the queue holds nothing of this Schedule (refused).
        keeps: the history limits, where the queue holds nothing that tells them.
        summary: the fold of its runs; None until it is needed.
        open: slots that have not ended although later ones may have.
        unchecked: the newest report, where it awaits a check.
        check: the newest check that a worker told of.
        refusals: slots in a row whose Jobs the API server has refused for their template.
        resumed_timing: generation of the timing whose suspension was seen to end.
        active: references to Jobs that run, as the API spells them; None = none were seen yet.
        managed_by: our installation, as the status names it.
        was_written: by us, in this term.
        shows_overdue: whether the written status has a condition Overdue.
        lists_open: whether it lists open slots.
        may_show_unended: whether it may show a run that goes on.
        next_us: the next slot that the written status shows; 0 = none.
        held_us: a held point stands for the slots from here on; the watermark stays below it. 0 =
            none does.
        holds: how many held points were told of.
        refused_pods: why one of these Jobs has no Pods; "" = none is without, or Jobs are unknown.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    observed: int
    answered: int = -1
    told: tuple[Condition, ...] | None = None
    target: str | None = None
    definition: Definition | None = None
    holds_nothing: bool = False
    keeps: Policy = _USUAL_POLICY
    summary: summaries.Summary | None = None
    open: OpenSlots = msgspec.field(default_factory=OpenSlots)
    unchecked: Report | None = None
    check: RunEvent | None = None
    refusals: int = 0
    resumed_timing: int = -1
    active: tuple[dict[str, Any], ...] | None = None
    held_us: int = 0
    holds: int = 0
    refused_pods: str = ""
    managed_by: str = ""
    was_written: bool = False
    is_outdated: bool = False
    shows_overdue: bool = False
    lists_open: bool = False
    may_show_unended: bool = False
    next_us: int = 0
    #: Reports taken before anybody wanted to know the runs: a takeover takes one of every object.
    _unread: tuple[Report, ...] = ()
    _settled_written: Settled | None = None
    _packed: bytes = packed.EMPTY

    @property
    def written(self) -> bytes:
        """JSON text of the status as the API server has it, to our knowledge."""
        return packed.unpack(self._packed)

    @written.setter
    def written(self, status: bytes) -> None:
        self._packed = packed.pack(status)
        self._settled_written = None
        self.lists_open = opentext.MARK in status
        self.shows_overdue = _OVERDUE_TEXT in status
        self.may_show_unended = unended.may_show_some(status)
        self.next_us = shown.next_us(status)

    @property
    def settled_written(self) -> Settled:
        """What has ended as the API server has it; the only one that history may use."""
        if self._settled_written is None:
            self._settled_written = opentext.loaded(self.last())
        return self._settled_written

    def settled(self) -> Settled:
        """What has ended as it is known here, written or not."""
        return self.open.settled(self.runs().settled_us)

    def remembered(self) -> Settled | None:
        """The same, where it may be newer than what is written; None = no news were folded."""
        return None if self.summary is None else self.settled()

    def ceiling_us(self) -> int | None:
        """The highest watermark that is true; None = any that was reached."""
        ceiling_us = self.open.ceiling_us()
        if not self.held_us:
            return ceiling_us
        return self.held_us - 1 if ceiling_us is None else min(ceiling_us, self.held_us - 1)

    @property
    def timing_generation(self) -> int:
        """Not above the generation, which is below it after a restore of the objects."""
        if self.definition is None:
            return 0
        return min(self.definition.timing_generation, self.definition.generation)

    def last(self) -> dict[str, Any]:
        """The status last written; not to be changed."""
        return packed.read(self._packed)

    def runs(self) -> summaries.Summary:
        """The fold so far, loaded from the status at first."""
        if self.summary is None:
            summary = statustext.loaded(self.last(), self.name)
            for report in self._unread:
                summary = _after_report(summary, report)
            self._unread = ()
            self.summary = summary
            self._open_what_runs(summary)
        return self.summary

    def _open_what_runs(self, summary: summaries.Summary) -> None:
        """The slot of a delivery that goes on is open; above the watermark no status lists it."""
        for (slot_us, wanted_by), job in summary.running.jobs.items():
            if not (job or wanted_by) and slot_us > summary.settled_us:
                self.open.put(
                    OpenSlot(slot_us=slot_us, due_us=slot_us, told_us=slot_us, started=True)
                )

    def pass_over(self, report: Report) -> None:
        """What the report says of the runs counts; worked out when they are asked for."""
        if self.summary is None:
            self._unread += (report,)
        else:
            self.summary = _after_report(self.summary, report)

    def believe(self, status: bytes, now_us: int) -> None:
        """The API server has another status than we thought: it is where we go on from."""
        self.written = status
        self.load_open(now_us)
        self.summary = None
        self._unread = ()
        self.resumed_timing = -1
        self.observed = max(self.observed, shown.observed_generation(status))
        self.answered = max(self.answered, shown.answered_generation(status))
        self.is_outdated = False
        self._settled_written = None

    def load_open(self, now_us: int) -> None:
        """The open slots that the written status lists are open."""
        if self.lists_open:
            self.open.load(self.settled_written, now_us)

    def note_written(self, status: dict[str, Any]) -> None:
        """The API server has this status now."""
        self.written = msgspec.json.encode(status)
        self.was_written = True


def entry_of(seen: Sighting, managed_by: str = "", *, now_us: int = 0) -> Entry:
    """The entry of an object seen for the first time."""
    is_known = seen.status != UNKNOWN
    observed = shown.observed_generation(seen.status) if is_known else -1
    entry = Entry(
        namespace=seen.namespace,
        name=seen.name,
        uid=seen.uid,
        managed_by=managed_by,
        generation=observed,
        observed=observed,
        answered=shown.answered_generation(seen.status) if is_known else -1,
    )
    if is_known:
        entry.written = seen.status
        entry.load_open(now_us)
    return entry


def go_back(entry: Entry, status: bytes) -> None:
    """The object was restored with this status: what ended since has ended all the same."""
    entry.runs()
    entry.written = status
    entry.generation = entry.observed = shown.observed_generation(status)
    entry.answered = shown.answered_generation(status)
    entry.told = entry.target = entry.unchecked = entry.check = None
    entry.refusals = 0
    entry.is_outdated = False


def put_off(entry: Entry, event: RunEvent, now_us: int) -> bool:
    """Slots of the entry are open; True where the status changes by it.

    A chain hands its slots over in order, so the watermark may go up to the newest of these.
    """
    runs = summaries.put_off(entry.runs(), event)
    is_listed = _open(entry, runs, event, now_us)
    newest_us = max(event.slot_us, *event.more_us) if event.more_us else event.slot_us
    settled = summaries.settled(runs, newest_us, ceiling_us=entry.ceiling_us())
    entry.summary = settled
    return is_listed or settled.settled_us != runs.settled_us


def _open(entry: Entry, runs: summaries.Summary, event: RunEvent, now_us: int) -> bool:
    """The event's slots are open, unless they have ended: then it is an old one."""
    is_news = False
    for slot_us in (event.slot_us, *event.more_us):
        if slot_us in entry.open or not _is_over(runs, slot_us):
            slot = OpenSlot(
                slot_us=slot_us,
                # of several, each is due no sooner than itself
                due_us=max(event.due_us, slot_us),
                told_us=now_us,
                reason=event.reason,
                message=event.message,
                started=event.state is RunState.RUNNING,
            )
            is_news = entry.open.put(slot) or is_news
    return is_news


def _is_over(runs: summaries.Summary, slot_us: int) -> bool:
    """Whether a slot that is not known as open has ended."""
    return slot_us <= runs.settled_us or summaries.has_ended(runs, slot_us)


def fold(entry: Entry, event: RunEvent, now_us: int, *, replayed: bool, by_queue: bool) -> None:
    """What the event tells is part of the entry's runs.

    Only the queue opens or ends a slot: a Job that is watched may be one whose creation was never
    answered, and while it is asked for again its name must not become free.
    """
    runs = entry.runs()
    is_over = not event.job_name and event.trigger in summaries.REGULAR
    is_over = is_over and event.slot_us not in entry.open and event.slot_us <= runs.settled_us
    if by_queue and event.trigger in summaries.REGULAR:
        if event.is_open:
            _open(entry, entry.runs(), event, now_us)
        else:
            entry.open.end(event.slot_us, since_us=event.since_us)
    entry.summary = summaries.fold(
        entry.runs(),
        event,
        # What the queue tells first no status can say; a Job may have been seen before.
        replayed=replayed or not by_queue,
        is_over=is_over,
        timing_generation=entry.timing_generation,
        ceiling_us=entry.ceiling_us(),
    )


def hold(entry: Entry, from_us: int) -> None:
    """A point stands for slots from there on, of which nobody knows whether they have ended.

    What is settled by what is known stays so.
    """
    floor_us = max(from_us, entry.runs().settled_us + 1)
    entry.held_us = min(entry.held_us or floor_us, floor_us)
    entry.holds += 1


def end_hold(entry: Entry) -> bool:
    """No point stands for slots in doubt any more; whether the status changes by it."""
    entry.held_us = 0
    before = entry.runs().settled_us
    entry.summary = summaries.settled(entry.runs(), 0, ceiling_us=entry.ceiling_us())
    return entry.runs().settled_us != before


def end_open(entry: Entry, slot_us: int) -> bool:
    """The slot has ended, whoever was to tell; whether it was open."""
    entry.runs()
    if slot_us not in entry.open:
        return False
    entry.open.end(slot_us)
    entry.summary = summaries.settled(entry.runs(), 0, ceiling_us=entry.ceiling_us())
    return True


def knows_end(entry: Entry, slot_us: int, *, of_job: bool) -> bool:
    """Whether a regular slot has ended though the watermark may not say so.

    A Job's slot ends with its creation; whatever else is running may be tried again.
    """
    known = summaries.regular_state(entry.runs(), slot_us)
    if slot_us in entry.open and not of_job:
        return known in ENDED
    if known is None:
        return summaries.has_ended(entry.runs(), slot_us)
    return of_job or known is not RunState.RUNNING


def is_refused_for_good(entry: Entry, event: RunEvent, before: summaries.Summary) -> bool:
    """Whether this event, folded already, tells of one refused template too many."""
    if event.generation != entry.generation or event.trigger not in summaries.REGULAR:
        return False
    if event.state is not RunState.MISSED:
        entry.refusals = 0
        return False
    if event.reason != Reason.INVALID_JOB_TEMPLATE or entry.runs().counts == before.counts:
        return False
    entry.refusals += 1
    return entry.refusals == verdicts.REFUSALS


def is_as_written(entry: Entry, status: bytes) -> bool:
    """Whether a status says what was written last; the API server orders fields its own way."""
    if status == entry.written:
        return True
    try:
        return bool(msgspec.json.decode(status) == entry.last())
    except msgspec.DecodeError:
        return False


def awaits_dry_run(entry: Entry, generation: int) -> bool:
    """Whether nobody knows yet that Jobs of this generation, the newest, can be created."""
    return generation == entry.generation and any(
        one.reason is Reason.DRY_RUN_PENDING for one in entry.told or ()
    )


def compare_open(entry: Entry, held: Iterable[OpenSlot], began_us: int) -> bool:
    """The queue was found to hold these open slots of the entry; whether more or less is open."""
    runs = entry.runs()
    before = entry.settled()
    # What ended while the queue was read is not opened again.
    listed = [
        one
        for one in held
        if one.slot_us in entry.open or not summaries.has_ended(runs, one.slot_us)
    ]
    entry.open.compare(listed, began_us=began_us)
    entry.summary = summaries.settled(runs, 0, ceiling_us=entry.ceiling_us())
    unseen = [
        slot_us
        for slot_us in _running_deliveries(entry)
        if slot_us not in entry.open and slot_us < began_us - _UNSEEN_AFTER_US
    ]
    for slot_us in unseen:
        _end_unseen(entry, slot_us, began_us, "the queue does not hold it, nobody saw how it ended")
    return bool(unseen) or entry.settled() != before


def end_refused(entry: Entry, now_us: int) -> None:
    """Of a Schedule that is refused the queue holds nothing: no delivery is tried again."""
    if entry.holds_nothing and (entry.summary is not None or entry.may_show_unended):
        for slot_us in _running_deliveries(entry):
            _end_unseen(entry, slot_us, now_us, "an edit that is refused took it out of the queue")


def _running_deliveries(entry: Entry) -> list[int]:
    """The regular slots whose deliveries go on."""
    running = entry.runs().running.jobs.items()
    return [slot_us for (slot_us, wanted_by), job in running if not (job or wanted_by)]


def _end_unseen(entry: Entry, slot_us: int, now_us: int, why: str) -> None:
    """The delivery of a slot has ended without a word."""
    ended = RunEvent(
        uid=entry.uid,
        namespace=entry.namespace,
        name=entry.name,
        generation=0,
        slot_us=slot_us,
        trigger="Schedule",
        state=RunState.FAILED,
        reason=Reason.DELETED,
        message=why,
        at_us=now_us,
        started_us=min(slot_us, now_us),
        finished_us=now_us,
    )
    entry.summary = summaries.fold(entry.runs(), ended, ceiling_us=entry.ceiling_us())


def is_running(entry: Entry, event: RunEvent) -> bool:
    """Whether the run of which the event tells goes on, as far as is known."""
    wanted_by = event.job_name or event.run_uid
    known = summaries.state_of(entry.runs(), event.slot_us, event.trigger, wanted_by)
    return known is RunState.RUNNING


def shown_jobs(entry: Entry) -> Iterable[str]:
    """The names of the Jobs that the written status shows as running."""
    status = entry.last()
    shown_last = status.get("lastRun")
    if isinstance(shown_last, dict) and shown_last.get("outcome") == RunState.RUNNING:
        yield str(shown_last.get("jobName") or "")
    for one in status.get("active") or ():
        yield str(one.get("name") or "")


def end_unlisted(entry: Entry) -> bool:
    """All Jobs have been seen: runs of which only their number was known are over, unless seen.

    Where deliveries go on beside them, these may be deliveries too, and are told of by the queue.
    """
    runs = entry.runs()
    if not runs.running.unlisted or not all(runs.running.jobs.values()):
        return False
    entry.summary = summaries.without_unlisted(runs)
    return True


def settle_through(entry: Entry, through_us: int, *, completed: bool) -> None:
    """Every slot up to here has ended or is open, as the chain in the queue shows."""
    runs = summaries.settled(entry.runs(), through_us, ceiling_us=entry.ceiling_us())
    entry.summary = replace(runs, completed=runs.completed or completed)


def is_news(entry: Entry, report: Report) -> bool:
    """Whether the report says of its generation what was never shown of it."""
    if report.generation > entry.answered:
        return True
    told = entry.told
    if told is None:
        listed = entry.last().get("conditions") or ()
        told = _carried_over([one for one in listed if isinstance(one, dict)])
    return {one.type for one in report.conditions} != {one.type for one in told}


def take(entry: Entry, report: Report) -> bool:
    """The report is true of the entry now; False where it is of an older generation."""
    if report.generation < entry.generation:
        return False
    if report.generation > entry.generation:
        entry.refusals = 0
    entry.unchecked = report if report.awaits_check else None
    if report.awaits_check and entry.check is None:
        entry.check = _written_check(entry, report.generation)
    report = verdicts.as_checked(report, entry.check)
    entry.generation = report.generation
    entry.told = report.conditions
    entry.target = report.target if report.target is not None else entry.target
    if report.keeps is not None:
        entry.keeps = report.keeps
    elif (known := report.definition or entry.definition) is not None:
        entry.keeps = known.rule.policy
    entry.observed = max(entry.observed, report.generation)
    if report.is_settled:
        entry.answered = max(entry.answered, report.generation)
        entry.holds_nothing = report.definition is None
        if entry.holds_nothing:
            entry.open = OpenSlots()
    if report.definition is not None or report.is_settled:
        if _is_timed_anew(entry.definition, report.definition):
            entry.open.supersede()
        entry.definition = report.definition
    entry.pass_over(report)
    return True


def _is_timed_anew(former: Definition | None, edited: Definition | None) -> bool:
    """Whether an edit of the timing has superseded what was planned or queued."""
    if former is None or edited is None:
        return False
    return edited.timing_generation > former.timing_generation


def _written_check(entry: Entry, generation: int) -> RunEvent | None:
    """What the former leader was told of this generation; until it is told again it holds."""
    for one in entry.last().get("conditions") or ():
        known = isinstance(one, dict) and one.get("observedGeneration") == generation
        is_told = known and one.get("type") == ConditionType.RECONCILING
        if is_told and one.get("reason") != Reason.QUEUE_UNAVAILABLE:
            return RunEvent(
                uid=entry.uid,
                namespace=entry.namespace,
                name=entry.name,
                generation=generation,
                slot_us=0,
                trigger="Check",
                state=RunState.CHECKED,
                reason=str(one.get("reason") or Reason.SECRETS_PENDING),
                message=str(one.get("message") or ""),
                at_us=0,
            )
    return None


def note_check(entry: Entry, check: RunEvent) -> Report | None:
    """What a check found counts from now on; the report as it stands by it, None for no change."""
    if check.generation < entry.generation or (
        entry.check is not None and _outweighs(entry.check, check)
    ):
        return None
    entry.check = check
    unchecked = entry.unchecked
    if unchecked is None:
        return None
    # What the change itself ended was counted when it was reported.
    again = replace(unchecked, missed=0, skipped=0)
    take(entry, again)
    return verdicts.as_checked(again, check)


def _outweighs(known: RunEvent, check: RunEvent) -> bool:
    """What was found once stays found: what is lost later is the runs' trouble, not Ready's."""
    if known.generation != check.generation:
        return known.generation > check.generation
    return not known.reason or known.at_us > check.at_us


def _after_report(runs: summaries.Summary, report: Report) -> summaries.Summary:
    counts = replace(
        runs.counts,
        missed=runs.counts.missed + report.missed,
        skipped=runs.counts.skipped + report.skipped,
    )
    runs = summaries.passed(replace(runs, counts=counts), report.settled_us)
    if report.definition is None:
        return runs
    return replace(runs, completed=report.definition.is_complete)


def resume(entry: Entry, now_us: int) -> None:
    """Where a suspension has ended by itself its slots are skipped, once, and the watermark told.

    That it has not been told before is seen by the status, which says Armed from the same write on.
    """
    known = entry.definition
    if known is None or not plan.has_resumed(known, now_us):
        return
    if entry.resumed_timing == known.timing_generation:
        return
    entry.resumed_timing = known.timing_generation
    if not shown.of(entry.written).suspended:
        return
    runs = entry.runs()
    skipped = runs.counts.skipped + plan.skipped_by_suspension(known, now_us)
    runs = replace(runs, counts=replace(runs.counts, skipped=skipped))
    entry.summary = summaries.passed(runs, (known.rule.timing.suspend_until_us or 0) - 1)


def next_change_us(entry: Entry, now_us: int) -> int | None:
    """When the status will be another one without anything happening; None = never."""
    changes = [entry.open.next_overdue_us(now_us)]
    if entry.definition is not None:
        until_us = entry.definition.rule.timing.suspend_until_us
        changes.append(until_us if until_us is not None and until_us > now_us else None)
    return min((at_us for at_us in changes if at_us is not None), default=None)


def next_passes_us(entry: Entry) -> int | None:
    """When the NEXT that is written is past: a slot is next until its due; None = never."""
    if not entry.next_us:
        return None
    if entry.definition is None:
        return entry.next_us
    return plan.slots_of(entry.definition).due_slot(entry.next_us).due_us


# -- the status --------------------------------------------------------------------------------


def status_at(entry: Entry, now_us: int) -> dict[str, Any]:
    """The whole status as it should be at an instant."""
    last = entry.last()
    runs = entry.runs()
    status: dict[str, Any] = {
        "observedGeneration": entry.observed,
        "conditions": _conditions(entry, runs, last, now_us),
        **statustext.shown(runs, entry.open),
        **_upcoming(entry, runs, last, now_us),
        **_active(entry, runs, last),
    }
    target = entry.target if entry.target is not None else last.get("target")
    if target:
        status["target"] = target
    if timing_hash := _timing_hash(entry, last):
        status["timingHash"] = timing_hash
    if entry.managed_by:
        status["managedBy"] = entry.managed_by
    return status


def _timing_hash(entry: Entry, last: dict[str, Any]) -> str:
    """Of the timing that the watermark belongs to; nothing where the queue holds none of it."""
    if entry.definition is not None:
        return rules.timing_hash(entry.definition.rule)
    return "" if entry.holds_nothing else str(last.get("timingHash") or "")


def _conditions(
    entry: Entry, runs: summaries.Summary, last: dict[str, Any], now_us: int
) -> list[dict[str, Any]]:
    previous = [one for one in last.get("conditions") or () if isinstance(one, dict)]
    late = entry.open.overdue(now_us)
    told = entry.told
    if told is None:
        told = _carried_over(previous)
    if entry.definition is not None and plan.has_resumed(entry.definition, now_us):
        told = tuple(_resumed(one) for one in told)
    if runs.completed:
        why = verdicts.completion(entry.definition, runs.counts.regular)
        told = tuple(_completed(one, why) for one in told)
    derived = tuple(one for one in _derived(entry, runs, late, previous) if one is not None)
    started = runs.counts.regular
    told = tuple(
        worst.told(one, verdicts.standing(one.reason, entry.definition, started), derived, runs)
        for one in told
    )
    return conditions.rendered(
        (*told, *derived),
        generation=entry.generation,
        now=statustext.instant(now_us - now_us % 1_000_000),
        previous=previous,
    )


def _derived(
    entry: Entry,
    runs: summaries.Summary,
    late: OpenSlot | None,
    previous: list[dict[str, Any]],
) -> tuple[Condition | None, ...]:
    """What follows from runs and slots."""
    return (
        statustext.last_run_condition(runs),
        None if late is None else statustext.overdue_condition(late, previous),
        None if runs.conflict is None else statustext.conflict_condition(runs.conflict),
        _pods_condition(entry, previous),
        *receivertext.conditions(runs.receiver, entry.generation),
    )


def _pods_condition(entry: Entry, previous: list[dict[str, Any]]) -> Condition | None:
    """Told by those who see the Jobs; until they are seen, what was written holds."""
    message = entry.refused_pods
    if entry.active is None and not message:
        written = (one for one in previous if one.get("type") == ConditionType.PODS_REFUSED)
        message = str(next(written, {}).get("message") or "")
    return statustext.pods_condition(message) if message else None


def _carried_over(previous: list[dict[str, Any]]) -> tuple[Condition, ...]:
    """What an earlier process told; what follows from runs and slots comes from those."""
    kept = []
    for one in previous:
        try:
            condition = Condition(
                type=ConditionType(one["type"]),
                status=one["status"],
                reason=Reason(one.get("reason", "")),
                message=one.get("message", ""),
            )
        except (KeyError, ValueError):
            continue  # of another version; it is told anew when it is true
        if condition.type not in _DERIVED:
            kept.append(condition)
    return tuple(kept)


def _resumed(condition: Condition) -> Condition:
    if condition.type is ConditionType.READY and condition.reason is Reason.SUSPENDED:
        return verdicts.armed()[0]
    return condition


def _completed(condition: Condition, why: str) -> Condition:
    if condition.type is ConditionType.READY and condition.reason is Reason.ARMED:
        return replace(condition, reason=Reason.COMPLETED, message=why)
    return condition


def _upcoming(
    entry: Entry, runs: summaries.Summary, last: dict[str, Any], now_us: int
) -> dict[str, Any]:
    known = entry.definition
    if entry.holds_nothing or runs.completed:
        return {}
    if known is None:
        return {name: last[name] for name in _NEXT if name in last}
    if known.state is not State.ARMED:
        return {}
    most = known.rule.timing.max_runs
    listed = UPCOMING if most is None else max(0, min(UPCOMING, most - runs.counts.regular))
    following = plan.slots_of(known).upcoming(max(now_us, known.not_before_us), listed)
    texts = [statustext.instant(slot_us) for slot_us in following]
    return {"nextScheduleTime": texts[0], "upcomingTimes": texts} if texts else {}


def _active(entry: Entry, runs: summaries.Summary, last: dict[str, Any]) -> dict[str, Any]:
    references = entry.active
    if references is None:
        listed = last.get("active")
        references = tuple(listed) if isinstance(listed, list) else ()
    owner = activetext.Owner(namespace=entry.namespace, name=entry.name, uid=entry.uid)
    return activetext.shown(runs.running, owner, references)
