"""The stream target: one slot, one entry in a Redis stream.

Owns the fields of an entry, which consumers store: fields may be added, never renamed. Entries in
our own Redis are appended by the queue: with the settlement of their points where one server holds
both, exactly once; before it on a cluster, at least once: after a lost reply an entry is appended
again with the same ``id``, by which a consumer recognises it. So it is in another Redis, to which
this target sends them itself (``external``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from duepoint import clock as clocks
from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from duepoint.targets.stream import external


class StreamTarget:
    """Says what entries are, and appends those that go into another Redis."""

    def __init__(
        self,
        clock: clocks.Clock,
        external: external.ExternalStreams | None = None,
        *,
        has_own_streams: bool = True,
    ) -> None:
        self._has_own_streams = has_own_streams
        self._clock = clock
        self._external = external

    # -- our own Redis ---------------------------------------------------------------------------

    def appends(self, action: actions.Action) -> bool:
        """Whether the entry goes into our own Redis, and may."""
        return self._has_own_streams and actions.own_stream(action.target) is not None

    def entries(self, firings: target.Firings, members: Sequence[bytes]) -> messages.StreamEntries:
        """What the queue appends: what the entries have in common is sent once."""
        stream = cast("actions.StreamAction", firings.action.target)
        return messages.StreamEntries(
            namespace=firings.namespace,
            name=stream.name,
            max_length=stream.max_length or actions.OWN_STREAM_LENGTH,
            names=(*OWN_FIELDS, _PAYLOAD) if firings.payloads else OWN_FIELDS,
            members=members,
            values=_own_values(firings),
            same=_common(firings, self._clock.now_us()),
        )

    def message(self, action: actions.Action) -> str:
        """How a reader of the Schedule finds the entry."""
        return f"added to stream {cast('actions.StreamAction', action.target).name}"

    # -- another Redis ---------------------------------------------------------------------------

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Delivered once the other Redis has the entry."""
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        stream = cast("actions.StreamAction", firing.action.target)
        if stream.connection is None:  # the definition is older than that rule
            return outcome.Rejected(
                reason=Reason.TARGET_UNAVAILABLE, message=actions.NO_OWN_STREAMS
            )
        fields = entry(firing, self._clock.now_us())
        command = external.xadd(stream.name, stream.max_length, fields)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._other().append(firing.namespace, stream.connection, command)
        except TimeoutError:
            return outcome.Retry(
                reason=Reason.NETWORK, message=f"no answer from the other Redis in {seconds:g} s"
            )
        if not isinstance(answer, str):
            return answer
        message = f"entry {answer} in stream {stream.name}"
        return outcome.Delivered(accepted_us=self._clock.now_us(), message=message)

    async def check(self, firing: target.Firing) -> target.Trouble | None:
        """Whether the Secret that leads to another Redis is there and holds a connection."""
        stream = cast("actions.StreamAction", firing.action.target)
        if stream.connection is None:
            return None
        return await self._other().check(firing.namespace, stream.connection)

    async def close(self) -> None:
        """Close the connections to other servers."""
        if self._external is not None:
            await self._external.close()

    def _other(self) -> external.ExternalStreams:
        if self._external is None:
            raise errors.Bug("this worker has no way to another Redis")
        return self._external


#: The fields of an entry, in its order: those of each slot, and those that a burst has in common.
OWN_FIELDS = ("id", "schedule_id", "slot", "scheduled_time", "version")
COMMON_FIELDS = ("generated_at", "payload", "attempt", "trigger")
#: Of members it may be another one in each entry.
_PAYLOAD = COMMON_FIELDS[1]


def entry(firing: target.Firing, now_us: int) -> dict[str, bytes | str]:
    """The fields of the slot's entry; no payload is an empty text."""
    one = target.Firings.of(firing)
    common = _common(one, now_us)
    (own,) = _own_values(one)
    fields = dict(zip(OWN_FIELDS, own, strict=True))
    fields |= {str(name): value for name, value in zip(common[::2], common[1::2], strict=True)}
    if firing.traceparent:
        fields["traceparent"] = firing.traceparent
    return fields


def _of_set(firings: target.Firings) -> tuple[str, ...]:
    return () if firings.owner is None else ("set", firings.owner.name)


def _own_values(firings: target.Firings) -> list[tuple[bytes | str, ...]]:
    """The values of ``OWN_FIELDS``, row by row, and the payload where it is a row's own."""
    text_of = {
        slot: (target.seconds_text(slot), target.instant_text(slot))
        for slot in set(firings.slots_us)
    }
    version_of = {generation: str(generation) for generation in set(firings.generations)}
    rows: list[tuple[bytes | str, ...]] = []
    columns = zip(firings.schedule_ids, firings.generations, firings.slots_us, strict=True)
    for uid, generation, slot_us in columns:
        seconds, instant = text_of[slot_us]
        id_ = (
            target.event_id(uid, slot_us, firings.run_uid)
            if firings.run_uid
            else f"{uid}-{seconds}"  # the same, at a third of the cost
        )
        rows.append((id_, uid, seconds, instant, version_of[generation]))
    if firings.payloads:
        usual = bytes(firings.action.payload)
        return [
            (*row, payload or usual) for row, payload in zip(rows, firings.payloads, strict=True)
        ]
    return rows


def _common(firings: target.Firings, now_us: int) -> tuple[bytes | str, ...]:
    """``COMMON_FIELDS`` with their values, name after name; of members the name of their set."""
    generated_at, payload, attempt, trigger = COMMON_FIELDS
    return (
        *(generated_at, target.instant_text(now_us)),
        *(() if firings.payloads else (payload, bytes(firings.action.payload))),
        *(attempt, str(firings.attempt)),
        *(trigger, firings.trigger),
        *_of_set(firings),
    )
