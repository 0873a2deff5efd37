"""Calls made in the same turn of the event loop, sent in one round trip.

Who fills an index calls one script for each schedule, a worker one for each shard with something
due, from many tasks at a time; a round trip costs the client far more than the script costs the
server. The first caller of a turn lets the others add theirs, sends all and hands out the replies;
nothing runs in the background, and a call that is alone goes out as it would have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from duepoint import errors

#: Calls of one round trip, at most; each takes the server some 0.05 ms.
_MOST = 64

CallT = TypeVar("CallT")


class Gathering(Generic[CallT]):
    """Hands calls to ``send``, together where they meet.

    ``send`` gives the replies in order; an error of ours may stand in the place of a reply.
    """

    def __init__(self, send: Callable[[list[CallT]], Awaitable[list[Any]]]) -> None:
        self._send = send
        self._waiting: list[tuple[CallT, asyncio.Future[Any]]] = []

    async def run(self, call: CallT) -> Any:  # noqa: ANN401 - a raw reply
        """The reply to one call; raises the translation of its error."""
        reply = await self.reply(call)
        if isinstance(reply, errors.DuepointError):
            raise reply
        return reply

    async def reply(self, call: CallT) -> Any:  # noqa: ANN401 - a raw reply
        """The reply to one call, or in its place the translation of its error."""
        (answer,) = await self.replies([call])
        return answer

    async def replies(self, calls: Sequence[CallT]) -> list[Any]:
        """As ``reply`` of each of some calls, which go out together."""
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Any]] = [loop.create_future() for _ in calls]
        is_first = not self._waiting
        self._waiting += zip(calls, answers, strict=True)
        if is_first and calls:
            await self._send_all()
        return [await answer for answer in answers]

    async def _send_all(self) -> None:
        batch = self._waiting
        try:
            await asyncio.sleep(0)
            self._waiting = []
            for first in range(0, len(batch), _MOST):
                part = batch[first : first + _MOST]
                replies = await self._send([call for call, _ in part])
                for (_, answer), reply in zip(part, replies, strict=True):
                    _give(answer, reply)
        except errors.DuepointError as trouble:
            for _, answer in batch:
                _give(answer, trouble)
        finally:
            if self._waiting is batch:
                self._waiting = []
            # The sender was cancelled: the others do not know what became of theirs.
            for _, answer in batch:
                _give(answer, errors.QueueUnavailable("the call was cut off with another"))


def _give(answer: asyncio.Future[Any], reply: object) -> None:
    if not answer.done():
        answer.set_result(reply)
