"""What all workers know of receivers in trouble: circuits, and receivers that are gone.

Healthy receivers are not in there, so the one hash is small; who knows its version gets it whole
only when it has changed. It is worth nothing after a loss: what is wrong with a receiver is found
out again by calling it.
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
from duepoint.runs import circuit, run

#: Receivers and Schedules that are remembered; further ones are called as if they were well.
MOST_KNOWN = 10_000

_HOST, _GONE = b"h", b"g"


@dataclass(eq=False)
class Circuits:
    """What all workers know of receivers in trouble."""

    index: index.Index

    async def report(
        self,
        news: Sequence[circuit.News] = (),
        gone: Sequence[circuit.GoneReceiver] = (),
        *,
        known: int = -1,
        rule: circuit.CircuitRule,
    ) -> circuit.Board:
        """Tell, ask, and learn what has changed since the version that is known; -1 = none is."""
        times = {
            name.removesuffix("_us"): value for name, value in dataclasses.asdict(rule).items()
        }
        call = self.index.call(
            "circuits", None, known=known, most=MOST_KNOWN, buckets=circuit.BUCKETS, rule=times
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
        board = circuit.Board(
            version=int(version), now_us=int(now), probes=tuple(int(item) for item in probes)
        )
        if board.version == known:
            return board
        hosts, gone_now = _sorted_out(zip(fields[::2], fields[1::2], strict=True))
        return dataclasses.replace(board, hosts=hosts, gone=gone_now)

    async def read(self) -> circuit.Board:
        """All that is known, for those who only look."""
        (found,) = await self.index.read("read the circuits", ("HGETALL", self.index.keys.circuits))
        hosts, gone = _sorted_out(scripting.fields(found).items())
        return circuit.Board(version=0, now_us=0, hosts=hosts, gone=gone)


def _sorted_out(
    pairs: Iterable[tuple[bytes, bytes]],
) -> tuple[dict[str, circuit.Circuit], dict[str, int]]:
    hosts: dict[str, circuit.Circuit] = {}
    gone: dict[str, int] = {}
    for field, value in pairs:
        kind, name = field[:1], field[1:].decode(errors="replace")
        if kind == _HOST:
            hosts[name] = _decoded(value, circuit.Circuit)
        elif kind == _GONE:
            gone[name] = _decoded(value, int)
    return hosts, gone


def _decoded(value: bytes, type_: Any) -> Any:  # noqa: ANN401 - a type, and one of it
    try:
        return msgspec.msgpack.decode(value, type=type_)
    except msgspec.DecodeError as error:
        raise errors.QueueUnavailable(f"a circuit cannot be read: {error}") from error
