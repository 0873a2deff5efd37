"""A cache of API server answers about named objects, with stale answers during its outages.

Targets read objects when they send something, and a delivery a second must not mean a request a
second to the API server: an answer is fresh for a while (``Life``). While the API server does not
answer, the last answer serves longer. If an object is missing or forbidden, it is read again after
two seconds, so that the target recovers soon after it appears. Concurrent callers with the same key
share one request. The cache is never written to disk. It is bounded by bytes with a share for each
namespace (``shares.BytesCache``), so that no namespace can evict another's entries.
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
#: Time until the next request after an object was missing or forbidden.
ASK_AGAIN_SECONDS = 2.0
#: Timeout of a request, and how long none is sent after a failure while a stale answer serves.
LOOK_SECONDS = 5.0
#: How long callers wait for a newer answer if a stale one can serve.
PATIENCE_SECONDS = 0.5

#: Bound of the whole cache, and size of one entry without its value.
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
        is_suspect: whether the last answer did not work when it was used.
    """

    life: Life[V] | None = None
    refusal: errors.ApiError | None = None
    read_at: float = 0.0
    ask_at: float = float("-inf")
    is_suspect: bool = False
    reading: asyncio.Task[Life[V] | errors.ApiError] | None = None

    def instead_of(self, answer: Life[V] | errors.ApiError, now: float) -> Life[V] | None:
        """Return the last answer if this one is an outage and the last one is still usable."""
        is_away = isinstance(answer, errors.Unavailable)
        return self.life if is_away and self.is_usable(now) else None

    def is_usable(self, now: float) -> bool:
        """Whether the last answer may serve if there is no newer one."""
        return self.life is not None and now - self.read_at < self.life.usable_seconds


class Memory(Generic[K, V]):
    """Reads values and caches them by namespace and key."""

    def __init__(self, look: Callable[[str, K], Awaitable[Life[V]]], clock: clocks.Clock) -> None:
        self._look = look
        self._clock = clock
        self._entries: shares.BytesCache[K, _Entry[V]] = shares.BytesCache(MOST_BYTES)
        #: Until then, callers with a stale answer do not wait for a newer one.
        self._slow_until = float("-inf")
        self._readings: set[asyncio.Task[Life[V] | errors.ApiError]] = set()

    async def get(self, namespace: str, key: K) -> V:
        """Return the value; raises ``kube.errors.ApiError`` if there is none."""
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
        """Read these keys again; their last answers serve only if the API server is away."""
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
        """Return the stale answer that may serve during a request, and how long to wait before."""
        now = self._clock.monotonic()
        if entry.is_suspect or not entry.is_usable(now):
            return None, None
        return entry.life, 0.0 if now < self._slow_until else PATIENCE_SECONDS

    def _read_on(
        self, entry: _Entry[V], namespace: str, key: K
    ) -> asyncio.Task[Life[V] | errors.ApiError]:
        """Return the request in flight, or start one."""
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
            # The key was forgotten meanwhile: this may be the answer that failed, so do not cache.
            return entry.instead_of(answer, self._clock.monotonic()) or answer
        answer = self._remember(entry, answer)
        if self._entries.get(namespace, key) is entry:  # else it was evicted meanwhile
            size = 0 if entry.life is None else entry.life.size
            self._entries.put(namespace, key, entry, _ENTRY_BYTES + size)
        return answer

    def _remember(
        self, entry: _Entry[V], answer: Life[V] | errors.ApiError
    ) -> Life[V] | errors.ApiError:
        """Cache and return the answer, or return the last one while the API server is away."""
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
