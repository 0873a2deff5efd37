"""Answers that are remembered for a while, and renewed before they are too old.

Equal questions at a time are one. An answer that says yes may be renewed while it still holds:
requests go on with it and do not wait for a server that is slow. Where that server cannot be asked,
a yes stands for some seconds more; a no, once it comes, ends it at once.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from duepoint import shares
from duepoint.httpapi.problems import OperationProblem

#: Questions under way, of which each asker has a share; more are refused at once.
_MOST_WAITING = 1_000
#: Of what is remembered, so much may say no.
_REFUSED_PART = 10
#: How long a request waits for the renewal of a yes that is too old, and from one attempt to the
#: next where the server cannot be asked.
_PATIENCE_SECONDS = 1.0

KeyT = TypeVar("KeyT", bound=Hashable)
FoundT = TypeVar("FoundT")


class Times(NamedTuple):
    """For how many seconds an answer is kept.

    Attributes:
        granted: one that says yes.
        refused: one that says no.
        renewed: from this age on a yes is renewed while it is used; None = never.
        stands: a yes while its renewal fails or is slow.
    """

    granted: float
    refused: float
    renewed: float | None = None
    stands: float = 0.0


class _Answer(Generic[FoundT]):
    """What was found, and its instants on the loop's clock."""

    __slots__ = ("found", "renewed_from", "stands_until", "until")

    def __init__(self, found: FoundT, now: float, times: Times) -> None:
        self.found = found
        self.until = now + (times.granted if found else times.refused)
        renewed = times.granted if times.renewed is None else times.renewed
        self.renewed_from = now + renewed if found else self.until
        self.stands_until = now + times.stands if found else self.until


class _Question(Generic[FoundT]):
    """One that is under way."""

    __slots__ = ("began", "task")

    def __init__(self, task: asyncio.Task[FoundT], began: float) -> None:
        self.task = task
        self.began = began


class Remembered(Generic[KeyT, FoundT]):
    """Remembers answers, the oldest forgotten first, and of those that say no a tenth as many."""

    def __init__(self, most: int, times: Times) -> None:
        self._most = most
        self._times = times
        self._known: collections.OrderedDict[KeyT, _Answer[FoundT]] = collections.OrderedDict()
        #: The keys of those that say no: whoever asks for made-up things pushes out no other.
        self._refused: collections.OrderedDict[KeyT, None] = collections.OrderedDict()
        self._asked: dict[KeyT, _Question[FoundT]] = {}
        self._shares: shares.Shares[str] = shares.Shares(_MOST_WAITING)

    def known(self, key: KeyT) -> tuple[float, FoundT] | None:
        """The answer and until when it holds; None where there is none, or it is to be renewed."""
        answer = self._known.get(key)
        if answer is None or answer.renewed_from <= asyncio.get_running_loop().time():
            return None
        return answer.renewed_from, answer.found

    def stands(self, key: KeyT) -> bool:
        """Whether a yes is known that may be renewed."""
        answer = self._known.get(key)
        now = asyncio.get_running_loop().time()
        return answer is not None and bool(answer.found) and now < answer.stands_until

    async def find(
        self, key: KeyT, ask: Callable[[], Awaitable[FoundT]], asker: str = ""
    ) -> FoundT:
        """The answer, known or asked for; what ``ask`` raises is not remembered.

        Raises Problem Overloaded where too many questions are under way, for this asker.
        """
        now = asyncio.get_running_loop().time()
        answer = self._known.get(key)
        if answer is not None and now < answer.renewed_from:
            return answer.found
        if answer is None or now >= max(answer.until, answer.stands_until):
            return await asyncio.shield(self._question(key, ask, asker).task)
        try:
            question = self._question(key, ask, asker)
        except OperationProblem:
            return answer.found
        if now < answer.until:
            return answer.found
        return await self._renewed(question, answer, now)

    @staticmethod
    async def _renewed(question: _Question[FoundT], answer: _Answer[FoundT], now: float) -> FoundT:
        """The new answer; the old one, which is a yes, where the new one cannot be had soon."""
        patience = max(0.0, question.began + _PATIENCE_SECONDS - now)
        done, _ = await asyncio.wait({question.task}, timeout=patience)
        if not done or question.task.cancelled():
            return answer.found
        trouble = question.task.exception()
        if isinstance(trouble, OperationProblem):
            return answer.found
        return question.task.result()

    def _question(
        self, key: KeyT, ask: Callable[[], Awaitable[FoundT]], asker: str
    ) -> _Question[FoundT]:
        question = self._asked.get(key)
        if question is None:
            if not self._shares.has_room(asker):
                message = "too many tokens or rights to check"
                raise OperationProblem("Overloaded", message, retry_after_seconds=1)
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._ask(key, ask))
            self._shares.take(asker)
            task.add_done_callback(self._ended(key, asker))
            question = self._asked[key] = _Question(task, loop.time())
        return question

    def _ended(self, key: KeyT, asker: str) -> Callable[[asyncio.Task[FoundT]], None]:
        def ended(task: asyncio.Task[FoundT]) -> None:
            del self._asked[key]
            self._shares.give_back(asker)
            if not task.cancelled():
                task.exception()  # no request may be waiting

        return ended

    async def _ask(self, key: KeyT, ask: Callable[[], Awaitable[FoundT]]) -> FoundT:
        loop = asyncio.get_running_loop()
        try:
            found = await ask()
        except OperationProblem:
            if (known := self._known.get(key)) is not None:
                known.renewed_from = min(loop.time() + _PATIENCE_SECONDS, known.stands_until)
            raise
        self._remember(key, _Answer(found, loop.time(), self._times))
        return found

    def _remember(self, key: KeyT, answer: _Answer[FoundT]) -> None:
        self._known[key] = answer
        self._known.move_to_end(key)
        self._refused.pop(key, None)
        if not answer.found:
            self._refused[key] = None
            if len(self._refused) > max(1, self._most // _REFUSED_PART):
                del self._known[self._refused.popitem(last=False)[0]]
        if len(self._known) > self._most:
            self._refused.pop(self._known.popitem(last=False)[0], None)
