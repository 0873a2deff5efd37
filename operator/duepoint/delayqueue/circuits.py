"""Circuit breakers that all workers share, and receivers that answered 410 Gone.

A circuit breaker stops deliveries to a failing receiver, and decides when they may go on. Each
worker counts the failures of its own calls and opens the circuit for all. While it is open, no
worker calls before ``until_us``; then one worker gets the probe, a key that expires, and its
outcome closes the circuit or opens it for twice as long (M. Nygard, "Release It!"). A success that
was in flight when it opened changes nothing. Only failing receivers are stored, so the one hash is
small. If it is lost, failing calls fill it again. Times are the server's, in microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import index
from duepoint.delayqueue.wire import scripting
from duepoint.runs import run

#: Most receivers and Schedules to store; others are called as if they were healthy.
MOST_KNOWN = 10_000

_HOST, _GONE = b"h", b"g"  # how the fields of the hash begin

TypeT = TypeVar("TypeT")


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitRule:
    """When a circuit opens and for how long.

    Attributes:
        most_in_a_row: failures in a row of one worker's calls that open it.
        last_calls, within_seconds: it opens, too, when more than half of this number of calls
            failed, all within this time.
        first_wait_us, most_wait_us: how long it stays open at first, and at most.
        forget_us: a receiver that is no longer called is forgotten after this.
        gone_us: the same for a receiver that is gone, so that deleted Schedules take no space.
    """

    most_in_a_row: int = 10
    last_calls: int = 20
    within_seconds: int = 60
    first_wait_us: int = 5_000_000
    most_wait_us: int = 60_000_000
    forget_us: int = 3_600_000_000
    gone_us: int = 35 * 86_400_000_000

    def trouble_of(self, calls: Sequence[tuple[float, bool]]) -> str:
        """Return why a circuit opens after these calls; empty if it stays closed.

        They are the newest, at most ``last_calls``: when each ended, in seconds; if it failed.
        """
        failures = [failed for _, failed in calls]
        if len(calls) >= self.most_in_a_row and all(failures[-self.most_in_a_row :]):
            return f"{self.most_in_a_row} failures in a row"
        took = calls[-1][0] - calls[0][0]
        is_recent = len(calls) == self.last_calls and took < self.within_seconds
        if is_recent and 2 * sum(failures) > len(calls):
            return f"{sum(failures)} of its last {len(calls)} requests failed"
        return ""


class Circuit(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """An open circuit.

    Attributes:
        until_us: when the next probe may begin.
        wait_us: for how long it was last opened.
        since_us: when it opened.
        why: which failures opened it, in words.
        cause: the newest failure, in our words; empty if unknown.
    """

    until_us: int
    wait_us: int
    since_us: int
    why: str = ""
    cause: str = ""

    @property
    def trouble(self) -> str:
        """Why it is open, in words that stay the same until the cause changes."""
        return f"{self.why}, the last: {self.cause}" if self.cause else self.why


class _Gone(msgspec.Struct, frozen=True, array_like=True):
    generation: int
    since_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The open circuits and gone receivers at one instant.

    Attributes:
        now_us: the server's time when this was true.
        gone: uids of Schedules whose receiver answered 410, with the generation that it answered.
    """

    now_us: int
    hosts: dict[str, Circuit]
    gone: dict[str, int]


@dataclass(eq=False)
class Circuits:
    """Stores open circuits and gone receivers for all workers."""

    index: index.Index
    rule: CircuitRule = CircuitRule()

    async def read(self) -> Board:
        """Return all open circuits and gone receivers; remove those not used for long."""
        time, found = await self.index.read(
            "read the circuits", ("TIME",), ("HGETALL", self.index.keys.circuits)
        )
        now_us = scripting.time_us(time)
        hosts: dict[str, Circuit] = {}
        gone: dict[str, int] = {}
        stale: list[bytes] = []
        for field, value in scripting.fields(found).items():
            name = field[1:].decode(errors="replace")
            if field[:1] == _HOST:
                circuit = self._capped(_decoded(value, Circuit), now_us)
                hosts[name] = circuit
                if now_us > circuit.until_us + self.rule.forget_us:
                    stale.append(field)
            elif field[:1] == _GONE:
                receiver = _decoded(value, _Gone)
                gone[name] = receiver.generation
                if now_us > receiver.since_us + self.rule.gone_us:
                    stale.append(field)
        if stale:
            await self.index.read("forget circuits", ("HDEL", self.index.keys.circuits, *stale))
        return Board(now_us=now_us, hosts=hosts, gone=gone)

    @staticmethod
    def _capped(circuit: Circuit, now_us: int) -> Circuit:
        """Shorten a rest longer than ``wait_us``: the server's clock was ahead when it opened."""
        until_us = min(circuit.until_us, now_us + circuit.wait_us)
        return msgspec.structs.replace(circuit, until_us=until_us)

    async def open(self, host: str, why: str, cause: str) -> None:
        """Open a receiver's circuit, unless it is open already or too many receivers are stored."""
        key = self.index.keys.circuits
        time, count = await self.index.read("open a circuit", ("TIME",), ("HLEN", key))
        now_us = scripting.time_us(time)
        wait_us = self.rule.first_wait_us
        circuit = Circuit(
            until_us=now_us + wait_us, wait_us=wait_us, since_us=now_us, why=why, cause=_cut(cause)
        )
        if count < MOST_KNOWN:
            field, value = _HOST + host.encode(), msgspec.msgpack.encode(circuit)
            await self.index.read("open a circuit", ("HSETNX", key, field, value))

    async def probe(self, host: str, hold_seconds: float) -> tuple[bool, Circuit | None, int]:
        """Try to become the one prober; return if it worked, the circuit (None = closed), the time.

        A caller that got the probe must call ``probed`` within ``hold_seconds``.
        """
        lock, hold_ms = self._lock(host), max(1, int(hold_seconds * 1_000))
        get_circuit = ("HGET", self.index.keys.circuits, _HOST + host.encode())
        try:
            time, value, granted = await self.index.read(
                "ask for a probe", ("TIME",), get_circuit, ("SET", lock, b"", "NX", "PX", hold_ms)
            )
        except queue_errors.WriteRefused:  # the server is full: each caller may probe
            time, value = await self.index.read("ask for a probe", ("TIME",), get_circuit)
            granted = True
        now_us = scripting.time_us(time)
        circuit = None if value is None else self._capped(_decoded(value, Circuit), now_us)
        if granted and (circuit is None or circuit.until_us > now_us):
            await self.index.read("give a probe back", ("DEL", lock))
            granted = False
        return bool(granted), circuit, now_us

    async def probed(self, host: str, succeeded: bool | None, cause: str = "") -> None:  # noqa: FBT001 - the outcome
        """Record the outcome of a probe and release it; None = the receiver's health is unknown."""
        key, field = self.index.keys.circuits, _HOST + host.encode()
        if succeeded:
            await self.index.read("close a circuit", ("HDEL", key, field))
        elif succeeded is False:
            time, value = await self.index.read("read a circuit", ("TIME",), ("HGET", key, field))
            if value is not None:
                circuit = _decoded(value, Circuit)
                wait_us = min(2 * circuit.wait_us, self.rule.most_wait_us)
                longer = msgspec.structs.replace(
                    circuit,
                    until_us=scripting.time_us(time) + wait_us,
                    wait_us=wait_us,
                    cause=_cut(cause),
                )
                value = msgspec.msgpack.encode(longer)
                await self.index.read("keep a circuit open", ("HSET", key, field, value))
        await self.index.read("give a probe back", ("DEL", self._lock(host)))

    async def note_gone(self, uid: str, generation: int) -> None:
        """Note that a Schedule's receiver answered 410 to this generation; 0 = it is back."""
        key, field = self.index.keys.circuits, _GONE + uid.encode()
        if not generation:
            await self.index.read("note a receiver that is back", ("HDEL", key, field))
            return
        time, count = await self.index.read("note a gone receiver", ("TIME",), ("HLEN", key))
        if count < MOST_KNOWN:
            value = msgspec.msgpack.encode(_Gone(generation, scripting.time_us(time)))
            await self.index.read("note a gone receiver", ("HSET", key, field, value))

    def _lock(self, host: str) -> str:
        return f"{self.index.keys.circuits}:probe:{host}"


def _cut(cause: str) -> str:
    return run.cut(cause, run.CAUSE_LIMIT)


def _decoded(value: bytes, type_: type[TypeT]) -> TypeT:
    try:
        return msgspec.msgpack.decode(value, type=type_)
    except msgspec.DecodeError as error:
        raise errors.QueueUnavailable(f"a circuit cannot be read: {error}") from error
