"""What is known of the Services that webhooks go to.

Reading a Service for every delivery would cost the API server a request per webhook. So what it
said is believed for a minute; while it does not answer, for an hour, because webhooks go on
firing through its outages. What did not work is forgotten at once. Deliveries that miss at the
same time share one look-up.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from duepoint import clock as clocks
from duepoint.kube import errors, port, services

FRESH_SECONDS = 60.0
STALE_SECONDS = 3600.0
#: How long the API server may take, and is then left alone while an old answer serves.
LOOK_SECONDS = 5.0
#: Services remembered; the one not asked for the longest goes first.
MOST_KNOWN = 4096

Found = services.ServiceResolved | services.ServiceUnresolved
#: namespace, name, port -> what the API server says; raises ``kube.errors.ApiError``.
Look = Callable[[str, str, int | str], Awaitable[Found]]


@dataclass(slots=True)
class _Known:
    """The last good answer, and the lock of the caller that asks for a newer one."""

    resolved: services.ServiceResolved | None = None
    read_at: float = 0.0
    ask_at: float = float("-inf")
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class ServiceCache:
    """Resolves Services with a memory."""

    def __init__(self, look: Look, clock: clocks.Clock) -> None:
        self._look = look
        self._clock = clock
        self._known: collections.OrderedDict[tuple[str, str], dict[int | str, _Known]] = (
            collections.OrderedDict()
        )

    async def resolve(self, namespace: str, name: str, port: int | str) -> Found:
        """Where the Service leads; raises ``kube.errors.ApiError`` where nothing is known."""
        known = self._entry(namespace, name, port)
        async with known.asking:
            if known.resolved is not None and self._clock.monotonic() < known.ask_at:
                return known.resolved
            return await self._ask(known, namespace, name, port)

    def forget(self, namespace: str, name: str) -> None:
        """Ask anew next time, for every port; the last answer serves until then."""
        for known in self._known.get((namespace, name), {}).values():
            known.ask_at = float("-inf")

    async def _ask(self, known: _Known, namespace: str, name: str, port: int | str) -> Found:
        try:
            found = await self._look(namespace, name, port)
        except errors.Unavailable:
            now = self._clock.monotonic()
            if known.resolved is None or now - known.read_at >= STALE_SECONDS:
                raise
            known.ask_at = now + LOOK_SECONDS
            return known.resolved
        known.resolved = found if isinstance(found, services.ServiceResolved) else None
        known.read_at = self._clock.monotonic()
        known.ask_at = known.read_at + FRESH_SECONDS
        return found

    def _entry(self, namespace: str, name: str, port: int | str) -> _Known:
        ports = self._known.setdefault((namespace, name), {})
        self._known.move_to_end((namespace, name))
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return ports.setdefault(port, _Known())


def of(api: port.Api, clock: clocks.Clock) -> ServiceCache:
    """A cache of what this API server says."""

    async def look(namespace: str, name: str, wanted: int | str) -> Found:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await services.resolve(api, namespace, name, wanted)
        except TimeoutError as error:
            raise errors.Unavailable(
                f"GET Service {namespace}/{name}: no answer in {LOOK_SECONDS:g} s"
            ) from error

    return ServiceCache(look, clock)
