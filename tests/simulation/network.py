"""The network between processes and servers: when messages arrive, and which faults hit them.

A server carries out a message in one step, at the instant at which it arrives. Requests and
replies take a seeded time, so messages in flight together overtake each other, as on separate
connections. ``on_event`` carries out what an event does beyond the message itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.faults import Event, Kind
from tests.simulation.loop import Process, SimulatedLoop, running_process

#: How long one way of a message takes: least and most.
_WAY_US = (80, 900)
#: Events that happen after a message was carried out and before its reply arrives.
_AFTERWARDS = frozenset({Kind.KILL_AFTER, Kind.PAUSE_AFTER})


class Reset(ConnectionResetError):
    """The connection was cut; a request sent on it may have arrived."""


@dataclass(slots=True)
class Message:
    """One request and its reply; ``at_us`` is when it was sent, by the loop's clock."""

    number: int
    at_us: int
    process: Process
    server: str
    text: str


@dataclass
class Network:
    """All messages of one history.

    Attributes:
        events: by the number of the message that they hit.
        until_us: no event happens later, by the loop's clock.
        on_event: carries out an event, except for what it does to the message.
        trace: lines of text.
        sent: every message so far, from which a test chooses where to inject an event.
    """

    loop: SimulatedLoop
    seed: int
    events: Iterable[Event]
    on_event: Callable[[Event, Message], None]
    until_us: float = math.inf
    trace: list[str] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    witnessed: list[tuple[int, Event]] = field(default_factory=list)
    is_over: bool = False

    def __post_init__(self) -> None:
        self._random = random.Random(f"ways of {self.seed}")
        self._at: dict[int, list[Event]] = {}
        for event in sorted(self.events):
            self._at.setdefault(event.at, []).append(event)

    def note(self, who: object, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.loop.now_us / 1e6:12.6f}  {who!s:<12} {text}")

    def way_us(self) -> int:
        """Return how long a message travels."""
        return self._random.randint(*_WAY_US)

    async def ask(self, server: str, text: str, carry_out: Callable[[], Any]) -> Any:
        """Send a message of the running process and return the reply; wait for ever if none comes.

        Args:
            carry_out: the server's one step; an exception that it raises is the reply.
        """
        reply: asyncio.Future[Any] = self.loop.create_future()
        self._begin(server, text, carry_out, reply)
        return await reply

    def ask_nowait(
        self, server: str, text: str, carry_out: Callable[[], Any], on_reply: Callable[..., None]
    ) -> None:
        """Do the same for a protocol: ``on_reply`` gets the future, in the caller's context."""
        reply: asyncio.Future[Any] = self.loop.create_future()
        reply.add_done_callback(on_reply, context=contextvars.copy_context())
        self._begin(server, text, carry_out, reply)

    def _begin(
        self,
        server: str,
        text: str,
        carry_out: Callable[[], Any],
        reply: asyncio.Future[Any],
    ) -> None:
        process = running_process.get()
        if self.is_over:
            reply.set_exception(Reset("the history is over"))
            return
        message = Message(len(self.sent), self.loop.now_us, process, server, text)
        self.sent.append(message)
        self.note(process, f"#{message.number} {server} {text}")
        events = self._at.get(message.number, ()) if self.loop.now_us <= self.until_us else ()
        kinds = {event.kind: event for event in events}
        for event in events:
            self.witnessed.append((self.loop.now_us, event))
            self.note("EVENT", str(event))
            if event.kind not in _AFTERWARDS:
                self.on_event(event, message)
        if Kind.KILL_BEFORE in kinds or Kind.LOSE_REQUEST in kinds:
            return
        delay_us = self.way_us()
        if Kind.LATE_REQUEST in kinds:
            delay_us += round(kinds[Kind.LATE_REQUEST].amount * 1e6)
        if Kind.PAUSE_BEFORE in kinds:
            delay_us += round(kinds[Kind.PAUSE_BEFORE].amount * 1e6)
        if Kind.RESET_REQUEST in kinds:
            self._answer_in(self.way_us(), reply, message, None, Reset("the connection was reset"))
            return
        at_us = self.loop.now_us + delay_us
        self.loop.in_world_at(at_us, self._arrive, message, carry_out, reply, kinds)

    def _arrive(
        self,
        message: Message,
        carry_out: Callable[[], Any],
        reply: asyncio.Future[Any],
        kinds: dict[Kind, Event],
    ) -> None:
        value, error = None, None
        try:
            value = carry_out()
        except Exception as raised:  # noqa: BLE001 - it is the reply
            error = raised
        if asyncio.isfuture(value):
            value.add_done_callback(
                lambda done: self._carried_out(message, reply, kinds, done, None)
            )
        else:
            self._carried_out(message, reply, kinds, value, error)

    def _carried_out(
        self,
        message: Message,
        reply: asyncio.Future[Any],
        kinds: dict[Kind, Event],
        value: Any,
        error: BaseException | None,
    ) -> None:
        if asyncio.isfuture(value):
            error = value.exception()
            value = value.result() if error is None else None
        for kind in _AFTERWARDS & kinds.keys():
            self.on_event(kinds[kind], message)
        if Kind.LOSE_REPLY in kinds:
            self.note(message.process, f"#{message.number} the reply is lost")
            return
        if Kind.RESET_REPLY in kinds:
            value, error = None, Reset("the connection was reset")
        delay_us = self.way_us()
        if Kind.LATE_REPLY in kinds:
            delay_us += round(kinds[Kind.LATE_REPLY].amount * 1e6)
        self._answer_in(delay_us, reply, message, value, error)

    def _answer_in(
        self,
        delay_us: int,
        reply: asyncio.Future[Any],
        message: Message,
        value: Any,
        error: BaseException | None,
    ) -> None:
        def answer() -> None:
            if message.process.is_dead or reply.done():
                return
            if error is not None:
                self.note(message.process, f"#{message.number} <- {type(error).__name__}: {error}")
                reply.set_exception(error)
            else:
                reply.set_result(value)

        self.loop.in_world_at(self.loop.now_us + delay_us, answer)
