"""``status.active``: references to active runs, written and read back.

A run of a Job is a reference to that Job. A delivery is no object of its own: its reference is to
the object that requested it, the Schedule or a ScheduleRun, and ``fieldPath`` names the slot. At
most ``MOST_LISTED`` runs are listed; ``activeCount`` counts all of them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from duepoint.controller.status import slotlist
from duepoint.kube import jobbuilder, schedules
from duepoint.kube.jobs import JobOwner
from duepoint.runs import running as runnings
from duepoint.runs.running import Key, Running

#: How many references a status holds.
MOST_LISTED = 20

#: What follows the Schedule's name in the name of a Job: the slot in seconds and, for a Job of a
#: ScheduleRun, ten hexadecimal digits. The Schedule's name itself may end in digits.
_SLOT = re.compile(r"-([0-9]+)(-[0-9a-f]{10})?")
_SLOT_PATH = re.compile(r"slots\[(.+)\]")


def rendered(
    running: Running, owner: JobOwner, references: Collection[Mapping[str, Any]]
) -> dict[str, Any]:
    """The fields of a status; none where no run is active.

    Args:
        running: the active runs.
        owner: the Schedule of these runs.
        references: observed Jobs as ObjectReferences; a Job that is not among them is written by
            its name alone.
    """
    if not running.count:
        return {}
    observed = {str(reference.get("name")): dict(reference) for reference in references}
    jobs = sorted(job for job in running.jobs.values() if job)
    listed = [observed.get(job) or _job(owner, job) for job in jobs[:MOST_LISTED]]
    keys = sorted(key for key, job in running.jobs.items() if not job)
    listed += [_delivery(owner, key) for key in keys[: MOST_LISTED - len(listed)]]
    fields: dict[str, Any] = {"active": listed} if listed else {}
    return {**fields, "activeCount": running.count}


def _job(owner: JobOwner, name: str) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "namespace": owner.namespace, "name": name}


def _delivery(owner: JobOwner, key: Key) -> dict[str, Any]:
    slot_us, wanted_by = key
    reference = {"apiVersion": schedules.API_VERSION, "namespace": owner.namespace}
    if wanted_by:
        reference |= {"kind": schedules.RUN_KIND, "uid": wanted_by.removeprefix("run ")}
    else:
        reference |= {"kind": schedules.KIND, "name": owner.name, "uid": owner.uid}
    return {**reference, "fieldPath": f"slots[{slotlist.instant(slot_us)}]"}


def read(status: Mapping[str, Any], schedule_name: str, counted: int) -> Running:
    """The active runs of a status.

    Args:
        status: as it is stored.
        schedule_name: name of the Schedule whose status it is.
        counted: how many runs are active by its counters; the list takes precedence.
    """
    jobs = dict(_listed(status, schedule_name))
    count = status.get("activeCount")
    most = min(counted, count) if isinstance(count, int) else 0
    return Running(jobs=jobs, unlisted=max(0, most - len(jobs)))


def _listed(status: Mapping[str, Any], schedule_name: str) -> Iterator[tuple[Key, str]]:
    listed = status.get("active")
    for reference in listed if isinstance(listed, list) else ():
        if isinstance(reference, Mapping) and (run := _run_of(reference, schedule_name)):
            yield run


def _run_of(reference: Mapping[str, Any], schedule_name: str) -> tuple[Key, str] | None:
    name, kind = str(reference.get("name") or ""), reference.get("kind")
    if kind not in (schedules.KIND, schedules.RUN_KIND):
        key = _job_key(schedule_name, name)
        return None if key is None else (key, name)
    path = _SLOT_PATH.fullmatch(str(reference.get("fieldPath") or ""))
    slot_us = 0 if path is None else slotlist.instant_us(path[1])
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
