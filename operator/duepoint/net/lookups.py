"""Looking names up at the system's resolver, so that no namespace's names keep another's waiting.

``getaddrinfo`` holds a thread until it answers, and a name whose server is silent holds it for ten
seconds and more, even when its caller has gone. So a namespace gets no more than its share of
the threads (``duepoint.shares``; half of them while it is alone), has a bounded line before them,
and those who ask for the same name at the same time share one look-up. An answer is never kept: the
next connection is judged by an answer of its own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent import futures

from duepoint import shares

#: Names looked up at one time.
THREADS = 32
#: A namespace gets half of the threads while it is alone, a third each while there are two.
_GREED = 1
#: So many different names of a namespace may wait for a thread.
MOST_WAITING = 64
#: How long a caller waits for an answer, the wait for a thread included.
LOOKUP_SECONDS = 5.0

#: host, port -> what ``socket.getaddrinfo`` answers; called in a thread.
Ask = Callable[[str, int], Sequence[str]]


def ask_system(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, in the order of the system; raises socket.gaierror."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(info[4][0]) for info in found))


class Lookups:
    """One worker's; ``close`` it at the end."""

    def __init__(self, ask: Ask = ask_system, *, threads: int = THREADS) -> None:
        self._ask = ask
        self._pool = futures.ThreadPoolExecutor(threads, thread_name_prefix="lookup")
        self._places: shares.FairPlaces[str] = shares.FairPlaces(threads, greed=_GREED)
        self._under_way: dict[tuple[str, str, int], asyncio.Task[Sequence[str]]] = {}

    async def addresses(self, host: str, port: int, namespace: str) -> Sequence[str]:
        """The addresses of a name that a Schedule of this namespace calls.

        Raises:
            socket.gaierror: there are none; EAI_AGAIN also where nothing was answered in time, or
                too many other names of the namespace are being looked up.
        """
        key = namespace, host, port
        asked = self._under_way.get(key)
        if asked is None:
            if self._places.waiting(namespace) >= MOST_WAITING:
                raise _later(f"{MOST_WAITING} other names of namespace {namespace} are waiting")
            asked = self._under_way[key] = asyncio.create_task(self._asked(*key))
            # The error counts as seen: all callers may have gone.
            asked.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await asyncio.shield(asked)
        except TimeoutError:
            raise _later(f"no answer within {LOOKUP_SECONDS:g} s") from None

    def close(self) -> None:
        """Let go of the threads; those that hang end by themselves."""
        for asked in self._under_way.values():
            asked.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _asked(self, namespace: str, host: str, port: int) -> Sequence[str]:
        """Goes on for as long as the thread does, because so long it has none to give."""
        try:
            if not await self._places.wait(namespace, LOOKUP_SECONDS):
                raise _later(f"the other names of namespace {namespace} are not answered")
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._pool, self._ask, host, port)
            finally:
                self._places.leave(namespace)
        finally:
            del self._under_way[namespace, host, port]


def _later(why: str) -> socket.gaierror:
    return socket.gaierror(socket.EAI_AGAIN, f"the name could not be looked up: {why}")
