"""``status.active``: references to runs that go on, written and read back.

A run of a Job is a reference to that Job. A delivery is no object of its own: its reference is to
the object that wanted it, the Schedule or a ScheduleRun, and ``fieldPath`` names the slot. Of many
runs only some are listed, and ``activeCount`` tells of all. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from duepoint.controller.status import opentext
from duepoint.kube import jobbuilder, schedules
from duepoint.runs import running as runnings
from duepoint.runs.running import Key, Running

#: How many references a status holds.
MOST_LISTED = 20

#: Behind the Schedule's name in that of a Job: the slot in seconds, and of a ScheduleRun's Job ten
#: hexadecimal digits. Without that name they cannot be told apart: it may end in digits itself.
_SLOT = re.compile(r"-([0-9]+)(-[0-9a-f]{10})?")
_SLOT_PATH = re.compile(r"slots\[(.+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The Schedule that the runs belong to."""

    namespace: str
    name: str
    uid: str


def shown(
    running: Running, owner: Owner, references: Collection[Mapping[str, Any]]
) -> dict[str, Any]:
    """The fields of a status; none where nothing goes on.

    Args:
        running: what goes on.
        owner: whose runs these are.
        references: to Jobs that were seen, as the API spells them; others are told by their names.
    """
    if not running.count:
        return {}
    seen = {str(one.get("name")): dict(one) for one in references}
    jobs = sorted(job for job in running.jobs.values() if job)
    listed = [seen.get(job) or _job(owner, job) for job in jobs[:MOST_LISTED]]
    keys = sorted(key for key, job in running.jobs.items() if not job)
    listed += [_delivery(owner, key) for key in keys[: MOST_LISTED - len(listed)]]
    fields: dict[str, Any] = {"active": listed} if listed else {}
    return {**fields, "activeCount": running.count}


def _job(owner: Owner, name: str) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "namespace": owner.namespace, "name": name}


def _delivery(owner: Owner, key: Key) -> dict[str, Any]:
    slot_us, wanted_by = key
    reference = {"apiVersion": schedules.API_VERSION, "namespace": owner.namespace}
    if wanted_by:
        reference |= {"kind": schedules.RUN_KIND, "uid": wanted_by.removeprefix("run ")}
    else:
        reference |= {"kind": schedules.KIND, "name": owner.name, "uid": owner.uid}
    return {**reference, "fieldPath": f"slots[{opentext.instant(slot_us)}]"}


def loaded(status: Mapping[str, Any], schedule_name: str, going_on: int) -> Running:
    """The runs behind a status.

    Args:
        status: as it is stored.
        schedule_name: of the Schedule whose status it is.
        going_on: how many runs go on by its counters. What it lists counts more than that.
    """
    jobs = dict(_listed(status, schedule_name))
    if going_on > len(jobs):
        # A status of an earlier version lists no deliveries, and shows them elsewhere.
        for key, name in _elsewhere(status):
            if len(jobs) < going_on:
                jobs.setdefault(key, name)
    count = status.get("activeCount")
    most = min(going_on, count) if isinstance(count, int) else 0
    return Running(jobs=jobs, unlisted=max(0, most - len(jobs)))


def _listed(status: Mapping[str, Any], schedule_name: str) -> Iterator[tuple[Key, str]]:
    listed = status.get("active")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, Mapping) and (found := _run_of(one, schedule_name)):
            yield found


def _run_of(reference: Mapping[str, Any], schedule_name: str) -> tuple[Key, str] | None:
    name, kind = str(reference.get("name") or ""), reference.get("kind")
    if kind not in (schedules.KIND, schedules.RUN_KIND):
        key = _job_key(schedule_name, name)
        return None if key is None else (key, name)
    path = _SLOT_PATH.fullmatch(str(reference.get("fieldPath") or ""))
    slot_us = 0 if path is None else opentext.instant_us(path[1])
    if not slot_us:
        return None
    is_regular = kind == schedules.KIND
    wanted_by = str(reference.get("uid") or "")
    return runnings.key_of(slot_us, is_regular=is_regular, wanted_by=wanted_by), ""


def _job_key(schedule_name: str, name: str) -> Key | None:
    """The run of a Job of that Schedule; None where the name is not of ours."""
    for begin, is_regular in ((schedule_name, True), (jobbuilder.cut_name(schedule_name), False)):
        found = _SLOT.fullmatch(name, len(begin)) if name.startswith(begin) else None
        if found is not None and is_regular == (not found[2]):
            slot_us = int(found[1]) * 1_000_000
            return runnings.key_of(slot_us, is_regular=is_regular, wanted_by=name)
    return None


def _elsewhere(status: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    for slot_us in opentext.loaded(status).started_us:
        yield runnings.key_of(slot_us, is_regular=True, wanted_by=""), ""
    last = status.get("lastRun")
    if isinstance(last, Mapping) and last.get("outcome") == "Running":
        slot_us = opentext.instant_us(last.get("scheduledTime"))
        is_regular = last.get("trigger") in ("Schedule", "CatchUp", None)
        name = str(last.get("jobName") or "")
        if is_regular or name:
            yield runnings.key_of(slot_us, is_regular=is_regular, wanted_by=name), name
