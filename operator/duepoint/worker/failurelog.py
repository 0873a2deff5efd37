"""What has failed, in a bounded number of lines.

A receiver that is down fails a thousand attempts a minute, and a line for each would bury the one
that matters. Per schedule and reason the first failure is told at once and the others once a
minute, with their number; who has stopped failing is forgotten after a last line for what had not
been told. Every failure is counted in exactly one line. Times are monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from duepoint import telemetry

WINDOW_SECONDS = 60.0
#: Schedules remembered at a time; beyond, all is told and forgotten.
MOST_KNOWN = 10_000


@dataclass(slots=True)
class _Failing:
    """A line that was written, and what has come since."""

    told_at: float
    untold: int = 0
    fields: dict[str, object] = field(default_factory=dict)


class FailureLog:
    """Writes ``attempt failed`` lines."""

    def __init__(self) -> None:
        self._failing: dict[tuple[str, str, str], _Failing] = {}
        self._pruned_at = float("-inf")

    def __len__(self) -> int:
        return len(self._failing)

    def record(
        self, schedule: str, *, now: float, namespace: str, reason: str, **fields: object
    ) -> bool:
        """One more failure; True where it was told, so that more may be said beside it."""
        self._forget_old(now)
        key = (namespace, schedule, reason)
        failing = self._failing.get(key)
        if failing is not None and now - failing.told_at < WINDOW_SECONDS:
            failing.untold += 1
            failing.fields = fields
            return False
        count = 1 if failing is None else failing.untold + 1
        self._failing[key] = _Failing(told_at=now)
        _tell(key, count, fields)
        return True

    def _forget_old(self, now: float) -> None:
        """Once in a window; who went on failing since then has a window of its own."""
        full = len(self._failing) >= MOST_KNOWN
        if now - self._pruned_at < WINDOW_SECONDS and not full:
            return
        self._pruned_at = now
        for key, failing in list(self._failing.items()):
            if full or now - failing.told_at >= 2 * WINDOW_SECONDS:
                del self._failing[key]
                if failing.untold:
                    _tell(key, failing.untold, failing.fields)


def _tell(key: tuple[str, str, str], count: int, fields: dict[str, object]) -> None:
    namespace, schedule, reason = key
    telemetry.logger.info(
        "attempt failed",
        namespace=namespace,
        schedule=schedule,
        reason=reason,
        attempts_failed=count,
        **fields,
    )
