"""Jobs of which this worker has asked for and heard nothing, by name.

A batch leaves such a Job to an attempt of its own, which may be answered although the first request
is still under way; whoever is told of that Job has to know. Forgotten once no such request can be
carried out any more.
"""

from __future__ import annotations

from collections import OrderedDict

from duepoint.clock import Clock
from duepoint.runs import outcome

_LATE_SECONDS = outcome.LATE_US / 1_000_000


class OpenRequests:
    """Of one worker; the order is that of the instants."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: OrderedDict[tuple[str, str], float] = OrderedDict()

    def note(self, namespace: str, job_name: str) -> None:
        """No answer came to a request for this Job that was sent until now."""
        self._forget()
        self._sent[namespace, job_name] = self._clock.monotonic()
        self._sent.move_to_end((namespace, job_name))

    def has(self, namespace: str, job_name: str) -> bool:
        """Whether one may be under way."""
        self._forget()
        return (namespace, job_name) in self._sent

    def _forget(self) -> None:
        past = self._clock.monotonic() - _LATE_SECONDS
        while self._sent and next(iter(self._sent.values())) <= past:
            self._sent.popitem(last=False)
