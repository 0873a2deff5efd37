"""Look-ups of names with the system's resolver, shared fairly among namespaces."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent import futures

from duepoint import shares

#: Names looked up at one time.
THREADS = 32
#: A single namespace gets half of the threads, two get a third each (``shares``).
_GREED = 1
#: Most names of one namespace that may wait for a thread.
MOST_WAITING = 64
#: How long a caller waits for an answer, the wait for a thread included.
LOOKUP_SECONDS = 5.0

#: host, port -> the addresses from ``socket.getaddrinfo``; called in a thread.
Ask = Callable[[str, int], Sequence[str]]


def ask_system(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name in the system's order; raises socket.gaierror."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(info[4][0]) for info in found))


class Lookups:
    """Looks names up in threads; each worker has one and closes it at the end.

    ``getaddrinfo`` occupies a thread until it answers. If a name server is silent, that takes ten
    seconds and more, even after the caller has gone. So a namespace gets only its share of the
    threads (``duepoint.shares``; half of them while it is alone) and a bounded queue for them, and
    concurrent look-ups of the same name share one call. Answers are never cached: each new
    connection is judged by its own answer.
    """

    def __init__(self, ask: Ask = ask_system, *, threads: int = THREADS) -> None:
        self._ask = ask
        self._pool = futures.ThreadPoolExecutor(threads, thread_name_prefix="lookup")
        self._places: shares.FairPlaces[str] = shares.FairPlaces(threads, greed=_GREED)
        self._under_way: dict[tuple[str, str, int], asyncio.Task[Sequence[str]]] = {}

    async def addresses(self, host: str, port: int, namespace: str) -> Sequence[str]:
        """Return the addresses of a name that a Schedule of this namespace calls.

        Raises:
            socket.gaierror: there are none. EAI_AGAIN also if no answer came in time, or if too
                many other names of the namespace are being looked up.
        """
        key = namespace, host, port
        asked = self._under_way.get(key)
        if asked is None:
            if self._places.waiting(namespace) >= MOST_WAITING:
                raise _later(f"{MOST_WAITING} other names of namespace {namespace} are waiting")
            asked = self._under_way[key] = asyncio.create_task(self._resolve_in_turn(*key))
            # Retrieve the error: all callers may have gone, and asyncio would log it.
            asked.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await asyncio.shield(asked)
        except TimeoutError:
            raise _later(f"no answer within {LOOKUP_SECONDS:g} s") from None

    def close(self) -> None:
        """Release the threads; those that hang end by themselves."""
        for asked in self._under_way.values():
            asked.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _resolve_in_turn(self, namespace: str, host: str, port: int) -> Sequence[str]:
        """Look a name up; keep its place until the thread is free, even if no caller waits."""
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
