"""What all workers know of receivers in trouble: circuits, and receivers that are gone.

Healthy receivers are not in there, so the one hash is small; who knows its version gets it whole
only when it has changed. It is worth nothing after a loss: what is wrong with a receiver is found
out again by calling it.

A circuit breaker says when deliveries to a receiver stop, and when they may go on. Closed, calls go
through and are counted: by how many have failed in a row, and by how many of the last minute have
(ring of buckets). Open, none goes until ``until_us``; then one worker is given the probe, whose
outcome alone closes the circuit or opens it for twice as long (M. Nygard, "Release It!"). A success
that was under way when it opened changes nothing. ``circuits.lua`` has the rules. A circuit of
which nothing bad is known is None, so that healthy receivers cost nothing. Times are the server's,
in microseconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint import errors
from duepoint.delayqueue import index
from duepoint.delayqueue.wire import scripting
from duepoint.runs import run

#: Receivers and Schedules that are remembered; further ones are called as if they were well.
MOST_KNOWN = 10_000

_HOST, _GONE = b"h", b"g"

#: The window is counted in so many buckets; it ends to a bucket.
BUCKETS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitRule:
    """When a circuit opens and for how long.

    Attributes:
        most_in_a_row: failures in a row that open it.
        least_calls: calls in the window below which their share of failures says nothing.
        window_us: the window; more than half of its calls failed opens the circuit.
        first_wait_us, most_wait_us: how long it stays open at first, and at most.
        forget_us: a receiver that is not called any more is forgotten after this.
        gone_us: the same for a receiver that is gone, so that a deleted Schedule takes no room.
    """

    most_in_a_row: int = 10
    least_calls: int = 20
    window_us: int = 60_000_000
    first_wait_us: int = 5_000_000
    most_wait_us: int = 60_000_000
    forget_us: int = 3_600_000_000
    gone_us: int = 35 * 86_400_000_000


class Bucket(msgspec.Struct, frozen=True, array_like=True):
    """Calls of one part of the window."""

    number: int
    succeeded: int
    failed: int


class Circuit(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What is known of a receiver that failed lately.

    Attributes:
        is_open: whether calls wait.
        in_a_row: failures since the last success; of an open circuit, those that opened it.
        until_us: of an open circuit: no probe before this.
        wait_us: how long it was opened for the last time; 0 = it is closed.
        probe_us: until when the probe is held, and so its name; 0 = not held.
        since_us: when it opened.
        cause: what the newest failure was, in our words; empty where it is not known.
    """

    is_open: bool = False
    in_a_row: int = 0
    until_us: int = 0
    wait_us: int = 0
    probe_us: int = 0
    since_us: int = 0
    buckets: tuple[Bucket, ...] = ()
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What one worker has to say of one receiver, or asks.

    Attributes:
        host: the receiver's name.
        calls: outcomes in their order, in runs: 3 = three successes, -2 = then two failures.
        probe_us: the probe that ``calls`` is the outcome of, 0 = of none. Without an outcome the
            probe is given back.
        ask_us: a probe is asked for, to be held for so long; 0 = none is.
        cause: what the newest failure among ``calls`` was, in words of ours.
    """

    host: str
    calls: tuple[int, ...] = ()
    probe_us: int = 0
    ask_us: int = 0
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneReceiver:
    """A Schedule whose receiver said 410, as of this generation; 0 = it is to be called again."""

    uid: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All that is known of receivers in trouble.

    Attributes:
        version: changes whenever a circuit opens, closes, comes or goes.
        now_us: the server's time at which this was true.
        hosts, gone: None where the version is the one that was known already.
        probes: for each of the news, the probe that was given; 0 = none.
    """

    version: int
    now_us: int
    hosts: dict[str, Circuit] | None = None
    gone: dict[str, int] | None = None
    probes: tuple[int, ...] = ()


def trouble(known: Circuit, rule: CircuitRule) -> str:
    """Why an open circuit is open, in words that stay the same until the cause is another."""
    cause = f", the last: {known.cause}" if known.cause else ""
    if known.in_a_row >= rule.most_in_a_row:
        return f"{known.in_a_row} failures in a row{cause}"
    seconds = rule.window_us // 1_000_000
    return f"more than half of its requests failed within {seconds} s{cause}"


@dataclass(eq=False)
class Circuits:
    """What all workers know of receivers in trouble."""

    index: index.Index

    async def report(
        self,
        news: Sequence[News] = (),
        gone: Sequence[GoneReceiver] = (),
        *,
        known: int = -1,
        rule: CircuitRule,
    ) -> Board:
        """Tell, ask, and learn what has changed since the version that is known; -1 = none is."""
        times = {
            name.removesuffix("_us"): value for name, value in dataclasses.asdict(rule).items()
        }
        call = self.index.call(
            "circuits", None, known=known, most=MOST_KNOWN, buckets=BUCKETS, rule=times
        )
        call.put(
            gone=[(call.position(f"g{item.uid}"), item.generation) for item in gone],
            news=[
                (
                    call.position(f"h{item.host}"),
                    *(item.calls, item.probe_us, item.ask_us, run.cut(item.cause, run.CAUSE_LIMIT)),
                )
                for item in news
            ],
        )
        version, now, probes, fields = await self.index.pipelined.run(call)
        board = Board(
            version=int(version), now_us=int(now), probes=tuple(int(item) for item in probes)
        )
        if board.version == known:
            return board
        hosts, gone_now = _sorted_out(zip(fields[::2], fields[1::2], strict=True))
        return dataclasses.replace(board, hosts=hosts, gone=gone_now)

    async def read(self) -> Board:
        """All that is known, for those who only look."""
        (found,) = await self.index.read("read the circuits", ("HGETALL", self.index.keys.circuits))
        hosts, gone = _sorted_out(scripting.fields(found).items())
        return Board(version=0, now_us=0, hosts=hosts, gone=gone)


def _sorted_out(
    pairs: Iterable[tuple[bytes, bytes]],
) -> tuple[dict[str, Circuit], dict[str, int]]:
    hosts: dict[str, Circuit] = {}
    gone: dict[str, int] = {}
    for field, value in pairs:
        kind, name = field[:1], field[1:].decode(errors="replace")
        if kind == _HOST:
            hosts[name] = _decoded(value, Circuit)
        elif kind == _GONE:
            gone[name] = _decoded(value, int)
    return hosts, gone


def _decoded(value: bytes, type_: Any) -> Any:  # noqa: ANN401 - a type, and one of it
    try:
        return msgspec.msgpack.decode(value, type=type_)
    except msgspec.DecodeError as error:
        raise errors.QueueUnavailable(f"a circuit cannot be read: {error}") from error
