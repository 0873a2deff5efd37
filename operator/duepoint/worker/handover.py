"""Deliveries that are made by the settlement itself: entries of streams in the queue's own Redis.

The entry, the end of its point and the news of it go in with one script or not at all, so neither a
lost reply nor a death in between makes two entries of one slot. What the attempts of one claim ask
for in the same turn of the event loop goes together, stream by stream. The settler keeps the order
of settlements; this decides what each attempt is told.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duepoint.delayqueue import messages
from duepoint.delayqueue.streams import appending
from duepoint.delayqueue.wire import scripting
from duepoint.runs import outcome as outcomes
from duepoint.schedules.conditions import Reason
from duepoint.targets import batches
from duepoint.worker import settler as settlers


class NotHeld(enum.Enum):
    """The point was taken out of the queue before its entry was appended."""

    NOT_HELD = enum.auto()


#: What came of one: None where the claim is lost, and another worker may have its point.
Answer = outcomes.Delivered | outcomes.Retry | outcomes.Rejected | NotHeld | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    member: bytes
    entry: batches.Entry
    closed: settlers.Closing
    delivered: outcomes.Delivered
    answer: asyncio.Future[Answer]


class Handover:
    """Of one claim."""

    def __init__(self, settler: settlers.Settler) -> None:
        self.settler = settler
        self._waiting: list[_Waiting] = []

    async def deliver(
        self,
        member: bytes,
        entry: batches.Entry,
        closed: settlers.Closing,
        delivered: outcomes.Delivered,
    ) -> Answer:
        """What came of an entry; delivered, its closing is settled and the member not held.

        Args:
            closed: what the attempt ends with if it is delivered, as ``delivered`` says.
        """
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(
            _Waiting(member=member, entry=entry, closed=closed, delivered=delivered, answer=answer)
        )
        if len(self._waiting) == 1:
            await self._send_all()
        return await answer

    async def _send_all(self) -> None:
        await asyncio.sleep(0)
        batch, self._waiting = self._waiting, []
        try:
            for part in _parts(batch):
                await self._send(part)
        finally:
            for one in batch:  # cut off: what is in is in, the rest is given back with the claim
                _tell(one, None)

    async def _send(self, part: Sequence[_Waiting]) -> None:
        """One stream's, until they are in or nobody's any more."""
        while part:
            try:
                handed = await self.settler.hand_over(
                    [_entries(part)], [one.closed for one in part]
                )
            except scripting.WrongType as error:
                refusal: Answer = outcomes.Rejected(reason=Reason.WRONG_TYPE, message=str(error))
                handed = None
            except scripting.Refused as error:
                refusal = outcomes.Retry(reason=Reason.QUEUE_UNAVAILABLE, message=str(error))
                handed = None
            else:
                refusal = None
            if handed is None or handed.done:
                for one in part:
                    _tell(one, refusal if handed is None else one.delivered)
                return
            for one, held in zip(part, handed.held, strict=True):
                if not held:
                    _tell(one, None if handed.lost else NotHeld.NOT_HELD)
            part = [one for one, held in zip(part, handed.held, strict=True) if held]


def _tell(one: _Waiting, answer: Answer) -> None:
    if not one.answer.done():
        one.answer.set_result(answer)


def _parts(batch: Iterable[_Waiting]) -> list[Sequence[_Waiting]]:
    """By stream, in runs for one script each."""
    by_stream: dict[tuple[str, str, int], list[_Waiting]] = {}
    for one in batch:
        by_stream.setdefault(one.entry.stream, []).append(one)
    parts: list[Sequence[_Waiting]] = []
    for listed in by_stream.values():
        first = 0
        for values in appending.parts([one.entry.values for one in listed]):
            parts.append(listed[first : first + len(values)])
            first += len(values)
    return parts


def _entries(part: Sequence[_Waiting]) -> messages.Entries:
    entry = part[0].entry
    return messages.Entries(
        namespace=entry.namespace,
        name=entry.name,
        max_length=entry.max_length,
        names=entry.names,
        members=[one.member for one in part],
        values=[one.entry.values for one in part],
    )
