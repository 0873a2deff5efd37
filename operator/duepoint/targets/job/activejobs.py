"""What the API server says of a Schedule's Jobs, for decisions by what is active.

A Job is active until it has finished, was deleted (a deletion is not waited for) or is not
there; a Job of that name which another owner controls, or which names no slot, is no run of the
Schedule. All methods raise
``kube.errors.ApiError`` where there is no answer; what that means is the caller's to say.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from duepoint.kube import errors, jobbuilder, jobs, port, wire

#: Of more Jobs than this, all Jobs of the Schedule are listed in one request.
_MOST_LOOKED_AT = 8

_decoder = msgspec.json.Decoder(jobs.Job)

#: Name and uid of a Schedule.
_Key = tuple[str, str]


class JobState(enum.Enum):
    """How a Job stands."""

    ACTIVE = "active"
    OVER = "over"  # finished, or being deleted
    ABSENT = "absent"  # or another owner's


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A Job of the Schedule."""

    name: str
    slot_us: int
    state: JobState


class ScheduleJobs(Protocol):
    """What a policy needs of an API server."""

    async def of_schedule(self, namespace: str, name: str, uid: str) -> tuple[Listed, ...]:
        """Every Job that this Schedule made and that exists."""
        ...

    async def states(
        self, namespace: str, schedule: str, uid: str, names: Collection[str]
    ) -> Mapping[str, JobState]:
        """How these Jobs stand now, each name answered for."""
        ...

    async def of_slot(
        self, namespace: str, schedule: str, uid: str, name: str, slot_us: int
    ) -> JobState:
        """How the Job of this name and slot stands now; absent where it names another slot."""
        ...

    async def delete(self, namespace: str, schedule: str, uid: str, name: str) -> None:
        """The Job, if it is this Schedule's and has not finished, is deleted."""
        ...


class ActiveJobs:
    """``ScheduleJobs`` through one API server.

    A namespace's Jobs are listed by one request at a time; who asks during one shares the next.
    After a restart of Redis every schedule with a policy wants its Jobs listed before its next
    slot; a list for each would have the API server read all Jobs of the namespace as often.
    """

    def __init__(self, api: port.Api) -> None:
        self._api = api
        #: By namespace, and by name and uid of the Schedule.
        self._asked: dict[str, dict[_Key, asyncio.Future[tuple[Listed, ...]]]] = {}
        self._listing: dict[str, asyncio.Task[None]] = {}

    async def of_schedule(self, namespace: str, name: str, uid: str) -> tuple[Listed, ...]:
        asked = self._asked.setdefault(namespace, {})
        answer = asked.setdefault((name, uid), asyncio.get_running_loop().create_future())
        if (listing := self._listing.get(namespace)) is None or listing.done():
            self._listing[namespace] = asyncio.create_task(self._list_all(namespace))
        return await asyncio.shield(answer)

    async def _list_all(self, namespace: str) -> None:
        while asked := self._asked.pop(namespace, None):
            try:
                found = await self._listed(namespace, asked)
            except Exception as trouble:  # noqa: BLE001 - raised where it was asked
                for answer in asked.values():
                    answer.set_exception(trouble)
                    answer.exception()  # the task that asked may be gone
            else:
                for key, answer in asked.items():
                    answer.set_result(tuple(found[key]))

    async def _listed(self, namespace: str, asked: Collection[_Key]) -> Mapping[_Key, list[Listed]]:
        selector = jobbuilder.SCHEDULE_LABEL
        if len(asked) == 1:
            ((name, _),) = asked
            selector = f"{selector}={name}"
        found: dict[_Key, list[Listed]] = {key: [] for key in asked}
        pages = self._api.list_pages(
            jobs.collection(namespace), jobs.Job, query={"labelSelector": selector}
        )
        async for page in pages:
            for job in page.items:
                owner, slot_us = jobs.owner_of(job), jobs.slot_us(job)
                if owner is None or slot_us is None or owner.namespace != namespace:
                    continue
                listed = found.get((owner.name, owner.uid))
                if listed is not None:
                    name, state = job.metadata.name, _state(job, owner)
                    listed.append(Listed(name=name, slot_us=slot_us, state=state))
        return found

    async def states(
        self, namespace: str, schedule: str, uid: str, names: Collection[str]
    ) -> Mapping[str, JobState]:
        if len(names) > _MOST_LOOKED_AT:
            listed = await self.of_schedule(namespace, schedule, uid)
            return dict.fromkeys(names, JobState.ABSENT) | {one.name: one.state for one in listed}
        found = await asyncio.gather(*(self._read(namespace, name) for name in names))
        owner = jobs.JobOwner(namespace, schedule, uid)
        return {
            name: JobState.ABSENT if job is None else _state(job, owner)
            for name, job in zip(names, found, strict=True)
        }

    async def of_slot(
        self, namespace: str, schedule: str, uid: str, name: str, slot_us: int
    ) -> JobState:
        job = await self._read(namespace, name)
        if job is None or jobs.slot_us(job) != slot_us:
            return JobState.ABSENT
        return _state(job, jobs.JobOwner(namespace, schedule, uid))

    async def delete(self, namespace: str, schedule: str, uid: str, name: str) -> None:
        job = await self._read(namespace, name)
        owner = jobs.JobOwner(namespace, schedule, uid)
        if job is not None and _state(job, owner) is JobState.ACTIVE:
            await jobs.delete(self._api, namespace, name, job.metadata.uid)

    async def _read(self, namespace: str, name: str) -> jobs.Job | None:
        path = jobs.path(namespace, name)
        try:
            return wire.decoded(_decoder, await self._api.request("GET", path), f"GET {path}")
        except errors.NotFound:
            return None


class _NoJobs:
    """Of who has no API server: slots that depend on Jobs are put off."""

    async def _refuse(self, *place: Any, **_: Any) -> Any:  # noqa: ANN401 - for all methods
        raise errors.Unavailable(f"Jobs of {place[0]}/{place[1]}: no API server", sent=False)

    of_schedule = states = of_slot = delete = _refuse


NO_JOBS: ScheduleJobs = _NoJobs()


def _state(job: jobs.Job, owner: jobs.JobOwner) -> JobState:
    if not jobs.is_run_of(job, owner):
        return JobState.ABSENT
    if job.metadata.deletion_timestamp is not None or jobs.finished(job) is not None:
        return JobState.OVER
    return JobState.ACTIVE
