"""A run that ``duepoint trigger`` asked for, before its Job exists: for who follows its log."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint import errors
from duepoint.cli import cluster as clusters
from duepoint.cli.schedules import gathering
from duepoint.cli.schedules.facts import ScheduleFacts
from duepoint.controller.status import texts
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, jobs, schedules
from duepoint.schedules import manualruns

_AGAIN_SECONDS = 0.5

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggeredRun:
    """A ScheduleRun with a trigger, which has not ended, and the name of its Job."""

    name: str
    job_name: str
    created_us: int


async def newest(
    server: clusters.ClusterSession, known: ScheduleFacts, existing: list[Object]
) -> TriggeredRun | None:
    """The newest trigger of the Schedule that has not ended.

    None: there is none that is newer than the Jobs ``existing``, the Schedule makes no Jobs, or who
    asks may not list ScheduleRuns.
    """
    if known.target and not known.target.startswith("Job"):
        return None
    runs = schedules.collection(server.namespace, plural=schedules.RUN_PLURAL)
    try:
        listed = (await gathering.get(server, runs)).get("items") or ()
    except kube_errors.Forbidden:
        return None
    since_us = max((_created_us(job) for job in existing), default=0)
    found = [
        run
        for item in listed
        if not gathering.is_over(item) and (run := _triggered(item, known)) is not None
        if run.created_us >= since_us
    ]
    return max(found, key=lambda run: run.created_us, default=None)


async def wait_for_job(server: clusters.ClusterSession, run: TriggeredRun) -> None:
    """Until its Job exists, however long; an API server that is away is waited for too.

    Raises:
        errors.InvalidSetting: it ended, or was deleted, before it had a Job.
        kube_errors.ApiError: one of them may not be read.
    """
    while True:
        try:
            is_over = await _is_over(server, run)
            if await has_job(server, run):
                return
        except kube_errors.Unauthorized:
            raise
        except kube_errors.Unavailable:
            is_over = False
        if is_over:
            message = f"ScheduleRun {run.name} ended without a Job: kubectl describe schedulerun"
            raise errors.InvalidSetting("NAME", f"{message} {run.name} -n {server.namespace}")
        await asyncio.sleep(_AGAIN_SECONDS)


async def has_job(server: clusters.ClusterSession, run: TriggeredRun) -> bool:
    """Whether its Job exists; raises kube_errors.ApiError."""
    try:
        await gathering.get(server, jobs.path(server.namespace, run.job_name))
    except kube_errors.NotFound:
        return False
    return True


async def _is_over(server: clusters.ClusterSession, run: TriggeredRun) -> bool:
    path = schedules.path(server.namespace, run.name, plural=schedules.RUN_PLURAL)
    try:
        return gathering.is_over(await gathering.get(server, path))
    except kube_errors.NotFound:
        return True


def _triggered(item: Object, known: ScheduleFacts) -> TriggeredRun | None:
    """None: it is another Schedule's, or no trigger."""
    metadata, created_us = item["metadata"], _created_us(item)
    try:
        spec = msgspec.json.encode(item.get("spec"))
        wanted = schedules.wanted(spec, created_us=created_us)
    except errors.InvalidSpec:
        return None
    if wanted.schedule != known.name or not isinstance(wanted.slots, manualruns.Trigger):
        return None
    slot_us = manualruns.fitted(wanted.slots.slot_us, whole_seconds=True)
    job_name = jobbuilder.name_of(known.name, slot_us, metadata["uid"])
    return TriggeredRun(name=metadata["name"], job_name=job_name, created_us=created_us)


def _created_us(item: Object) -> int:
    return texts.instant_us((item.get("metadata") or {}).get("creationTimestamp"))
