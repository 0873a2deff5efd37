"""The receivers of webhooks, and the connections to them.

The worker uses the product's HTTP client on a transport of the simulator. A receiver records each
request before it answers, so its record is true whatever the worker believes.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from duepoint.net import httpclient
from tests.simulation.network import Network

URL = "http://receiver.example.com/hook"


@dataclass(slots=True, kw_only=True)
class Seen:
    """A request that arrived.

    Attributes:
        id: its ``webhook-id``; a member that was lost and made again has a new one.
        event: the id in the body: one for each slot, whatever happens to Redis.
        uid: that of a Schedule; ``SET/ID`` is a member.
        status: the status that the receiver answered.
    """

    id: str
    event: str
    at_us: int
    slot: str
    uid: str
    attempt: int
    trigger: str
    status: int


class Receiver:
    """Every receiver of the history.

    Args:
        answers: number of the request (from 0) -> status; 204 for all others.

    Attributes:
        down_until_us: all requests get 503 before this instant of the loop's clock.
    """

    def __init__(self, network: Network, now_us: Callable[[], int]) -> None:
        self._network = network
        self._now_us = now_us
        self.answers: dict[int, int] = {}
        self.down_until_us = 0
        self.seen: list[Seen] = []

    def take(self, content: bytes) -> bytes:
        """Record one request and return its response."""
        head, _, body = content.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")[1:]
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        data: dict[str, Any] = json.loads(body)["data"]
        status = self.answers.get(len(self.seen), 204)
        if self._network.loop.now_us < self.down_until_us:
            status = 503
        schedule = data["schedule"]
        self.seen.append(
            Seen(
                id=headers["webhook-id"],
                event=data["id"],
                at_us=self._now_us(),
                slot=data["scheduled_time"],
                uid=f"{schedule['set']}/{schedule['name']}"
                if "set" in schedule
                else schedule["uid"],
                attempt=data["attempt"],
                trigger=data["trigger"],
                status=status,
            )
        )
        self._network.note(
            "receiver", f"{data['scheduled_time']} attempt {data['attempt']}: {status}"
        )
        return f"HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n".encode()


class SimulatedDialler:
    """A stand-in for ``dialling.Dialler``; every host is the receiver."""

    def __init__(self, receiver: Receiver, network: Network) -> None:
        self._receiver = receiver
        self._network = network

    async def open(self, endpoint: httpclient.Endpoint) -> httpclient.Connection:
        """See ``httpclient.Open``."""
        del endpoint
        await asyncio.sleep(self._network.way_us() / 1e6)
        connection = httpclient.Connection()
        connection.connection_made(Transport(connection, self._receiver, self._network))
        return connection

    async def close(self) -> None:
        pass


class Transport(asyncio.Transport):
    """A transport that carries one request at a time, each written in one piece."""

    def __init__(
        self, protocol: httpclient.Connection, receiver: Receiver, network: Network
    ) -> None:
        super().__init__()
        self._protocol = protocol
        self._receiver = receiver
        self._network = network
        self._is_closing = False
        self._context = contextvars.copy_context()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        content = bytes(data)
        self._network.ask_nowait(
            "receiver", "POST", lambda: self._receiver.take(content), self._on_reply
        )

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._lose(None)

    def _on_reply(self, reply: asyncio.Future[bytes]) -> None:
        if self._is_closing:
            reply.exception()
            return
        if (error := reply.exception()) is not None:
            self._lose(error)
        else:
            self._protocol.data_received(reply.result())

    def _lose(self, error: BaseException | None) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(
                self._protocol.connection_lost, error, context=self._context
            )
