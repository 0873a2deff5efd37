"""When the statuses of large objects are written: one at a time, and with rests.

The API server reads, checks and stores a whole object for each write of its status, and sends all
of it to everybody who watches: for 250 KB that takes a hundred times what a usual one takes. So
there is one such write at a time. After each the API server has as much time for others as the
write took, and the namespace of the object waits for a multiple of that, which follows from the
size. Namespaces take turns: the one that had none for longest is next, however many others wait.
Pure but for being mutable; instants are monotonic seconds.
"""

from __future__ import annotations

from duepoint.controller.reconciling.largeobjects import LARGE_BYTES
from duepoint.controller.status.agenda import Agenda

#: A namespace rests as long as its write took for each of these bytes, and no longer than this.
_REST_BYTES = LARGE_BYTES
_MOST_REST_SECONDS = 5.0
_LONG_AGO = float("-inf")


class LargeStatuses:
    """An agenda of each namespace, and whose turn it is."""

    def __init__(self) -> None:
        self._agendas: dict[str, Agenda] = {}
        #: When a namespace that was written for may be written for again.
        self._rested: dict[str, float] = {}
        self._all_rested = _LONG_AGO

    def bring_forward(self, namespace: str, name: str, due: float) -> None:
        """The name is due then, or sooner if it was."""
        self._agendas.setdefault(namespace, Agenda()).bring_forward(name, due)

    def put_off(self, namespace: str, name: str, due: float) -> None:
        """The name is due then and not before."""
        self._agendas.setdefault(namespace, Agenda()).put_off(name, due)

    def drop(self, namespace: str, name: str) -> float | None:
        """The name is not due any more; when it was."""
        agenda = self._agendas.get(namespace)
        return None if agenda is None else agenda.drop(name)

    def next_due(self) -> float | None:
        """When the next one may be written; None where none is due at any time."""
        turns = self._turns()
        return max(min(turns.values()), self._all_rested) if turns else None

    def take(self, now: float) -> str | None:
        """The name that is written now, off the agenda; None where none is. ``rest`` follows."""
        if now < self._all_rested:
            return None
        able = [namespace for namespace, turn in self._turns().items() if turn <= now]
        if not able:
            return None
        longest_ago = min(able, key=lambda namespace: self._rested.get(namespace, _LONG_AGO))
        return self._agendas[longest_ago].take(now)

    def rest(self, namespace: str, size: int, began: float, now: float) -> None:
        """A write of an object of that size has ended."""
        took = now - began
        self._all_rested = now + took
        self._rested = {one: until for one, until in self._rested.items() if until > now}
        self._rested[namespace] = now + max(
            took, min(took * size / _REST_BYTES, _MOST_REST_SECONDS)
        )

    def _turns(self) -> dict[str, float]:
        """From when each namespace may be written for."""
        turns = {}
        for namespace, agenda in list(self._agendas.items()):
            due = agenda.next_due()
            if due is None:
                del self._agendas[namespace]  # nothing is kept of whoever has nothing
            else:
                turns[namespace] = max(due, self._rested.get(namespace, _LONG_AGO))
        return turns
