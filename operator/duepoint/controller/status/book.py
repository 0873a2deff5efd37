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
from duepoint.controller.reconciling import plan, verdicts
from duepoint.controller.reconciling.report import Report
from duepoint.controller.sighting import UNKNOWN, Sighting
from duepoint.controller.status import packed, receivertext, shown, statustext
from duepoint.runs import summary as summaries
from duepoint.runs.openslots import OpenSlot, OpenSlots
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import conditions
from duepoint.schedules.conditions import Condition, ConditionType, Reason
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.rule import Policy

#: How many of the next slots a status shows.
UPCOMING = 5
#: How many references to active Jobs a status holds; the count tells of all.
ACTIVE = 20

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
        observed: value for observedGeneration.
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
        active: references to Jobs that have not ended, as the API spells them; None = unknown.
        managed_by: our installation, as the status names it.
        was_written: by us, in this term.
        shows_overdue: whether the written status has a condition Overdue.
        may_show_unended: whether it may show a run that goes on.
        refused_pods: why one of these Jobs has no Pods; "" = none is without, or Jobs are unknown.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    observed: int
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
    active_count: int = 0
    refused_pods: str = ""
    managed_by: str = ""
    was_written: bool = False
    is_outdated: bool = False
    shows_overdue: bool = False
    may_show_unended: bool = False
    #: Reports taken before anybody wanted to know the runs: a takeover takes one of every object.
    _unread: tuple[Report, ...] = ()
    _settled_written_us: int = -1
    _packed: bytes = packed.EMPTY

    @property
    def written(self) -> bytes:
        """JSON text of the status as the API server has it, to our knowledge."""
        return packed.unpack(self._packed)

    @written.setter
    def written(self, status: bytes) -> None:
        self._packed = packed.pack(status)
        self.shows_overdue = _OVERDUE_TEXT in status
        self.may_show_unended = unended.may_show_some(status)

    @property
    def settled_written_us(self) -> int:
        """The watermark as the API server has it; the only one that history may use."""
        if self._settled_written_us < 0:
            self._settled_written_us = statustext.instant_us(self.last().get("settledThrough"))
        return self._settled_written_us

    @property
    def timing_generation(self) -> int:
        return 0 if self.definition is None else self.definition.timing_generation

    def last(self) -> dict[str, Any]:
        """The status last written; not to be changed."""
        return packed.read(self._packed)

    def runs(self) -> summaries.Summary:
        """The fold so far, loaded from the status at first."""
        if self.summary is None:
            summary = statustext.loaded(self.last())
            for report in self._unread:
                summary = _after_report(summary, report)
            self._unread = ()
            self.summary = summary
        return self.summary

    def pass_over(self, report: Report) -> None:
        """What the report says of the runs counts; worked out when they are asked for."""
        if self.summary is None:
            self._unread += (report,)
        else:
            self.summary = _after_report(self.summary, report)

    def believe(self, status: bytes) -> None:
        """The API server has another status than we thought: it is where we go on from."""
        self.written = status
        self.summary = None
        self._unread = ()
        self.resumed_timing = -1
        self.observed = max(self.observed, shown.observed_generation(status))
        self.is_outdated = False
        self._settled_written_us = -1

    def note_written(self, status: dict[str, Any]) -> None:
        """The API server has this status now."""
        self.written = msgspec.json.encode(status)
        self.was_written = True
        self._settled_written_us = statustext.instant_us(status.get("settledThrough"))


def entry_of(seen: Sighting, managed_by: str = "") -> Entry:
    """The entry of an object seen for the first time."""
    observed = -1 if seen.status == UNKNOWN else shown.observed_generation(seen.status)
    entry = Entry(
        namespace=seen.namespace,
        name=seen.name,
        uid=seen.uid,
        managed_by=managed_by,
        generation=observed,
        observed=observed,
    )
    if seen.status != UNKNOWN:
        entry.written = seen.status
    return entry


def put_off(entry: Entry, event: RunEvent, now_us: int) -> None:
    """Slots of the entry are open; news of one that has ended are old."""
    entry.summary = runs = summaries.put_off(entry.runs(), event)
    for slot_us in (event.slot_us, *event.more_us):
        is_old = slot_us <= runs.settled_us or summaries.has_ended(runs, slot_us)
        if slot_us in entry.open or not is_old:
            entry.open.put(
                OpenSlot(
                    slot_us=slot_us,
                    # of several, each is due no sooner than itself
                    due_us=max(event.due_us, slot_us),
                    told_us=now_us,
                    reason=event.reason,
                    message=event.message,
                )
            )


def fold(entry: Entry, event: RunEvent, *, replayed: bool, by_queue: bool) -> None:
    """What the event tells is part of the entry's runs.

    Only the queue ends an open slot: a Job that is watched may be one whose creation was never
    answered, and while it is asked for again its name must not become free.
    """
    if by_queue and event.trigger in summaries.REGULAR:
        entry.open.end(event.slot_us, since_us=event.since_us)
    entry.summary = summaries.fold(
        entry.runs(),
        event,
        replayed=replayed,
        timing_generation=entry.timing_generation,
        open_us=entry.open.oldest_us(),
    )


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


def compare_open(entry: Entry, held: Iterable[OpenSlot], began_us: int) -> None:
    """The queue was found to hold these open slots of the entry."""
    runs = entry.runs()
    entry.open.compare(held, passed_us=runs.settled_us, began_us=began_us)
    entry.summary = summaries.settled(runs, 0, open_us=entry.open.oldest_us())


def is_news(entry: Entry, report: Report) -> bool:
    """Whether the report says of its generation what was never shown of it."""
    if report.generation > entry.observed:
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
    if report.is_settled:
        entry.observed = max(entry.observed, report.generation)
        entry.holds_nothing = report.definition is None
        if entry.holds_nothing:
            entry.open = OpenSlots()
    if report.definition is not None or report.is_settled:
        entry.definition = report.definition
    entry.pass_over(report)
    return True


def _written_check(entry: Entry, generation: int) -> RunEvent | None:
    """What the former leader was told of this generation; until it is told again it holds."""
    for one in entry.last().get("conditions") or ():
        known = isinstance(one, dict) and one.get("observedGeneration") == generation
        if known and one.get("type") == ConditionType.RECONCILING:
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


# -- the status --------------------------------------------------------------------------------


def status_at(entry: Entry, now_us: int) -> dict[str, Any]:
    """The whole status as it should be at an instant."""
    last = entry.last()
    runs = entry.runs()
    status: dict[str, Any] = {
        "observedGeneration": entry.observed,
        "conditions": _conditions(entry, runs, last, now_us),
        **statustext.shown(runs),
        **_upcoming(entry, runs, last, now_us),
        **_active(entry, last),
    }
    target = entry.target if entry.target is not None else last.get("target")
    if target:
        status["target"] = target
    if entry.managed_by:
        status["managedBy"] = entry.managed_by
    return status


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
    derived = (
        statustext.last_run_condition(runs),
        None if late is None else statustext.overdue_condition(late, previous),
        None if runs.conflict is None else statustext.conflict_condition(runs.conflict),
        _pods_condition(entry, previous),
        *receivertext.conditions(runs.receiver, entry.generation),
    )
    return conditions.rendered(
        (*told, *(one for one in derived if one is not None)),
        generation=entry.generation,
        now=statustext.instant(now_us - now_us % 1_000_000),
        previous=previous,
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


def _active(entry: Entry, last: dict[str, Any]) -> dict[str, Any]:
    if entry.active is None:
        return {name: last[name] for name in ("active", "activeCount") if last.get(name)}
    if not entry.active_count:
        return {}
    return {"active": list(entry.active[:ACTIVE]), "activeCount": entry.active_count}
