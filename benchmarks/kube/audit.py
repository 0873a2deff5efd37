"""The API server's audit log, read as ``Request`` values: who requested what, and when.

Times are microseconds since the epoch, by the clock of this machine.
"""

from __future__ import annotations

import calendar
import collections
import time
from collections.abc import Iterable
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

    @property
    def is_ours(self) -> bool:
        return self.agent.startswith(("duepoint", "kopf"))

    @property
    def is_job(self) -> bool:
        """Whether it asked for a new Job."""
        return self.verb == "create" and self.resource == "jobs"


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
        """Skip the requests until now."""
        self._offset = self._path.stat().st_size

    def new(self) -> list[Request]:
        """Return the requests answered since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        return [_request(_decoder.decode(line)) for line in data[:whole].splitlines()]


def jobs_created(requests: Iterable[Request], namespace: str) -> list[int]:
    """Return when the API server confirmed the creation of each Job, in order."""
    return sorted(
        one.answered_us
        for one in requests
        if one.is_job and one.code == 201 and one.namespace == namespace
    )


def counted(requests: Iterable[Request]) -> str:
    """Return how often each of our processes sent each request, most often first."""
    asked = collections.Counter(
        f"{one.verb} {one.resource} of {one.agent}" for one in requests if one.is_ours
    )
    return ", ".join(f"{number} {what}" for what, number in asked.most_common())


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
    """Parse RFC 3339 with six decimals, as the audit log has it."""
    seconds = calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))
    return seconds * 1_000_000 + int(text[20:26].rstrip("Z").ljust(6, "0"))
