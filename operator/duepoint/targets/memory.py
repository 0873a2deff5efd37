"""What an API server said of named objects, for as long as it may be believed.

Objects are read when something is sent, and a delivery a second must not be a request a second to
the API server: an answer is believed for a while (``Life``). While the API server does not answer,
what was read last serves longer. What is missing or forbidden is asked for again after two seconds,
so that it heals as soon as it appears. Callers that ask for the same at one time share one request.
Nothing of it leaves this memory, which is bounded by bytes with a share for each namespace
(``shares.BytesCache``), so that no namespace can push out another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from duepoint import clock as clocks
from duepoint import shares
from duepoint.kube import errors

FRESH_SECONDS = 60.0
STALE_SECONDS = 3600.0
#: After an answer that something is missing or forbidden, and while the API server is away.
ASK_AGAIN_SECONDS = 2.0
#: How long the API server may take, and is then left alone while an old answer serves.
LOOK_SECONDS = 5.0
#: How long callers wait for a newer answer where an old one serves.
PATIENCE_SECONDS = 0.5

#: Of all that is kept, and of one entry beside its value.
MOST_BYTES = 64 << 20
_ENTRY_BYTES = 2048

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Life(Generic[V]):
    """A value with how long it is fresh and, without a newer answer, how long it may be used."""

    value: V = field(repr=False)
    fresh_seconds: float = FRESH_SECONDS
    usable_seconds: float = STALE_SECONDS
    size: int


@dataclass(slots=True)
class _Entry(Generic[V]):
    """The last answer for one key, and the request for a newer one.

    Attributes:
        is_suspect: the last answer did not work.
    """

    life: Life[V] | None = None
    refusal: errors.ApiError | None = None
    read_at: float = 0.0
    ask_at: float = float("-inf")
    is_suspect: bool = False
    reading: asyncio.Task[Life[V] | errors.ApiError] | None = None

    def instead_of(self, answer: Life[V] | errors.ApiError, now: float) -> Life[V] | None:
        """The last answer where it serves in place of this one: the API server was away."""
        is_away = isinstance(answer, errors.Unavailable)
        return self.life if is_away and self.is_usable(now) else None

    def is_usable(self, now: float) -> bool:
        """Whether the last answer serves where there is no newer one."""
        return self.life is not None and now - self.read_at < self.life.usable_seconds


class Memory(Generic[K, V]):
    """Asks, and remembers by namespace and key."""

    def __init__(self, look: Callable[[str, K], Awaitable[Life[V]]], clock: clocks.Clock) -> None:
        self._look = look
        self._clock = clock
        self._entries: shares.BytesCache[K, _Entry[V]] = shares.BytesCache(MOST_BYTES)
        #: Until then callers wait for no newer answer where an old one serves.
        self._slow_until = float("-inf")
        self._readings: set[asyncio.Task[Life[V] | errors.ApiError]] = set()

    async def get(self, namespace: str, key: K) -> V:
        """The value; raises ``kube.errors.ApiError`` where there is none to be had."""
        entry = self._entries.get(namespace, key)
        if entry is None:
            entry = _Entry()
            self._entries.put(namespace, key, entry, _ENTRY_BYTES)
        if (found := self._fresh(entry)) is not None:
            return found.value
        old, patience = self._meanwhile(entry)
        reading = self._read_on(entry, namespace, key)
        await asyncio.wait({reading}, timeout=patience)
        if old is not None and not reading.done():
            self._slow_until = self._clock.monotonic() + LOOK_SECONDS
            return old.value
        answer = reading.result()
        if isinstance(answer, errors.ApiError):
            raise answer.with_traceback(None)
        return answer.value

    def forget(self, namespace: str, which: Callable[[K], bool] = lambda _: True) -> None:
        """Ask anew for these keys; their last answers serve only if that gets no answer."""
        for key, entry in self._entries.items(namespace):
            if which(key):
                entry.ask_at = min(entry.ask_at, self._clock.monotonic())
                entry.is_suspect = True
                entry.reading = None

    def _fresh(self, entry: _Entry[V]) -> Life[V] | None:
        if self._clock.monotonic() >= entry.ask_at:
            return None
        if entry.refusal is not None:
            raise entry.refusal.with_traceback(None)
        return entry.life

    def _meanwhile(self, entry: _Entry[V]) -> tuple[Life[V] | None, float | None]:
        """What serves while a request is under way, and after how long; None = nothing does."""
        now = self._clock.monotonic()
        if entry.is_suspect or not entry.is_usable(now):
            return None, None
        return entry.life, 0.0 if now < self._slow_until else PATIENCE_SECONDS

    def _read_on(
        self, entry: _Entry[V], namespace: str, key: K
    ) -> asyncio.Task[Life[V] | errors.ApiError]:
        """The request that is under way, or a new one."""
        if entry.reading is None or entry.reading.done():
            entry.reading = asyncio.create_task(self._read(entry, namespace, key))
            self._readings.add(entry.reading)
            entry.reading.add_done_callback(self._readings.discard)
        return entry.reading

    async def _read(self, entry: _Entry[V], namespace: str, key: K) -> Life[V] | errors.ApiError:
        answer: Life[V] | errors.ApiError
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                answer = await self._look(namespace, key)
        except TimeoutError:
            answer = errors.Unavailable(f"the API server did not answer in {LOOK_SECONDS:g} s")
        except errors.ApiError as error:
            answer = error
        if entry.reading is not asyncio.current_task():
            # The key was forgotten since: this answer may be the one that failed.
            return entry.instead_of(answer, self._clock.monotonic()) or answer
        answer = self._remember(entry, answer)
        if self._entries.get(namespace, key) is entry:  # else it was let go meanwhile
            size = 0 if entry.life is None else entry.life.size
            self._entries.put(namespace, key, entry, _ENTRY_BYTES + size)
        return answer

    def _remember(
        self, entry: _Entry[V], answer: Life[V] | errors.ApiError
    ) -> Life[V] | errors.ApiError:
        """What the callers get: the answer, or the last one while the API server is away."""
        now = self._clock.monotonic()
        if (life := entry.instead_of(answer, now)) is not None:
            entry.ask_at = min(now + LOOK_SECONDS, entry.read_at + life.usable_seconds)
            return life
        entry.is_suspect = False
        if isinstance(answer, errors.ApiError):
            entry.life, entry.refusal = None, answer
            entry.ask_at = now + ASK_AGAIN_SECONDS
        else:
            entry.life, entry.refusal = answer, None
            entry.read_at, entry.ask_at = now, now + answer.fresh_seconds
            self._slow_until = float("-inf")
        return answer
