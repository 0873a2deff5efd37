"""Changes of a watch of Schedules, read many at a time and straight from the bytes.

kopf makes a dict of every line and passes it through six generators: 0.2 ms of CPU an event, of
which we want eight fields. Here the lines of what a connection has ready become sightings at once,
and kopf gets one line that says where it stands. Lines that tell no change, or that cannot be read
so, go kopf's way.

The API server sends each event by itself. While many come, nobody looks for a moment after each
look, so that the next one finds many: what they cost together is much less than one by one. A
change that comes alone is read at once. The connection itself is left to the HTTP library, which
stops reading when enough is waiting; stopping it by hand fails where the stream ends meanwhile.

kopf has no setting for this: the function that cuts its streams into lines is wrapped. Which watch
a stream belongs to is known by its context.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import kopf._cogs.clients.api as kopf_api
import msgspec

from duepoint.controller import sighting
from duepoint.controller.sighting import Sighting
from duepoint.kube import lines, schedules
from duepoint.schedules import nesting

_CHANGES = frozenset(("ADDED", "MODIFIED", "DELETED"))

#: How long nobody looks while many changes come. What comes meanwhile waits in the library's
#: buffer: some 100 KB where 1,000 objects change in a second.
_REST_SECONDS = 0.1
#: More changes than this in about a quarter of a second are many.
_MANY = 20
_WINDOW_SECONDS = 0.25

_kopf_lines = kopf_api.iter_jsonlines


class _Event(msgspec.Struct, gc=False):
    """One line of a watch; of an ERROR the object is none of ours."""

    type: str
    object: schedules.Schedule


_decoder = msgspec.json.Decoder(_Event)


@dataclass(slots=True)
class Reading:
    """How the streams of one watch are read.

    Attributes:
        take: told of the changes that were found together, in their order.
        is_short: whether changes go there; kopf gets every line until then.
    """

    take: Callable[[Sequence[Sighting]], None]
    is_short: bool


_reading: contextvars.ContextVar[Reading | None] = contextvars.ContextVar("reading", default=None)


def use(reading: Reading | None) -> None:
    """For streams that are opened in the present context; None = kopf's way."""
    _reading.set(reading)
    kopf_api.iter_jsonlines = _lines


async def _lines(content: Any, chunk_size: int = 1024 * 1024) -> AsyncIterator[bytes]:  # noqa: ANN401 - kopf's
    """As kopf's function of this name."""
    reading = _reading.get()
    if reading is None:
        async for line in _kopf_lines(content, chunk_size):
            yield line
        return
    splitter, crowd = lines.Splitter(), _Crowd()
    async for chunk in content.iter_chunked(chunk_size):
        found = deque(splitter.feed(chunk))
        is_many = crowd.is_many(len(found), time.monotonic())
        while found and not reading.is_short:
            yield found.popleft()  # whoever takes it may see that kopf's list ends here
        for line in _shortened(found, reading.take):
            yield line
        if is_many:
            await asyncio.sleep(_REST_SECONDS)


def _shortened(
    found: Iterable[bytes], take: Callable[[Sequence[Sighting]], None]
) -> Iterator[bytes]:
    """Lines for kopf: a place for changes in a row that were taken, and what it must see itself."""
    taken: list[Sighting] = []
    version = ""
    for line in found:
        event = _read(line)
        if event is None:
            if taken:
                take(taken)
                yield _place(version)
                taken = []
            yield line
        else:
            taken.append(sighting.of_change(event.type, event.object))
            version = event.object.metadata.resource_version
    if taken:
        take(taken)
        yield _place(version)


def _read(line: bytes) -> _Event | None:
    """A change; None for anything else, and for what is nested too deeply.

    RecursionError comes at a depth that differs with the version of Python, and always beyond ours.
    """
    try:
        event = _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    if event.type not in _CHANGES or nesting.too_deep(bytes(event.object.spec)):
        return None
    return event


def _place(version: str) -> bytes:
    return b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%s"}}}' % version.encode()


class _Crowd:
    """Changes of late; older ones count for less and less."""

    def __init__(self) -> None:
        self._of_late = 0.0
        self._at = 0.0

    def is_many(self, count: int, now: float) -> bool:
        """Whether many come, these among them; ``now`` is monotonic seconds."""
        self._of_late *= 0.5 ** min((now - self._at) / _WINDOW_SECONDS, 64.0)
        self._of_late += count
        self._at = now
        return self._of_late > _MANY
