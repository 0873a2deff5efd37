"""The circuits of the queue in memory: the rules of ``circuitrules`` over two dictionaries."""

from __future__ import annotations

from collections.abc import Sequence

from duepoint import clock as clocks
from duepoint.runs import circuit
from tests.fakes import circuitrules


class MemoryCircuits:
    """What ``MemoryDelayQueue.tell_circuits`` answers from."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._version = 0
        self._hosts: dict[str, circuit.Circuit] = {}
        self._gone: dict[str, int] = {}
        self._forget_at: dict[str, int] = {}

    def tell(
        self,
        news: Sequence[circuit.News],
        gone: Sequence[circuit.GoneReceiver],
        *,
        known: int,
        rule: circuit.CircuitRule,
    ) -> circuit.Board:
        now_us = self._clock.now_us()
        before = self._seen()
        self._forget_old(now_us)
        for one in gone:
            self._note_gone(one, now_us + rule.gone_us)
        probes = tuple(self._take(one, now_us, rule) for one in news)
        if self._seen() != before or any(one.generation for one in gone):
            self._version += 1
        board = circuit.Board(version=self._version, now_us=now_us, probes=probes)
        if known == self._version:
            return board
        return circuit.Board(
            version=self._version,
            now_us=now_us,
            hosts=dict(self._hosts),
            gone=dict(self._gone),
            probes=probes,
        )

    def _take(self, news: circuit.News, now_us: int, rule: circuit.CircuitRule) -> int:
        known = circuitrules.after(self._hosts.get(news.host), news, now_us=now_us, rule=rule)
        known, probe_us = circuitrules.asked(known, news, now_us=now_us)
        if known is None:
            self._hosts.pop(news.host, None)
        else:
            self._hosts[news.host] = known
            self._forget_at[f"h{news.host}"] = now_us + rule.forget_us
        return probe_us

    def _note_gone(self, gone: circuit.GoneReceiver, forget_us: int) -> None:
        if gone.generation:
            self._gone[gone.uid] = gone.generation
            self._forget_at[f"g{gone.uid}"] = forget_us
        else:
            self._gone.pop(gone.uid, None)

    def _forget_old(self, now_us: int) -> None:
        for field in [field for field, at_us in self._forget_at.items() if at_us <= now_us]:
            del self._forget_at[field]
            (self._hosts if field[0] == "h" else self._gone).pop(field[1:], None)

    def _seen(self) -> tuple[object, object]:
        """What counts as a change."""
        hosts = {name: (one.is_open, one.until_us) for name, one in self._hosts.items()}
        return hosts, dict(self._gone)
