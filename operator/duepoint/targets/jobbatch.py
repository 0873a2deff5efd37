"""Jobs of many slots, created one after the other over as many connections as there are.

What a bare loop of POSTs would do, so that a burst costs the worker little more than that. Only
what the API server accepts at once is done here. Whatever else happens to one (its name is taken,
its template is refused, no answer comes) is left to ``JobTarget.fire``, which asks again: the name
makes that harmless. After an answer that may be the same for all, the rest is left to it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from duepoint import bytescache, shares
from duepoint import clock as clocks
from duepoint.kube import errors, jobbuilder, jobframe, jobs, port, transport
from duepoint.schedules import actions
from duepoint.targets import batches, openrequests, target

#: Of frames that are kept, with what they were made of; some kilobytes each.
_FRAME_BYTES = 16 * 1024 * 1024


class JobBatches:
    """Creates them through one API server."""

    def __init__(
        self, api: port.Api, clock: clocks.Clock, unanswered: openrequests.OpenRequests
    ) -> None:
        self._api = api
        self._clock = clock
        self._open = unanswered
        self._frames = _Frames()
        #: Of all batches together: a row begins when there is a connection for it.
        self._places: shares.FairPlaces[str] = shares.FairPlaces(
            transport.REQUEST_CONNECTIONS, greed=None
        )

    async def fire(self, batch: batches.FiringBatch) -> batches.BatchAnswer:
        """The Jobs that were created; nothing is sent once the claim has run out."""
        now = self._clock.monotonic()
        course = _Course(
            batch=batch,
            until=min(batch.not_after_monotonic, now + target.JOB_LIMIT_SECONDS),
            rows=iter(range(len(batch.names))),
            made=[None] * len(batch.names),
        )
        async with asyncio.TaskGroup() as group:
            for _ in range(min(transport.REQUEST_CONNECTIONS, len(batch.names))):
                group.create_task(self._create_in_turn(course))
        return batches.BatchAnswer(
            accepted_us=self._clock.now_us(),
            messages=[None if one is None else "" for one in course.made],
            jobs=course.made,
        )

    async def _create_in_turn(self, course: _Course) -> None:
        namespace = course.batch.namespace
        for row in course.rows:
            await self._places.wait(namespace)  # for each: another's Job need not wait for all
            try:
                now = self._clock.monotonic()
                if course.is_over or now >= course.until:
                    return
                await self._create(course, row, now)
            finally:
                self._places.leave(namespace)

    async def _create(self, course: _Course, row: int, now: float) -> None:
        batch = course.batch
        words = jobbuilder.words_of(_facts(batch, row))
        has_previous = words.previous is not None
        frame = self._frames.get(batch.namespace, batch.action, has_previous=has_previous)
        if frame is None:
            course.is_over = True
            return
        try:
            await jobs.create_new(
                self._api,
                batch.namespace,
                frame.body(words),
                timeout_seconds=target.JOB_LIMIT_SECONDS,
            )
        except errors.Conflict:
            return
        except errors.ApiError as error:
            if errors.may_be_carried_out(error):
                self._open.note(batch.namespace, words.job_name)
            course.is_over = True
            return
        except asyncio.CancelledError:
            self._open.note(batch.namespace, words.job_name)
            raise
        course.made[row] = batches.MadeJob(words.job_name, now, self._clock.now_us())
        batch.note_row()


@dataclass(slots=True, kw_only=True)
class _Course:
    """How far a batch has come; ``is_over``: nothing more is begun."""

    batch: batches.FiringBatch
    until: float
    rows: Iterator[int]
    made: list[batches.MadeJob | None]
    is_over: bool = False


class _Frames:
    """Frames by action, and by whether there is a slot before."""

    def __init__(self) -> None:
        self._kept: bytescache.BytesCache[tuple[int, bool], _Kept] = bytescache.BytesCache(
            _FRAME_BYTES
        )

    def get(
        self, namespace: str, action: actions.Action, *, has_previous: bool
    ) -> jobframe.Frame | None:
        key = id(action), has_previous  # as long as an action is kept, nobody else has its id
        found = self._kept.get(namespace, key)
        if found is None:
            frame = _frame(action, has_previous)
            found = action, frame
            length = 0 if frame is None else len(frame.pattern)
            # The frame may keep its action alive longer than anybody else does.
            self._kept.put(namespace, key, found, length + actions.memory_bytes(action, length))
        return found[1]


_Kept = tuple[actions.Action, jobframe.Frame | None]


def _frame(action: actions.Action, has_previous: bool) -> jobframe.Frame | None:  # noqa: FBT001 - a key's part
    assert isinstance(action.target, actions.JobAction)  # noqa: S101 - ``takes_batches`` said so
    payload = bytes(action.payload).decode(errors="replace") or None
    template = action.target.template
    return jobframe.frame_of(template, payload=payload, has_previous=has_previous)


def _facts(batch: batches.FiringBatch, row: int) -> jobbuilder.SlotFacts:
    """Without the payload, which the frame has."""
    return jobbuilder.SlotFacts(
        namespace=batch.namespace,
        schedule_name=batch.names[row],
        schedule_uid=batch.uids[row],
        slot_us=batch.slots_us[row],
        previous_us=batch.previous_us[row],
        trigger=batch.trigger,
        payload=None,
        time_zone=batch.time_zones[row],
    )
