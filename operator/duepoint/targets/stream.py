"""The stream target: one slot, one entry in a Redis stream.

Owns the fields of an entry, which consumers store: fields may be added, never renamed. The key
and the XADD belong to the queue, which offers narrow functions for them. Where one server holds
queue and streams, the settlement of the point appends its entry: exactly once. On a cluster the
entry comes first, at least once: after a lost reply it is appended again with the same ``id``, by
which a consumer tells. So it is in another Redis (``externalstream``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from duepoint import clock as clocks
from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.wire import scripting
from duepoint.runs import outcome
from duepoint.schedules import actions, ownstreams
from duepoint.schedules.conditions import Reason
from duepoint.targets import answers, batches, externalstream, identity, target

_SECOND_US = 1_000_000


class Streams(Protocol):
    """The part of the queue that appends to users' streams."""

    @property
    def settles_entries(self) -> bool: ...

    async def append_stream(
        self, namespace: str, name: str, fields: Mapping[str, bytes | str], max_length: int
    ) -> str: ...

    async def append_many(
        self,
        namespace: str,
        name: str,
        fields: Sequence[str],
        entries: Sequence[Sequence[bytes | str]],
        max_length: int,
    ) -> list[str | None]: ...


class StreamTarget:
    """Appends to streams."""

    def __init__(
        self,
        streams: Streams,
        clock: clocks.Clock,
        elsewhere: externalstream.ExternalStreams | None = None,
        own: ownstreams.OwnStreams = ownstreams.USUAL,
    ) -> None:
        self._streams = streams
        self._own = own
        self._clock = clock
        self._elsewhere = elsewhere

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Delivered once Redis has the entry."""
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        stream = _action(firing.action)
        if stream.connection is not None:
            return await self._append_elsewhere(firing, stream, stream.connection, seconds)
        try:
            async with asyncio.timeout(seconds):
                return await self._append(firing, stream)
        except scripting.WrongType as error:
            return outcome.Rejected(reason=Reason.WRONG_TYPE, message=str(error))
        except errors.QueueUnavailable as error:
            return _retry(str(error), error.retry_after_seconds)
        except TimeoutError:
            return _retry(f"no answer from Redis in {seconds:g} s", None)

    def settles(self, action: actions.Action) -> bool:
        """Entry and settlement go in with one script, where one server has both."""
        return self._may_append(action) and self._streams.settles_entries

    def entry_of(self, firing: target.Firing) -> batches.Entry:
        """What the settlement appends."""
        stream = _action(firing.action)
        fields = entry(firing, self._clock.now_us())
        return batches.Entry(
            namespace=firing.namespace,
            name=stream.name,
            max_length=self._own.length(stream.max_length),
            names=FIELDS,
            values=tuple(fields.values()),
            message=self.message_of(firing.action),
        )

    def entries_of(self, batch: batches.FiringBatch, members: Sequence[bytes]) -> messages.Entries:
        """What the settlement of many appends: what they have in common is sent once."""
        stream = _action(batch.action)
        return messages.Entries(
            namespace=batch.namespace,
            name=stream.name,
            max_length=self._own.length(stream.max_length),
            names=OWN_FIELDS,
            members=members,
            values=_own_values(batch),
            same=_common(batch, self._clock.now_us()),
        )

    def message_of(self, action: actions.Action) -> str:
        """How a reader of the Schedule finds the entry."""
        return f"added to stream {_action(action).name}"

    def count(self, action: actions.Action, answer: outcome.Outcome, times: int = 1) -> None:
        """Whoever asked counts."""

    async def check(self, firing: target.Firing) -> answers.Trouble | None:
        """Whether the Secret that leads to another Redis is there and holds a connection."""
        stream = _action(firing.action)
        if stream.connection is None:
            return None
        return await self._other().check(firing.namespace, stream.connection)

    async def close(self) -> None:
        """Close the connections to other servers."""
        if self._elsewhere is not None:
            await self._elsewhere.close()

    def takes_batches(self, action: actions.Action) -> bool:
        """Entries of one stream of our own go in together."""
        return self._may_append(action)

    def _may_append(self, action: actions.Action) -> bool:
        return self._own.enabled and ownstreams.own(action.target) is not None

    async def fire_batch(self, batch: batches.FiringBatch) -> batches.BatchAnswer:
        """One entry a row, in few scripts; nothing is sent once the claim has run out."""
        stream = _action(batch.action)
        none: list[str | None] = [None] * len(batch.names)
        left = min(batch.not_after_monotonic - self._clock.monotonic(), target.STREAM_LIMIT_SECONDS)
        if left <= 0:
            return batches.BatchAnswer(accepted_us=0, messages=none)
        common = _common(batch, self._clock.now_us())[1::2]
        entries = [(*own, *common) for own in _own_values(batch)]
        most = self._own.length(stream.max_length)
        try:
            async with asyncio.timeout(left):
                ids = await self._streams.append_many(
                    batch.namespace, stream.name, FIELDS, entries, most
                )
        except (errors.QueueUnavailable, TimeoutError):
            return batches.BatchAnswer(accepted_us=0, messages=none)
        told = [None if id_ is None else f"entry {id_}" for id_ in ids]
        return batches.BatchAnswer(accepted_us=self._clock.now_us(), messages=told)

    async def _append_elsewhere(
        self,
        firing: target.Firing,
        stream: actions.StreamAction,
        connection: str,
        seconds: float,
    ) -> outcome.Outcome:
        fields = entry(firing, self._clock.now_us())
        wanted = externalstream.Append(
            key=stream.name,
            max_length=stream.max_length,
            fields=tuple(part for pair in fields.items() for part in pair),
        )
        try:
            async with asyncio.timeout(seconds):
                answer = await self._other().append(firing.namespace, connection, wanted)
        except TimeoutError:
            return outcome.Retry(
                reason=Reason.TIMEOUT, message=f"no answer from the other Redis in {seconds:g} s"
            )
        if not isinstance(answer, str):
            return answer
        message = f"entry {answer} in stream {stream.name}"
        return outcome.Delivered(accepted_us=self._clock.now_us(), message=message)

    def _other(self) -> externalstream.ExternalStreams:
        if self._elsewhere is None:
            raise errors.Bug("this worker was not told how to reach another Redis")
        return self._elsewhere

    async def _append(self, firing: target.Firing, stream: actions.StreamAction) -> outcome.Outcome:
        if not self._own.enabled:  # the definition is older than that rule
            return outcome.Rejected(reason=Reason.OWN_STREAMS_OFF, message=ownstreams.OFF)
        now_us = self._clock.now_us()
        most = self._own.length(stream.max_length)
        entry_id = await self._streams.append_stream(
            firing.namespace, stream.name, entry(firing, now_us), most
        )
        return outcome.Delivered(accepted_us=self._clock.now_us(), message=f"entry {entry_id}")


def entry(firing: target.Firing, now_us: int) -> dict[str, bytes | str]:
    """The fields of the slot's entry, as ``FIELDS`` has them; no payload is an empty text."""
    return {
        "id": identity.event_id(firing.uid, firing.slot_us, firing.run_uid),
        "schedule_id": firing.uid,
        "slot": identity.seconds_text(firing.slot_us),
        "scheduled_time": identity.instant_text(firing.slot_us),
        "version": str(firing.generation),
        "generated_at": identity.instant_text(now_us),
        "payload": identity.raw_body(firing),
        "attempt": str(firing.attempt),
        "trigger": firing.trigger,
    }


#: The fields of an entry, in its order: those of each slot, and those that a burst has in common.
OWN_FIELDS = ("id", "schedule_id", "slot", "scheduled_time", "version")
COMMON_FIELDS = ("generated_at", "payload", "attempt", "trigger")
FIELDS = (*OWN_FIELDS, *COMMON_FIELDS)


def _own_values(batch: batches.FiringBatch) -> list[tuple[bytes | str, ...]]:
    """The values of ``OWN_FIELDS``, row by row; the same as ``entry`` says of each firing."""
    text_of = {
        slot: (identity.seconds_text(slot), identity.instant_text(slot))
        for slot in set(batch.slots_us)
    }
    version_of = {generation: str(generation) for generation in set(batch.generations)}
    rows: list[tuple[bytes | str, ...]] = []
    columns = zip(batch.uids, batch.generations, batch.slots_us, strict=True)
    for uid, generation, slot_us in columns:
        seconds, instant = text_of[slot_us]
        rows.append((f"{uid}-{seconds}", uid, seconds, instant, version_of[generation]))
    return rows


def _common(batch: batches.FiringBatch, now_us: int) -> tuple[bytes | str, ...]:
    """``COMMON_FIELDS`` with their values, name after name."""
    generated_at, payload, attempt, trigger = COMMON_FIELDS
    return (
        *(generated_at, identity.instant_text(now_us)),
        *(payload, bytes(batch.action.payload)),
        *(attempt, "1"),
        *(trigger, batch.trigger),
    )


def _action(action: actions.Action) -> actions.StreamAction:
    if not isinstance(action.target, actions.StreamAction):
        raise errors.Bug(f"a {type(action.target).__name__} was handed to the stream target")
    return action.target


def _retry(message: str, after_seconds: float | None) -> outcome.Retry:
    return outcome.Retry(
        reason=Reason.QUEUE_UNAVAILABLE,
        message=message,
        after_us=None if after_seconds is None else int(after_seconds * _SECOND_US),
    )
