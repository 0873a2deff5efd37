"""The Job target: one slot, one Job, however often it is fired.

Builds the Job of the slot and asks the API server to create it. The Job's name turns a second
creation into a 409, which ``kube.jobs`` resolves by comparing the owner's uid and the slot. The
target maps the answers to outcomes: it retries what may recover, and rejects what only an edit can
correct. Without a Job nothing has started, so a slot that never gets one is missed, not failed.

``ActiveJobs`` reads the state of a Schedule's Jobs for its concurrency policy. A Job is active
until it has finished, is being deleted (we do not wait for that) or is gone. A Job of that
name with another controller, or without a slot, is not a run of the Schedule.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import cast

import msgspec

from duepoint import clock as clocks
from duepoint import errors as base
from duepoint.kube import errors, jobbuilder, jobs, port
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome, target


class JobTarget:
    """Creates Jobs through one API server."""

    def __init__(self, api: port.Api, clock: clocks.Clock) -> None:
        self._api = api
        self._clock = clock

    async def check(self, _: target.Firing) -> target.Trouble | None:
        """Return None: a Job refers to nothing that this worker could read beforehand."""
        return None

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Create the slot's Job; Delivered(running) once it exists, by this or an older attempt."""
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        try:
            async with asyncio.timeout(seconds):
                result = await jobs.create(
                    self._api,
                    firing.namespace,
                    # Not in a variable: it may be large, and is not kept while we wait.
                    jobbuilder.job_for(_template(firing.action), firing, firing.action.payload),
                    timeout_seconds=seconds,
                )
        except base.InvalidSpec as error:
            return _rejected(Reason.INVALID_JOB_TEMPLATE, str(error))
        except TimeoutError:
            message = f"no answer from the API server in {seconds:g} s"
            return _retry(Reason.API_UNAVAILABLE, message, is_unanswered=True)
        except errors.ApiError as error:
            return _retry(
                Reason.API_UNAVAILABLE,
                str(error),
                target.after_us(error),
                is_unanswered=errors.may_be_carried_out(error),
            )
        if isinstance(result, jobs.JobRefused):
            return (_retry if result.may_heal else _rejected)(result.reason, result.message)
        return outcome.Delivered(
            accepted_us=self._clock.now_us(),
            running=True,
            job_name=jobbuilder.job_name(firing),
            # If the Job was ours already, an earlier unanswered request may still be under way.
            may_come_again=not result.is_new,
        )


def _template(action: actions.Action) -> Mapping[str, object]:
    return cast("actions.JobAction", action.target).opened()


def _retry(
    reason: Reason, message: str, after_us: int | None = None, *, is_unanswered: bool = False
) -> outcome.Retry:
    return outcome.Retry(
        reason=reason, message=message, after_us=after_us, started=False, unanswered=is_unanswered
    )


def _rejected(reason: Reason, message: str) -> outcome.Rejected:
    return outcome.Rejected(reason=reason, message=message, started=False)


# -- which Jobs of a Schedule are active -----------------------------------------------------------

_decoder = msgspec.json.Decoder(jobs.Job)

#: Name and uid of a Schedule.
_Key = tuple[str, str]


class JobState(enum.Enum):
    """Whether a Job counts as active for the concurrency policy."""

    ACTIVE = "active"
    OVER = "over"  # finished, or being deleted
    ABSENT = "absent"  # or another owner's


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A Job of the Schedule, with its slot and its state."""

    name: str
    slot_us: int
    state: JobState


class ActiveJobs:
    """Reads Jobs for concurrency policies. Every method raises ``kube.errors.ApiError``.

    One request at a time lists the Jobs of a namespace; callers that come meanwhile share the next
    one. After a restart of Redis every Schedule with a policy needs its Jobs before its next slot.
    With a list for each, the API server would read all Jobs of the namespace each time.
    """

    def __init__(self, api: port.Api) -> None:
        self._api = api
        #: Waiting callers by namespace, and by name and uid of the Schedule.
        self._asked: dict[str, dict[_Key, asyncio.Future[tuple[Listed, ...]]]] = {}
        self._listing: dict[str, asyncio.Task[None]] = {}

    async def of_schedule(self, namespace: str, name: str, uid: str) -> tuple[Listed, ...]:
        """Return every existing Job of this Schedule."""
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
                    answer.exception()  # the caller may be gone, and asyncio would log the error
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

    async def delete(self, namespace: str, schedule: str, uid: str, name: str) -> None:
        """Delete the Job if it is this Schedule's and has not finished."""
        job = await self._read(namespace, name)
        owner = jobs.JobOwner(namespace, schedule, uid)
        if job is not None and _state(job, owner) is JobState.ACTIVE:
            await jobs.delete(self._api, namespace, name, job.metadata.uid)

    async def _read(self, namespace: str, name: str) -> jobs.Job | None:
        path = jobs.path(namespace, name)
        try:
            return port.decoded(_decoder, await self._api.request("GET", path), f"GET {path}")
        except errors.NotFound:
            return None


def _state(job: jobs.Job, owner: jobs.JobOwner) -> JobState:
    if not jobs.is_run_of(job, owner):
        return JobState.ABSENT
    if job.metadata.deletion_timestamp is not None or jobs.finished(job) is not None:
        return JobState.OVER
    return JobState.ACTIVE
