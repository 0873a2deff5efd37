"""The processes of the HTTP API, and a client of theirs.

The application is the product's. Sockets and the HTTP parser in front of it have tests of their
own. The client repeats a change with its ``Idempotency-Key`` until it gets an answer, each time at
another process, as the product's own client does.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import random
from collections import defaultdict
from typing import Any

import msgspec

from duepoint.httpapi import application, calls
from duepoint.net import httpserver
from tests.simulation.cluster import NAMESPACE
from tests.simulation.loop import Process
from tests.simulation.network import Network, Reset

#: The name of the client's process.
NAME = "client"
_ANSWER_SECONDS = 8.0
_AGAIN_SECONDS = 0.5
#: The client gives up a change that gets no answer for this long.
_PATIENCE_SECONDS = 120.0
#: Transient refusals beside all of 5xx: the set is not stored yet, another attempt is in flight.
_PASSING = frozenset({"NotFound", "NotActive", "IdempotencyInProgress", "SetFull"})
#: Refusals that mean that there is nothing left to change.
_ENDED = frozenset({"NoSuchMember", "SetDeleting", "TooLate"})


class Answer(enum.Enum):
    """The result of a change."""

    DONE = "done"
    NOTHING_THERE = "nothing there"
    #: The change may have been made, or may still be made.
    UNKNOWN = "unknown"


class ApiClient:
    """A process of its own that asks for changes of members.

    Attributes:
        refusals: answers that no history may produce.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._process = Process(NAME)
        self._dice = random.Random(f"keys of {network.seed}")
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._serving: list[tuple[Process, application.Application]] = []
        self.refusals: list[str] = []

    def begin(self) -> None:
        """Start the client's process."""
        self._process = self._network.loop.start(NAME, asyncio.sleep(0))

    def open(self, process: Process, handler: application.Application) -> None:
        """Send requests to this process, as long as it lives."""
        self._serving = [each for each in self._serving if not each[0].is_dead]
        self._serving.append((process, handler))

    def close(self, process: Process) -> None:
        """Send no more requests to this process."""
        self._serving = [each for each in self._serving if each[0] is not process]

    def turn_of(self, name: str) -> asyncio.Lock:
        """Return the lock that makes changes of one member follow one another."""
        return self._turns[name]

    async def change(self, name: str, method: str, body: Any) -> Answer:
        """Repeat the request until there is an answer, for two minutes at most."""
        key = self._dice.randbytes(8).hex()
        headers = {"idempotency-key": key, "content-type": calls.JSON}
        content = b"" if body is None else msgspec.json.encode(body)
        until = self._network.loop.time() + _PATIENCE_SECONDS
        for attempt in itertools.count():
            answer = await self._ask(method, _path(name), headers, content, attempt)
            if answer is not None and answer.status < 300:
                return Answer.DONE
            if answer is not None and answer.status < 500 and answer.status != 429:
                code = msgspec.json.decode(answer.body)["code"]
                if code in _ENDED:
                    return Answer.UNKNOWN if attempt else Answer.NOTHING_THERE
                if code not in _PASSING:
                    self.refusals.append(f"{method} {name}: {answer.status} {code}")
                    return Answer.UNKNOWN
            if self._network.is_over or self._network.loop.time() > until:
                break
            await asyncio.sleep(_AGAIN_SECONDS)
        return Answer.UNKNOWN

    async def listed(self, set_name: str) -> dict[str, Any] | None:
        """Return the members of a set by id; None if there was no answer."""
        path = f"/v1/namespaces/{NAMESPACE}/schedulesets/{set_name}/schedules"
        for attempt in range(4):
            answer = await self._ask("GET", path, {}, b"", attempt)
            if answer is not None and answer.status == 200:
                return {one["id"]: one for one in msgspec.json.decode(answer.body)["items"]}
            if answer is not None and answer.status == 404:
                return {}
        return None

    async def _ask(
        self, method: str, path: str, headers: dict[str, str], content: bytes, attempt: int
    ) -> httpserver.HttpResponse | None:
        context = self._network.loop.context_of(self._process)
        work = self._asked(method, path, headers, content, attempt)
        task = context.run(self._network.loop.create_task, work)
        answer: httpserver.HttpResponse | None = await task
        return answer

    async def _asked(
        self, method: str, path: str, headers: dict[str, str], content: bytes, attempt: int
    ) -> httpserver.HttpResponse | None:
        text = f"{method} {path.rpartition('/')[2]}"
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer: httpserver.HttpResponse = await self._network.ask(
                    "api", text, lambda: self._served(method, path, headers, content, attempt)
                )
        except (TimeoutError, Reset):
            return None
        return answer

    def _served(
        self, method: str, path: str, headers: dict[str, str], content: bytes, attempt: int
    ) -> asyncio.Task[httpserver.HttpResponse | None]:
        alive = [each for each in self._serving if not each[0].is_dead]
        if not alive:
            raise Reset("Connection refused")
        process, handler = alive[attempt % len(alive)]
        body = httpserver.Body(_nothing_more)
        body.feed(content)
        body.is_whole = True
        request = httpserver.HttpRequest(
            method=method,
            target=path,
            headers={"authorization": "Bearer a-token", **headers},
            body=body,
            start=_no_stream,
            keep_alive=True,
        )
        loop = self._network.loop
        return loop.context_of(process).run(loop.create_task, handler(request))


async def _nothing_more() -> None:
    raise AssertionError("the body is whole")


def _no_stream(_status: int, _headers: httpserver.Headers) -> httpserver.Stream:
    raise AssertionError("no operation of the simulator's client is answered by a stream")


def _path(name: str) -> str:
    set_name, _, member = name.partition("/")
    return f"/v1/namespaces/{NAMESPACE}/schedulesets/{set_name}/schedules/{member}"
