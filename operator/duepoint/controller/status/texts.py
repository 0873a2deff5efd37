"""The forms of runs and instants in a status: written, and read back.

``active``: a run of a Job is a reference to that Job. A delivery is not an object, so its reference
is to the object that requested it, the Schedule or a ScheduleRun. ``fieldPath`` names the slot.
Manual runs come first. ``activeCount`` counts all runs; if they are more than ``MOST_LISTED``, a
new leader knows the others from the ledger, whose record then stays.

``recentRuns``: the last slots, newest first. An entry leaves out the usual values (trigger
``Schedule``, one attempt, the reason of a success), so that ten of them stay small. A slot that was
put off and has not started is shown as ``Waiting`` with its reason, and a delivery between two
attempts as ``Retrying``. A ``Waiting`` slot is not history, and is not read back.

An instant is RFC 3339 in UTC, with a fraction only if it is not zero; schedules of less than a
second and exact replays need fractions. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from duepoint.kube import jobbuilder, schedules, times
from duepoint.kube.jobs import JobOwner
from duepoint.runs import history as histories
from duepoint.runs.history import History, PastSlot
from duepoint.runs.run import STARTED, RunState, cut, is_retry
from duepoint.runs.summary import Key, Running, key_of
from duepoint.runs.watermark import OpenSlots
from duepoint.schedules.conditions import MESSAGE_LIMIT, Reason
from duepoint.schedules.diagnosis import Row

_SECOND_US = 1_000_000


def instant(at_us: int) -> str:
    """Return the text of an instant, with a fraction only if it is not zero."""
    return times.micro_time_text(at_us) if at_us % _SECOND_US else times.time_text(at_us)


def instant_or_empty(at_us: int) -> str:
    """Return the text of an instant; empty for 0."""
    return instant(at_us) if at_us else ""


def instant_us(text: object) -> int:
    """Return the instant of such a text; 0 for anything else."""
    try:
        return times.parse_us(text) if isinstance(text, str) else 0
    except ValueError:
        return 0


# -- active runs -------------------------------------------------------------------------------

#: The most references to active runs in a status.
MOST_LISTED = 100

_SLOT_PATH = re.compile(r"slots\[(.+)\]")


class Reference(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An ObjectReference to an active run."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""


def active(runs: Running, owner: JobOwner) -> list[Reference]:
    """Return references to the active runs of a Schedule: manual ones, Jobs, deliveries."""
    listed = sorted(runs, key=lambda key: (not key[1], not runs[key], key))[:MOST_LISTED]
    return [_reference(owner, key, runs[key]) for key in listed]


def _reference(owner: JobOwner, key: Key, job: str) -> Reference:
    slot_us, wanted_by = key
    path = f"slots[{instant(slot_us)}]"
    if job:
        return Reference(
            api_version="batch/v1",
            kind="Job",
            namespace=owner.namespace,
            name=job,
            field_path=path,
        )
    return Reference(
        api_version=schedules.API_VERSION,
        kind=schedules.RUN_KIND if wanted_by else schedules.KIND,
        namespace=owner.namespace,
        name="" if wanted_by else owner.name,
        uid=wanted_by.removeprefix("run ") or owner.uid,
        field_path=path,
    )


def running(listed: Iterable[Reference], schedule_name: str) -> Running:
    """Return the active runs of a Schedule of that name, as ``active`` showed them."""
    return dict(filter(None, (_run_of(one, schedule_name) for one in listed)))


def _run_of(reference: Reference, schedule_name: str) -> tuple[Key, str] | None:
    path = _SLOT_PATH.fullmatch(reference.field_path)
    slot_us = 0 if path is None else instant_us(path[1])
    if not slot_us:
        return None
    job = reference.name if reference.kind == "Job" else ""
    is_of_slot = bool(job) and job == jobbuilder.name_of(schedule_name, slot_us)
    is_regular = is_of_slot or reference.kind == schedules.KIND
    return key_of(slot_us, is_regular=is_regular, wanted_by=job or reference.uid), job


# -- the last slots -----------------------------------------------------------------------------

#: The published outcome of a delivery that failed and waits for its next attempt.
RETRYING = "Retrying"
#: The published outcome of a slot that was put off and has not started.
WAITING = "Waiting"
#: The most waiting slots among the recent runs.
_MOST_WAITING = 3

_USUAL_REASONS = frozenset({Reason.SUCCEEDED.value, Reason.RUNNING.value})


def slot_of(row: Row) -> PastSlot:
    """Return the slot of an entry, with its published outcome."""
    return PastSlot(
        slot_us=instant_us(row.scheduled_time),
        outcome=row.outcome,
        reason=row.reason,
        message=row.message,
        trigger=row.trigger or "Schedule",
        started_us=instant_us(row.start_time),
        finished_us=instant_us(row.finish_time),
        attempts=row.attempts or int(bool(row.start_time)),
        job_name=row.job_name,
        http_status=row.http_status,
        since_us=instant_us(row.since),
        count=row.count,
    )


def last_run(run: PastSlot) -> Row:
    """Return ``status.lastRun``: an entry that also has the usual values."""
    return Row(
        scheduled_time=instant(run.slot_us),
        since=instant_or_empty(run.since_us),
        count=run.count,
        trigger=run.trigger,
        start_time=instant_or_empty(run.started_us),
        finish_time=instant_or_empty(run.finished_us),
        outcome=RETRYING if is_retrying(run) else str(run.outcome),
        reason=run.reason,
        message=run.message[:MESSAGE_LIMIT],
        job_name=run.job_name,
        http_status=run.http_status,
        attempts=run.attempts,
    )


def last_run_of(row: Row | None) -> PastSlot | None:
    """Return the newest started run of a status."""
    run = None if row is None else _past(row)
    if row is None or run is None or run.outcome not in STARTED:
        return None
    return replace(run, attempts=row.attempts)


def recent_runs(history: History, open_slots: OpenSlots) -> list[Row]:
    """Return the last slots, newest first, among them those that wait."""
    begun = {entry.slot_us for entry in history if entry.is_regular}
    waiting = [slot for slot in open_slots if slot.may_be_late and not slot.superseded]
    rows = [
        (
            slot.slot_us,
            Row(
                scheduled_time=instant(slot.slot_us),
                outcome=WAITING,
                reason=slot.reason,
                message=cut(slot.message, histories.MESSAGE_LIMIT),
            ),
        )
        for slot in waiting[-_MOST_WAITING:]
        if slot.slot_us not in begun
    ]
    rows += [(max(entry.order), _entry(entry)) for entry in history]
    rows.sort(key=lambda row: row[0], reverse=True)
    return [row for _, row in rows[: histories.MOST]]


def history(rows: Iterable[Row]) -> History:
    """Return the history that a status shows; entries that are not ours are left out."""
    return tuple(filter(None, map(_past, rows)))[: histories.MOST]


def is_retrying(run: PastSlot) -> bool:
    """Whether a delivery failed and waits for its next attempt."""
    return run.outcome == RunState.RUNNING and is_retry(run.reason, has_job=bool(run.job_name))


def _entry(entry: PastSlot) -> Row:
    """Return an entry without the usual values."""
    is_well = entry.outcome == RunState.SUCCEEDED
    return replace(
        last_run(entry),
        trigger="" if entry.trigger == "Schedule" else entry.trigger,
        reason="" if entry.reason in _USUAL_REASONS else entry.reason,
        message="" if is_well else cut(entry.message, histories.MESSAGE_LIMIT),
        http_status=None if is_well else entry.http_status,
        attempts=0 if entry.attempts == 1 else entry.attempts,
    )


def _past(row: Row) -> PastSlot | None:
    """Return a slot that began or ended; None if it waits or its outcome is unknown to us."""
    outcome = RunState.RUNNING.value if row.outcome == RETRYING else row.outcome
    is_ours = outcome in set(RunState) and outcome != RunState.PENDING
    if not is_ours or not instant_us(row.scheduled_time):
        return None
    return replace(slot_of(row), outcome=RunState(outcome))
