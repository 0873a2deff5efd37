"""The stream target: one slot, one entry in a Redis stream.

Owns the fields of an entry, which consumers store: fields may be added, never renamed. The queue
appends entries to our own Redis. On a single server it does so in the settlement of their points:
exactly once. On a cluster it appends before the settlement: at least once. After a lost reply it
appends the entry again with the same ``id``, by which consumers deduplicate. The same holds for
another Redis, to which this target sends entries itself (``external``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from duepoint import clock as clocks
from duepoint.delayqueue import messages
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome, target
from duepoint.targets.stream import external


class StreamTarget:
    """Composes entries, and appends those for another Redis."""

    def __init__(
        self,
        clock: clocks.Clock,
        external: external.ExternalStreams,
        *,
        has_own_streams: bool = True,
    ) -> None:
        self._has_own_streams = has_own_streams
        self._clock = clock
        self._external = external

    # -- our own Redis ---------------------------------------------------------------------------

    def appends(self, action: actions.Action) -> bool:
        """Whether the queue appends the entry to our own Redis."""
        return self._has_own_streams and actions.own_stream(action.target) is not None

    def entries(self, firings: target.Firings, members: Sequence[bytes]) -> messages.StreamEntries:
        """Return the entries for the queue; their common fields are sent once."""
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
        """Return the status message, which tells a reader where the entry is."""
        return f"added to stream {cast('actions.StreamAction', action.target).name}"

    # -- another Redis ---------------------------------------------------------------------------

    async def fire(self, firing: target.Firing) -> outcome.Outcome:
        """Append to the other Redis; delivered once it has the entry."""
        seconds = target.seconds_left(firing, self._clock)
        if seconds <= 0:
            return target.not_started()
        stream = cast("actions.StreamAction", firing.action.target)
        if stream.connection is None:  # the definition is older than the rule that forbids this
            return outcome.Rejected(
                reason=Reason.TARGET_UNAVAILABLE, message=actions.NO_OWN_STREAMS
            )
        fields = entry(firing, self._clock.now_us())
        command = external.xadd(stream.name, stream.max_length, fields)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._external.append(firing.namespace, stream.connection, command)
        except TimeoutError:
            return outcome.Retry(
                reason=Reason.NETWORK, message=f"no answer from the other Redis in {seconds:g} s"
            )
        if not isinstance(answer, str):
            return answer
        message = f"entry {answer} in stream {stream.name}"
        return outcome.Delivered(accepted_us=self._clock.now_us(), message=message)

    async def check(self, firing: target.Firing) -> target.Trouble | None:
        """Return the trouble with the Secret of another Redis; connects to no server."""
        stream = cast("actions.StreamAction", firing.action.target)
        if stream.connection is None:
            return None
        return await self._external.check(firing.namespace, stream.connection)

    async def close(self) -> None:
        """Close the connections to other servers."""
        await self._external.close()


#: The fields of an entry, in order: those of each slot, and those that a burst has in common.
OWN_FIELDS = ("id", "schedule_id", "slot", "scheduled_time", "version")
COMMON_FIELDS = ("generated_at", "payload", "attempt", "trigger")
#: Each entry of a set's members may have a payload of its own.
_PAYLOAD = COMMON_FIELDS[1]


def entry(firing: target.Firing, now_us: int) -> dict[str, bytes | str]:
    """Return the fields of the slot's entry; without a payload that field is empty."""
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
    """Return the values of ``OWN_FIELDS`` for each row, and the payload if rows have their own."""
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
            else f"{uid}-{seconds}"  # the same as ``event_id``, at a third of the cost
        )
        rows.append((id_, uid, seconds, instant, version_of[generation]))
    if firings.payloads:
        usual = bytes(firings.action.payload)
        return [
            (*row, payload or usual) for row, payload in zip(rows, firings.payloads, strict=True)
        ]
    return rows


def _common(firings: target.Firings, now_us: int) -> tuple[bytes | str, ...]:
    """Return ``COMMON_FIELDS`` as names and values in turn, and the set's name for members."""
    generated_at, payload, attempt, trigger = COMMON_FIELDS
    return (
        *(generated_at, target.instant_text(now_us)),
        *(() if firings.payloads else (payload, bytes(firings.action.payload))),
        *(attempt, str(firings.attempt)),
        *(trigger, firings.trigger),
        *_of_set(firings),
    )
