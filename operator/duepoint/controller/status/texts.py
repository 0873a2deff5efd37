"""What a status writes of slots and active runs, and the same read back; instants among it.

``openSlots``: the oldest slot is written as an instant, each further one as its distance in seconds
from the one before it, with ``*n`` for n equal distances in a row, so that hundreds of slots take
little space and stay readable::

    2026-03-01T12:05:00Z +300*2 +0.25

``active``: a run of a Job is a reference to that Job. A delivery is no object of its own: its
reference is to the object that requested it, the Schedule or a ScheduleRun, and ``fieldPath`` names
the slot. At most ``MOST_LISTED`` runs are listed; ``activeCount`` counts all of them.

An instant is RFC 3339 in UTC; a fraction is written only where there is one, because schedules of
less than a second and exact replays need it. Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from duepoint.kube import jobbuilder, schedules, times
from duepoint.kube.jobs import JobOwner
from duepoint.runs import running as runnings
from duepoint.runs.running import Key, Running
from duepoint.runs.summary import MissedSlot
from duepoint.runs.watermark import NOTHING, Watermark

#: A text with more slots than this was not written by Duepoint.
_MOST_READ = 10_000
_SECOND_US = 1_000_000
_DISTANCE = re.compile(r"\+([0-9]{1,12})(?:\.([0-9]{1,6}))?(?:\*([0-9]{1,6}))?")
#: Stands in the JSON text of every status with open slots.
MARK = b'"openSlots"'


def open_slots(settled: Watermark) -> dict[str, Any] | None:
    """The status field; None where no slot is open."""
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
    """The slots that have ended according to a status."""
    listed = status.get("openSlots")
    listed = listed if isinstance(listed, Mapping) else {}
    settled = Watermark(
        through_us=instant_us(status.get("settledThrough")),
        started_us=parse_slots(listed.get("started")),
        waiting_us=parse_slots(listed.get("waiting")),
    )
    return settled if settled.through_us else NOTHING


def slots_text(slots_us: Iterable[int]) -> str:
    """The text of distinct slots, oldest first; empty for none."""
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
    """The slots of a text that ``slots_text`` wrote; none for anything else."""
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
    """What a status says of a missed slot."""
    return f"{_BEGINNING}{instant(slot.slot_us)}{_WAS_MISSED}{slot.message or slot.reason}"


def missed_slot(text: str, reason: str) -> MissedSlot | None:
    """The missed slot that a status says this of; None where the text names none."""
    beginning, _, message = text.partition(_WAS_MISSED)
    slot_us = instant_us(beginning.removeprefix(_BEGINNING))
    return MissedSlot(slot_us=slot_us, reason=reason, message=message) if slot_us else None


def instant(at_us: int) -> str:
    """An instant as a status writes it, with a fraction only where there is one."""
    return times.micro_time_text(at_us) if at_us % _SECOND_US else times.time_text(at_us)


def instant_us(text: object) -> int:
    """The instant of such a text; 0 for anything else."""
    try:
        return times.parse_us(text) if isinstance(text, str) else 0
    except ValueError:
        return 0


def _seconds(distance_us: int) -> str:
    whole, fraction = divmod(distance_us, _SECOND_US)
    return f"{whole}.{fraction:06d}".rstrip("0") if fraction else str(whole)


# -- active runs -------------------------------------------------------------------------------

#: How many references a status holds.
MOST_LISTED = 20

#: What follows the Schedule's name in the name of a Job: the slot in seconds and, for a Job of a
#: ScheduleRun, ten hexadecimal digits. The Schedule's name itself may end in digits.
_SLOT = re.compile(r"-([0-9]+)(-[0-9a-f]{10})?")
_SLOT_PATH = re.compile(r"slots\[(.+)\]")


def active(
    runs: Running, owner: JobOwner, references: Collection[Mapping[str, Any]]
) -> dict[str, Any]:
    """The fields of a status; none where no run is active.

    Args:
        runs: the active runs.
        owner: the Schedule of these runs.
        references: observed Jobs as ObjectReferences; a Job that is not among them is written by
            its name alone.
    """
    if not runs.count:
        return {}
    observed = {str(reference.get("name")): dict(reference) for reference in references}
    jobs = sorted(job for job in runs.jobs.values() if job)
    listed = [observed.get(job) or _job(owner, job) for job in jobs[:MOST_LISTED]]
    keys = sorted(key for key, job in runs.jobs.items() if not job)
    listed += [_delivery(owner, key) for key in keys[: MOST_LISTED - len(listed)]]
    fields: dict[str, Any] = {"active": listed} if listed else {}
    return {**fields, "activeCount": runs.count}


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


def running(status: Mapping[str, Any], schedule_name: str, counted: int) -> Running:
    """The active runs of a status.

    Args:
        status: as it is stored.
        schedule_name: name of the Schedule whose status it is.
        counted: how many runs are active by its counters; the list takes precedence.
    """
    listed, count = status.get("active"), status.get("activeCount")
    references = listed if isinstance(listed, list) else ()
    named = [_run_of(one, schedule_name) for one in references if isinstance(one, Mapping)]
    jobs = dict(run for run in named if run is not None)
    most = min(counted, count) if isinstance(count, int) else 0
    return Running(jobs=jobs, unlisted=max(0, most - len(jobs)))


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
    return runnings.key_of(slot_us, is_regular=is_regular, wanted_by=wanted_by), ""


def _job_key(schedule_name: str, name: str) -> Key | None:
    """The run of a Job of that Schedule; None where the name is not one of ours."""
    for begin, is_regular in ((schedule_name, True), (jobbuilder.cut_name(schedule_name), False)):
        match = _SLOT.fullmatch(name, len(begin)) if name.startswith(begin) else None
        if match is not None and is_regular == (not match[2]):
            slot_us = int(match[1]) * 1_000_000
            return runnings.key_of(slot_us, is_regular=is_regular, wanted_by=name)
    return None
