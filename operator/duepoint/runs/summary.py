"""The summary of a schedule's runs for its status: counters, the last run and the last slots.

``fold(summary, event)`` returns the summary after the event. Each entry of an outcome stream is
folded once (``delayqueue.ledger``), but two workers may both have ended a slot, and the watch may
show the end of a Job repeatedly. So the summary remembers the newest ended slots, and the end of a
Job counts only while its run is listed as running, which a worker's report begins. ``started`` is
always the sum of ended and running runs: an end whose start was not reported counts as both. The
watermark and the times of the last events never fall. Pure; instants in microseconds since the
epoch, 0 = never.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from duepoint.expressions import expression
from duepoint.runs import history as histories
from duepoint.runs.run import ENDED, STARTED, Note, RunEvent, RunState
from duepoint.runs.watermark import Watermark
from duepoint.schedules.conditions import Reason

#: The key of a run: its slot, and what requested it ("" = its schedule).
Key = tuple[int, str]
#: Runs that have started and have not ended, with the names of their Jobs; "" = a delivery.
Running = Mapping[Key, str]

#: The number of ended slots to remember, and of those to store in a record.
REMEMBERED = 32
_RECORDED = 8

_UNRUN = (RunState.MISSED.value, RunState.SKIPPED.value, RunState.SUPERSEDED.value)


class RunTotals(msgspec.Struct, frozen=True, kw_only=True):
    """``status.runs``; ``manual`` counts the started runs that a ScheduleRun requested."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    replaced: int = 0
    missed: int = 0
    skipped: int = 0
    manual: int = 0

    @property
    def regular(self) -> int:
        """The started runs of regular slots, which ``maxRuns`` limits."""
        return max(0, self.started - self.manual)

    @property
    def ended(self) -> int:
        """The started runs that have ended, in any way."""
        return self.succeeded + self.failed + self.replaced


class Summary(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The folded run events of one schedule.

    Attributes:
        last_run: the newest started run.
        last_slot_us: the newest slot of a started regular run.
        settled_us: the watermark; the status lists the open slots at or below it in ``openSlots``.
        completed: whether no slot is left.
        last_result: the result of the newest run that succeeded or failed; a replaced run has none.
        missed: the newest missed slot that the Schedule's author wanted, until a later regular run
            starts; a ScheduleRun's slot only if another object has the name of its Job.
        retried: the newest run that is retried after at least two failed attempts, even if others
            succeeded; see ``failure``.
        gone: the answer of a webhook's receiver that it is gone. It counts for one generation, and
            until a delivery succeeds, such as one by hand.
        replacing: the Jobs that Duepoint deletes in favour of a newer slot, with the message about
            that, until their runs have ended.
        edited, resumed: the newest generation whose edit, and the newest timing whose end of a
            suspension, has counted the slots that it ended.
        started_us, waiting_us: in a record, the open slots as in a ``Watermark``.
        running: the active runs: the step that counts a start adds one, the step that counts its
            end removes it.
        recent: the newest slots that have ended, and how, oldest first.
        history: the last slots as a status shows them, newest first.
    """

    counts: RunTotals = RunTotals()
    last_run: histories.PastSlot | None = None
    last_slot_us: int = 0
    last_success_us: int = 0
    last_failure_us: int = 0
    last_result: Note | None = None
    settled_us: int = 0
    completed: bool = False
    missed: Note | None = None
    retried: Note | None = None
    gone: Note | None = None
    replacing: Mapping[str, str] = msgspec.field(default_factory=dict)
    started_us: tuple[int, ...] = ()
    waiting_us: tuple[int, ...] = ()
    edited: int = 0
    resumed: int = 0
    running: Running = msgspec.field(default_factory=dict)
    recent: tuple[tuple[Key, RunState], ...] = ()
    history: histories.History = ()

    @property
    def order(self) -> tuple[int, int]:
        """The sort key, greater for newer: the watermark and the counters never fall."""
        counts = self.counts
        return self.settled_us, counts.started + counts.ended + counts.missed + counts.skipped

    @property
    def failure(self) -> Note | None:
        """The failure since which no run has succeeded; None = runs succeed."""
        result, retried = self.last_result, self.retried
        if retried is not None and retried.begun_us > self.last_success_us:
            return retried
        return result if result is not None and not result.is_success else None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Summary)


def pack(summary: Summary, settled: Watermark) -> bytes:
    """Return a record for the ledger, with the open slots; ``unpack`` parses it."""
    return _encoder.encode(
        replace(
            summary,
            started_us=settled.started_us,
            waiting_us=settled.waiting_us,
            recent=summary.recent[-_RECORDED:],
        )
    )


def unpack(text: bytes) -> Summary:
    """Return the summary of a record; an empty one if another version wrote it."""
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        return Summary()


def settled(summary: Summary, through_us: int) -> Summary:
    """Raise the watermark of a summary; never lower it."""
    return summary if through_us <= summary.settled_us else replace(summary, settled_us=through_us)


def has_ended(summary: Summary, slot_us: int) -> bool:
    """Whether a regular slot is remembered as ended; a Job's slot ends with its creation."""
    return bool(summary.running.get((slot_us, ""))) or any(
        key[0] == slot_us and (not key[1] or key[1].startswith(_UNRUN)) for key, _ in summary.recent
    )


def fold(
    summary: Summary,
    event: RunEvent,
    *,
    is_over: bool = False,
    timing_generation: int = 0,
) -> Summary:
    """Return the summary after an event.

    Args:
        summary: the summary before the event.
        event: an event of this schedule.
        is_over: whether the slot has ended, so that an old event must not reopen it.
        timing_generation: the generation of the last edit of a timing field; ``completed`` of an
            older event is about slots that no longer count.
    """
    retried = _retried(summary.retried, event)
    after = summary if retried is summary.retried else replace(summary, retried=retried)
    if event.state is RunState.PENDING:
        return after
    key = _key(event)
    known = dict(summary.recent).get(key)
    if event.state in STARTED:
        after = _fold_run(after, event, known, is_over=is_over)
    if event.state in (RunState.MISSED, RunState.SKIPPED) and known is None:
        after = _counted(after, event)
    if event.completed and event.generation >= timing_generation and not after.completed:
        after = replace(after, completed=True)
    after = replace(after, history=histories.fold(after.history, event))
    after = _fold_gone(_fold_missed(after, event), event)
    return _remembering(after, key, event.state, known)


#: After this many failed attempts a run counts as failing.
_FAILED_ATTEMPTS = 2


def _retried(known: Note | None, event: RunEvent) -> Note | None:
    is_put_off = event.is_retrying or event.state is RunState.PENDING
    # A receiver that is busy with other runs of ours has not failed this run.
    is_failing = event.attempts >= _FAILED_ATTEMPTS and event.reason != Reason.RECEIVER_BUSY
    is_bound_to_fail = event.state is RunState.RUNNING and event.reason == Reason.RUN_FAILED
    if (is_put_off and is_failing) or is_bound_to_fail:
        if known is not None and known.at_us > event.at_us:
            return known
        return Note.of(event)
    is_over = known is not None and known.slot_us == event.slot_us and not event.is_open
    return None if is_over else known


def state_of(summary: Summary, event: RunEvent) -> RunState | None:
    """Return the state of the event's run; None = not remembered."""
    key = _run_key(event)
    return RunState.RUNNING if key in summary.running else dict(summary.recent).get(key)


def _key(event: RunEvent) -> Key:
    if event.state not in STARTED:
        ending = f"{event.state} {event.reason}"
        # The end of a ScheduleRun's slot says nothing about the regular slot of that time.
        owner = f"{event.trigger} {event.run_uid} " if event.run_uid else ""
        return event.slot_us, owner + ending
    return _run_key(event)


def _run_key(event: RunEvent) -> Key:
    wanted_by = event.job_name or event.run_uid
    return key_of(event.slot_us, is_regular=event.is_regular, wanted_by=wanted_by)


def key_of(slot_us: int, *, is_regular: bool, wanted_by: str) -> Key:
    """Return the key of a run.

    Args:
        slot_us: its slot.
        is_regular: whether the schedule itself requested it: it runs each slot once.
        wanted_by: otherwise the name of its Job, or the uid of the ScheduleRun.
    """
    return (slot_us, "" if is_regular else f"run {wanted_by}")


# -- runs --------------------------------------------------------------------------------------


def _fold_run(
    summary: Summary, event: RunEvent, known: RunState | None, *, is_over: bool
) -> Summary:
    if known in ENDED:
        return summary
    key, running, counts = _key(event), summary.running, summary.counts
    if key not in running:
        # Only a worker's report begins a run; an event from the watch of Jobs does not.
        has_ended = is_over and event.state not in ENDED
        if has_ended or event.job_uid or (event.job_name and event.state in ENDED):
            return summary
        manual = counts.manual + (not event.is_regular)
        counts = replace(counts, started=counts.started + 1, manual=manual)
    after = replace(
        summary,
        counts=counts,
        running={**running, key: event.job_name or running.get(key, "")},
        last_run=histories.newest_run(summary.last_run, event),
        last_slot_us=max(summary.last_slot_us, event.slot_us if event.is_regular else 0),
    )
    return _fold_end(after, event) if event.state in ENDED else after


def _fold_end(summary: Summary, event: RunEvent) -> Summary:
    """Count the end of a run that is listed as running."""
    at_us, ended, shown = event.ended_us, _key(event), summary.last_result
    summary = replace(
        _counted(summary, event),
        running={key: job for key, job in summary.running.items() if key != ended},
        replacing={job: why for job, why in summary.replacing.items() if job != event.job_name},
    )
    if event.state is RunState.REPLACED:
        return summary
    if event.state is RunState.SUCCEEDED:
        summary = replace(summary, last_success_us=max(summary.last_success_us, at_us))
    else:
        summary = replace(summary, last_failure_us=max(summary.last_failure_us, at_us))
    if shown is not None and shown.at_us > at_us:
        return summary
    return replace(summary, last_result=replace(Note.of(event), at_us=at_us))


def _counted(summary: Summary, event: RunEvent) -> Summary:
    """Add the event's slots to the counter of its state."""
    name = event.state.lower()
    counts = replace(summary.counts, **{name: getattr(summary.counts, name) + event.count})
    return replace(summary, counts=counts)


# -- slots without a run -----------------------------------------------------------------------


def _fold_missed(summary: Summary, event: RunEvent) -> Summary:
    known = summary.missed
    if event.state in STARTED:
        is_later = known is not None and event.slot_us > known.slot_us and event.is_regular
        return replace(summary, missed=None) if is_later else summary
    # Buried retries have the same reason as slots missed by policy, but also a message.
    is_wanted = event.reason == Reason.CATCH_UP_POLICY and not event.message
    if event.state is not RunState.MISSED or is_wanted or not event.count:  # 0: no slot is left
        return summary
    last_us = 0 if event.run_uid else summary.last_slot_us
    newest_us = last_us if known is None else max(known.slot_us, last_us)
    is_shown_elsewhere = bool(event.run_uid) and event.reason != Reason.NAME_CONFLICT
    if event.slot_us <= newest_us or is_shown_elsewhere:
        return summary
    missed = Note.of(event)
    if event.reason != Reason.NAME_CONFLICT:  # its message names the Job
        why = event.message or event.reason
        message = f"the slot of {expression.utc_text(event.slot_us)} was missed: {why}"
        missed = replace(missed, message=message)
    return replace(summary, missed=missed)


def _fold_gone(summary: Summary, event: RunEvent) -> Summary:
    known = summary.gone
    if event.reason != Reason.ENDPOINT_GONE:
        has_answered = event.state is RunState.SUCCEEDED
        is_over = known is not None and has_answered and event.at_us >= known.at_us
        return replace(summary, gone=None) if is_over else summary
    is_known = known is not None and (
        known.generation > event.generation
        or (known.generation, known.message) == (event.generation, event.message)
    )
    return summary if is_known else replace(summary, gone=Note.of(event))


# -- remembering -------------------------------------------------------------------------------


def _remembering(summary: Summary, key: Key, state: RunState, known: RunState | None) -> Summary:
    if state is RunState.RUNNING or (known is not None and (known in ENDED or known is state)):
        return summary
    recent = (*(entry for entry in summary.recent if entry[0] != key), (key, state))
    if len(recent) > 2 * REMEMBERED:  # so that forgetting is rare
        recent = recent[-REMEMBERED:]
    return replace(summary, recent=recent)
