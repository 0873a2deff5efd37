"""What the API server wrote down: who asked for what, when it was answered, and how.

In: the lines of the audit log since a mark. Out: ``Request`` values, times in microseconds since
the epoch. The server's own clock stands for all: everything measured shares the machine.
"""

from __future__ import annotations

import calendar
import collections
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True, slots=True)
class Request:
    """One answered request.

    Attributes:
        agent: the first word of the user agent, and for Duepoint its part.
        resource: with the subresource, such as ``schedules/status``.
    """

    agent: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    received_us: int
    answered_us: int

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES


class _Object(msgspec.Struct):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class _Line(msgspec.Struct, rename="camel"):
    verb: str
    request_received_timestamp: str
    stage_timestamp: str
    user_agent: str = ""
    object_ref: _Object = msgspec.field(default_factory=_Object)
    response_status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Line)


class Audit:
    """Reads the log on from where it stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def skip(self) -> None:
        """What was asked until now is of no interest."""
        self._offset = self._path.stat().st_size

    def new(self) -> list[Request]:
        """Requests answered since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        return [_request(_decoder.decode(line)) for line in data[:whole].splitlines()]


def jobs_created(requests: Iterable[Request], namespace: str) -> list[int]:
    """When each creation of a Job was answered, in order."""
    return sorted(
        one.answered_us
        for one in requests
        if one.verb == "create" and one.resource == "jobs" and one.code == 201
        and one.namespace == namespace
    )  # fmt: skip


def jobs_under_way(requests: Iterable[Request], namespace: str) -> float:
    """How many creations of Jobs the API server worked on at a time, on average."""
    spans = [
        (one.received_us, one.answered_us)
        for one in requests
        if one.verb == "create" and one.resource == "jobs" and one.namespace == namespace
    ]
    if not spans:
        return 0.0
    whole = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return sum(end - begin for begin, end in spans) / max(1, whole)


def by_agent(
    requests: Iterable[Request], counts: Callable[[Request], bool]
) -> dict[str, collections.Counter[str]]:
    """Agent -> ``verb resource`` -> how often."""
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for one in requests:
        if counts(one):
            found[one.agent][f"{one.verb} {one.resource}"] += 1
    return dict(found)


def _request(line: _Line) -> Request:
    about = line.object_ref
    resource = about.resource + (f"/{about.subresource}" if about.subresource else "")
    return Request(
        agent=_agent(line.user_agent),
        verb=line.verb,
        resource=resource,
        namespace=about.namespace,
        name=about.name,
        code=line.response_status.code,
        received_us=_us(line.request_received_timestamp),
        answered_us=_us(line.stage_timestamp),
    )


def _agent(text: str) -> str:
    first, _, rest = text.partition("/")
    if first == "duepoint":
        return f"duepoint {rest.partition('(')[2].rstrip(')')}"
    return first


def _us(text: str) -> int:
    """RFC 3339 with six decimals, as the audit log has it."""
    seconds = calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))
    return seconds * 1_000_000 + int(text[20:26].rstrip("Z").ljust(6, "0"))
