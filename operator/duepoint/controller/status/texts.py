"""The text forms of slots, runs and instants in a status: written, and read back.

``openSlots``: the oldest slot is an instant, and each further slot its distance in seconds from the
one before it, with ``*n`` for n equal distances in a row, so that hundreds of slots take little
space and stay readable::

    2026-03-01T12:05:00Z +300*2 +0.25

``active``: a run of a Job is a reference to that Job. A delivery is not an object, so its reference
is to the object that requested it, the Schedule or a ScheduleRun, and ``fieldPath`` names the slot.
Manual runs come first. If there are more runs than ``MOST_LISTED``, ``activeSlots`` has the slots
of the others, so that a new leader knows every run by name; ``activeCount`` counts all of them.

``recentRuns``: the last slots, newest first. An entry leaves out the usual values (trigger
``Schedule``, one attempt, the reason of a success), so that ten of them stay small. A slot that was
put off and has not started is shown as ``Waiting`` with its reason, and a delivery between two
attempts as ``Retrying``. A ``Waiting`` slot is not history, and is not read back.

An instant is RFC 3339 in UTC, with a fraction only if it is not zero; schedules of less than a
second and exact replays need fractions. Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from duepoint.kube import jobbuilder, schedules, times
from duepoint.kube.jobs import JobOwner
from duepoint.runs import history as histories
from duepoint.runs.history import History, PastSlot
from duepoint.runs.run import STARTED, RunState, cut, is_retry
from duepoint.runs.summary import Key, MissedSlot, Running, key_of
from duepoint.runs.watermark import NOTHING, OpenSlot, OpenSlots, Watermark
from duepoint.schedules.conditions import MESSAGE_LIMIT, Reason

#: A text with more slots than this was not written by Duepoint.
_MOST_READ = 10_000
_SECOND_US = 1_000_000
_DISTANCE = re.compile(r"\+([0-9]{1,12})(?:\.([0-9]{1,6}))?(?:\*([0-9]{1,6}))?")
#: Occurs in the JSON text of every status with open slots.
MARK = b'"openSlots"'


def open_slots(settled: Watermark) -> dict[str, Any] | None:
    """Return the status field; None if no slot is open."""
    slots_us = settled.open_us
    if not slots_us:
        return None
    fields: dict[str, Any] = {"count": len(slots_us), "oldest": instant(slots_us[0])}
    if settled.started_us:
        fields["started"] = slots_text(settled.started_us)
    if settled.waiting_us:
        fields["waiting"] = slots_text(settled.waiting_us)
    return fields


def watermark(status: Mapping[str, Any]) -> Watermark:
    """Return the slots that have ended according to a status."""
    listed = status.get("openSlots")
    listed = listed if isinstance(listed, Mapping) else {}
    settled = Watermark(
        through_us=instant_us(status.get("settledThrough")),
        started_us=parse_slots(listed.get("started")),
        waiting_us=parse_slots(listed.get("waiting")),
    )
    return settled if settled.through_us else NOTHING


def slots_text(slots_us: Iterable[int]) -> str:
    """Return the text of distinct slots, given oldest first; empty for none."""
    listed = list(slots_us)
    if not listed:
        return ""
    parts = [instant(listed[0])]
    distances = (after - before for before, after in itertools.pairwise(listed))
    for distance_us, equal in itertools.groupby(distances):
        count = sum(1 for _ in equal)
        parts.append(f"+{_seconds(distance_us)}" + (f"*{count}" if count > 1 else ""))
    return " ".join(parts)


def parse_slots(listed: object) -> tuple[int, ...]:
    """Return the slots of a text that ``slots_text`` wrote; none for anything else."""
    if not isinstance(listed, str) or not listed:
        return ()
    first, *distances = listed.split(" ")
    at_us = instant_us(first)
    if not at_us:
        return ()
    slots_us = [at_us]
    for part in distances:
        match = _DISTANCE.fullmatch(part)
        count = 0 if match is None else int(match[3] or 1)
        if match is None or len(slots_us) + count > _MOST_READ:
            return ()
        distance_us = int(match[1]) * _SECOND_US + int((match[2] or "").ljust(6, "0"))
        last_us = slots_us[-1]
        slots_us += [last_us + distance_us * number for number in range(1, count + 1)]
    return tuple(slots_us)


_BEGINNING, _WAS_MISSED = "the slot of ", " was missed: "


def missed(slot: MissedSlot) -> str:
    """Return the message about a missed slot."""
    return f"{_BEGINNING}{instant(slot.slot_us)}{_WAS_MISSED}{slot.message or slot.reason}"


def missed_slot(text: str, reason: str) -> MissedSlot | None:
    """Return the missed slot of such a message; None if the text names none."""
    beginning, _, message = text.partition(_WAS_MISSED)
    slot_us = instant_us(beginning.removeprefix(_BEGINNING))
    return MissedSlot(slot_us=slot_us, reason=reason, message=message) if slot_us else None


def instant(at_us: int) -> str:
    """Return the text of an instant, with a fraction only if it is not zero."""
    return times.micro_time_text(at_us) if at_us % _SECOND_US else times.time_text(at_us)


def instant_us(text: object) -> int:
    """Return the instant of such a text; 0 for anything else."""
    try:
        return times.parse_us(text) if isinstance(text, str) else 0
    except ValueError:
        return 0


def _seconds(distance_us: int) -> str:
    whole, fraction = divmod(distance_us, _SECOND_US)
    return f"{whole}.{fraction:06d}".rstrip("0") if fraction else str(whole)


# -- active runs -------------------------------------------------------------------------------

#: The most references to regular runs in a status; manual runs take up these places first.
MOST_LISTED = 20
#: The most references to manual runs: a new leader knows others only once it has seen their Jobs.
_MOST_BY_HAND = 100
#: The most slots of further runs: their text stays below the API server's limit (16 KiB).
_MOST_SLOTS = 1_000

#: The part of a Job's name after the Schedule's name: the slot in seconds and, for a Job of a
#: ScheduleRun, ten hexadecimal digits. The Schedule's name itself may end in digits.
_SLOT = re.compile(r"-([0-9]+)(-[0-9a-f]{10})?")
_SLOT_PATH = re.compile(r"slots\[(.+)\]")


def active(
    runs: Running, owner: JobOwner, references: Collection[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the status fields about active runs; none if no run is active.

    Args:
        runs: the active runs.
        owner: the Schedule of these runs.
        references: observed Jobs as ObjectReferences; any other Job gets a reference without its
            uid.
    """
    if not runs:
        return {}
    observed = {str(reference.get("name")): dict(reference) for reference in references}
    by_hand = sorted(key for key in runs if key[1])[:_MOST_BY_HAND]
    regular = sorted((not job, key) for key, job in runs.items() if not key[1])
    room = max(0, MOST_LISTED - len(by_hand))
    listed = [
        (observed.get(runs[key]) or _job(owner, runs[key])) if runs[key] else _delivery(owner, key)
        for key in (*by_hand, *(key for _, key in regular[:room]))
    ]
    fields = {"active": listed, "activeCount": len(runs)}
    others = [(runs[key], key[0]) for _, key in regular[room:]]
    more = {
        "jobs": slots_text([slot_us for job, slot_us in others if job][:_MOST_SLOTS]),
        "deliveries": slots_text([slot_us for job, slot_us in others if not job][:_MOST_SLOTS]),
    }
    if any(more.values()):
        fields["activeSlots"] = {name: text for name, text in more.items() if text}
    return fields


def _job(owner: JobOwner, name: str) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "namespace": owner.namespace, "name": name}


def _delivery(owner: JobOwner, key: Key) -> dict[str, Any]:
    slot_us, wanted_by = key
    reference = {"apiVersion": schedules.API_VERSION, "namespace": owner.namespace}
    if wanted_by:
        reference |= {"kind": schedules.RUN_KIND, "uid": wanted_by.removeprefix("run ")}
    else:
        reference |= {"kind": schedules.KIND, "name": owner.name, "uid": owner.uid}
    return {**reference, "fieldPath": f"slots[{instant(slot_us)}]"}


def running(status: Mapping[str, Any], schedule_name: str) -> Running:
    """Return the active runs that a status shows, for a Schedule of that name."""
    listed, more = status.get("active"), status.get("activeSlots")
    references = listed if isinstance(listed, list) else ()
    named = [_run_of(one, schedule_name) for one in references if isinstance(one, Mapping)]
    runs = dict(run for run in named if run is not None)
    if isinstance(more, Mapping):
        for slot_us in parse_slots(more.get("jobs")):
            runs[slot_us, ""] = jobbuilder.name_of(schedule_name, slot_us)
        for slot_us in parse_slots(more.get("deliveries")):
            runs[slot_us, ""] = ""
    return runs


def _run_of(reference: Mapping[str, Any], schedule_name: str) -> tuple[Key, str] | None:
    name, kind = str(reference.get("name") or ""), reference.get("kind")
    if kind not in (schedules.KIND, schedules.RUN_KIND):
        key = _job_key(schedule_name, name)
        return None if key is None else (key, name)
    path = _SLOT_PATH.fullmatch(str(reference.get("fieldPath") or ""))
    slot_us = 0 if path is None else instant_us(path[1])
    if not slot_us:
        return None
    is_regular = kind == schedules.KIND
    wanted_by = str(reference.get("uid") or "")
    return key_of(slot_us, is_regular=is_regular, wanted_by=wanted_by), ""


def _job_key(schedule_name: str, name: str) -> Key | None:
    """Return the run of a Job of that Schedule; None if the name is not one of ours."""
    for begin, is_regular in ((schedule_name, True), (jobbuilder.cut_name(schedule_name), False)):
        match = _SLOT.fullmatch(name, len(begin)) if name.startswith(begin) else None
        if match is not None and is_regular == (not match[2]):
            slot_us = int(match[1]) * 1_000_000
            return key_of(slot_us, is_regular=is_regular, wanted_by=name)
    return None


# -- the last slots -----------------------------------------------------------------------------

#: The published outcome of a delivery that failed and waits for its next attempt.
RETRYING = "Retrying"
#: The published outcome of a slot that was put off and has not started.
WAITING = "Waiting"
#: The most waiting slots among the recent runs.
_MOST_WAITING = 3

_RECENT = "recentRuns"
_USUAL_REASONS = frozenset({Reason.SUCCEEDED.value, Reason.RUNNING.value})


def recent_runs(history: History, open_slots: OpenSlots) -> dict[str, Any]:
    """Return the status field; empty if no slot is known."""
    begun = {entry.slot_us for entry in history if entry.is_regular}
    waiting = [slot for slot in open_slots if slot.may_be_late and not slot.superseded]
    rows = [
        (slot.slot_us, _waiting(slot))
        for slot in waiting[-_MOST_WAITING:]
        if slot.slot_us not in begun
    ]
    rows += [(max(entry.order), _entry(entry)) for entry in history]
    rows.sort(key=lambda row: row[0], reverse=True)
    return {_RECENT: [row for _, row in rows[: histories.MOST]]} if rows else {}


def history(status: Mapping[str, Any]) -> History:
    """Return the history that a status shows; entries that are not ours are left out."""
    entries = tuple(filter(None, map(_past, shown(status))))
    return entries[: histories.MOST]


def shown(status: Mapping[str, Any]) -> Iterator[PastSlot]:
    """Yield the slots that a status shows, with their published outcomes."""
    for row in _listed(status):
        if slot_us := instant_us(row.get("scheduledTime")):
            yield _shown(row, slot_us)


def last_run(run: PastSlot) -> dict[str, Any]:
    """Return ``status.lastRun``: an entry that also has the usual values."""
    values: dict[str, Any] = {
        "scheduledTime": instant(run.slot_us),
        "since": instant(run.since_us) if run.since_us else None,
        "count": run.count if run.count > 1 else None,
        "trigger": run.trigger,
        "startTime": instant(run.started_us) if run.started_us else None,
        "finishTime": instant(run.finished_us) if run.finished_us else None,
        "outcome": RETRYING if is_retrying(run) else str(run.outcome),
        "reason": run.reason or None,
        "message": run.message[:MESSAGE_LIMIT] or None,
        "jobName": run.job_name or None,
        "httpStatus": run.http_status,
        "attempts": run.attempts or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def last_run_of(status: Mapping[str, Any]) -> PastSlot | None:
    """Return the newest started run of a status."""
    row = status.get("lastRun")
    if not isinstance(row, Mapping):
        return None
    run = _past(_shown(row, instant_us(row.get("scheduledTime"))))
    if run is None or run.outcome not in STARTED:
        return None
    return replace(run, attempts=_number(row.get("attempts"), 0))


def is_retrying(run: PastSlot) -> bool:
    """Whether a delivery failed and waits for its next attempt."""
    return run.outcome == RunState.RUNNING and is_retry(run.reason, has_job=bool(run.job_name))


def _entry(entry: PastSlot) -> dict[str, Any]:
    row = last_run(replace(entry, message=cut(entry.message, histories.MESSAGE_LIMIT)))
    is_well = entry.outcome == RunState.SUCCEEDED
    usual = {
        "trigger": entry.trigger == "Schedule",
        "reason": entry.reason in _USUAL_REASONS,
        "message": is_well,
        "httpStatus": is_well,
        "attempts": entry.attempts == 1,
    }
    return {name: value for name, value in row.items() if not usual.get(name)}


def _waiting(slot: OpenSlot) -> dict[str, Any]:
    row = {"scheduledTime": instant(slot.slot_us), "outcome": WAITING, "reason": slot.reason}
    if slot.message:
        row["message"] = cut(slot.message, histories.MESSAGE_LIMIT)
    return row


def _listed(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = status.get(_RECENT)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _past(slot: PastSlot) -> PastSlot | None:
    """Return a slot that began or ended; None if it waits or its outcome is unknown to us."""
    outcome = RunState.RUNNING.value if slot.outcome == RETRYING else slot.outcome
    if outcome not in set(RunState) or outcome == RunState.PENDING:
        return None
    return replace(slot, outcome=RunState(outcome))


def _shown(row: Mapping[str, Any], slot_us: int) -> PastSlot:
    return PastSlot(
        slot_us=slot_us,
        outcome=str(row.get("outcome") or ""),
        reason=str(row.get("reason") or ""),
        message=str(row.get("message") or ""),
        trigger=str(row.get("trigger") or "Schedule"),
        started_us=instant_us(row.get("startTime")),
        finished_us=instant_us(row.get("finishTime")),
        attempts=_number(row.get("attempts"), 1 if row.get("startTime") else 0),
        job_name=str(row.get("jobName") or ""),
        http_status=row.get("httpStatus"),
        since_us=instant_us(row.get("since")),
        count=_number(row.get("count"), 1),
    )


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and value > 0 else otherwise
