"""The Job target: one slot, one Job, however often it is fired.

Builds the Job of the slot and asks the API server to create it; the Job's name makes the second
creation a 409, which ``kube.jobs`` settles by comparing the owner's uid and the slot. Owns the
translation of its answers: what may heal is tried again, what only an edit can mend is not. A Job
that was not created has not started, so a slot that never gets one is missed, not failed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from typing import cast

import msgspec

from duepoint import clock as clocks
from duepoint import errors as base
from duepoint import shares
from duepoint.kube import errors, jobbuilder, jobcreation, port
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import target

#: Of frames that are kept, with what they were made of; some kilobytes each.
_FRAME_BYTES = 16 * 1024 * 1024
#: A request without an answer may be carried out for so long.
_LATE_SECONDS = outcome.LATE_US / 1_000_000


class JobTarget:
    """Creates Jobs through one API server."""

    def __init__(self, api: port.Api, clock: clocks.Clock) -> None:
        self._api = api
        self._clock = clock
        self._open = OpenRequests(clock)
        self._frames = _Frames()

    async def check(self, _: target.Firing) -> target.Trouble | None:
        """A Job refers to nothing that this worker could read beforehand."""
        return None

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Delivered(running) once the Job of this slot exists, by this attempt or an older one."""
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        name = ""
        try:
            head, body = self._composed(firing)
            name = str(cast("dict[str, object]", head["metadata"])["name"])
            async with asyncio.timeout(seconds):
                result = await jobcreation.create(
                    self._api, firing.namespace, head, body=body, timeout_seconds=seconds
                )
        except base.InvalidSpec as error:
            return _rejected(Reason.INVALID_JOB_TEMPLATE, str(error))
        except TimeoutError:
            self._open.note(firing.namespace, name)
            message = f"no answer from the API server in {seconds:g} s"
            return _retry(Reason.API_UNAVAILABLE, message, is_unanswered=True)
        except errors.ApiError as error:
            is_unanswered = errors.may_be_carried_out(error)
            if is_unanswered:
                self._open.note(firing.namespace, name)
            after_us = target.after_us(error)
            return _retry(Reason.API_UNAVAILABLE, str(error), after_us, is_unanswered=is_unanswered)
        return self._judged(firing.namespace, name, result)

    def _judged(
        self, namespace: str, name: str, result: jobcreation.CreateResult
    ) -> outcome.Outcome:
        match result:
            case jobcreation.NameConflict(message=message):
                return _rejected(Reason.NAME_CONFLICT, message)
            case jobcreation.JobRefused(reason=reason, message=message):
                return (_retry if result.may_heal else _rejected)(reason, message)
        # One that was ours already was made by an earlier request.
        is_older = isinstance(result, jobcreation.AlreadyOurs)
        return outcome.Delivered(
            accepted_us=self._clock.now_us(),
            running=True,
            job_name=name,
            may_come_again=is_older or self._open.has(namespace, name),
        )

    def _composed(self, firing: target.Firing) -> tuple[dict[str, object], bytes]:
        """The Job's metadata, and all of it as bytes: nothing else of a large one is held."""
        facts = _facts(firing)
        # The payload of a member is its own.
        is_usual = not firing.run_uid and firing.owner is None
        if is_usual and (frame := self._frames.get(firing)) is not None:
            # The frame has the payload.
            words = jobbuilder.words_of(dataclasses.replace(facts, payload=None))
            return {"metadata": jobbuilder.head_of(words)}, frame.body(words)
        job = jobbuilder.job_for(_template(firing.action), facts)
        return {"metadata": job["metadata"]}, msgspec.json.encode(job)


class _Frames:
    """The bytes of Jobs of one action, by whether there is a slot before and a trace."""

    def __init__(self) -> None:
        self._kept: shares.BytesCache[tuple[int, bool, bool], _Kept] = shares.BytesCache(
            _FRAME_BYTES
        )

    def get(self, firing: target.Firing) -> jobbuilder.JobFrame | None:
        """None where the builder has to say how long the annotations are, or what is wrong."""
        action, has_previous = firing.action, firing.previous_us is not None
        is_traced = bool(firing.traceparent)
        # An id is unique for as long as the action is kept here.
        key = id(action), has_previous, is_traced
        found = self._kept.get(firing.namespace, key)
        if found is None:
            payload = bytes(action.payload).decode(errors="replace") or None
            frame = jobbuilder.frame_of(
                _template(action),
                payload=payload,
                has_previous=has_previous,
                is_traced=is_traced,
            )
            found = action, frame
            length = 0 if frame is None else len(frame.pattern)
            # The frame may keep its action alive longer than the worker's cache of actions does.
            self._kept.put(
                firing.namespace, key, found, length + actions.memory_bytes(action, length)
            )
        return found[1]


_Kept = tuple[actions.Action, jobbuilder.JobFrame | None]


def job_name(firing: target.Firing) -> str:
    """The one name that the Job of this slot can have."""
    return jobbuilder.job_name(_facts(firing))


def _template(action: actions.Action) -> Mapping[str, object]:
    return cast("actions.JobAction", action.target).template


def _facts(firing: target.Firing) -> jobbuilder.SlotFacts:
    payload = firing.action.payload
    return jobbuilder.SlotFacts(
        namespace=firing.namespace,
        schedule_name=firing.name,
        schedule_uid=firing.uid,
        slot_us=firing.slot_us,
        previous_us=firing.previous_us,
        trigger=firing.trigger,
        payload=bytes(payload) or None,
        time_zone=firing.time_zone,
        run_uid=firing.run_uid,
        owner=firing.owner,
        traceparent=firing.traceparent or None,
    )


def _retry(
    reason: Reason, message: str, after_us: int | None = None, *, is_unanswered: bool = False
) -> outcome.Retry:
    return outcome.Retry(
        reason=reason, message=message, after_us=after_us, started=False, unanswered=is_unanswered
    )


def _rejected(reason: Reason, message: str) -> outcome.Rejected:
    return outcome.Rejected(reason=reason, message=message, started=False)


class OpenRequests:
    """Jobs of which this worker has asked for and received no answer, by name.

    A later attempt may be answered although the first request is still under way; the news of that
    Job has to say so. An entry is forgotten once no
    such request can be carried out any more. The order is that of the instants.
    """

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._sent: OrderedDict[tuple[str, str], float] = OrderedDict()

    def note(self, namespace: str, job_name: str) -> None:
        """No answer came to a request for this Job that was sent until now."""
        self._forget()
        self._sent[namespace, job_name] = self._clock.monotonic()
        self._sent.move_to_end((namespace, job_name))

    def has(self, namespace: str, job_name: str) -> bool:
        """Whether one may be under way."""
        self._forget()
        return (namespace, job_name) in self._sent

    def _forget(self) -> None:
        past = self._clock.monotonic() - _LATE_SECONDS
        while self._sent and next(iter(self._sent.values())) <= past:
            self._sent.popitem(last=False)
