"""Points that have lost two owners: a worker has one claim of them in hand at a time.

Something among them may end whoever tries it. Expired claims are taken over in ever smaller parts,
so that it is soon alone; but a worker that takes all the parts at once takes its neighbours along
each time, and whatever has not ended by then gets as suspicious as the culprit. So the others wait
here until those in hand have ended, or have been in hand for so long that they are not what ends
workers at once. Fresh points do not wait, nor do those that have lost one owner. Pure; instants are
monotonic seconds.
"""

from __future__ import annotations

from duepoint.delayqueue import messages


class SuspectClaims:
    """Of one worker.

    Args:
        patience_seconds: in hand for so long, a claim holds up no other.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._until = float("-inf")
        self._waiting: set[messages.ShardId] = set()

    def begin(self, now: float) -> bool:
        """Whether one may be asked for now; then nobody else may for a while."""
        if now < self._until:
            return False
        self._until = now + self._patience
        return True

    def wait(self, shard: messages.ShardId, now: float) -> float:
        """Seconds until this shard may be looked at again, if nothing ends sooner."""
        self._waiting.add(shard)
        return max(self._until - now, 0.0)

    def end(self) -> tuple[messages.ShardId, ...]:
        """What was in hand has ended, or there was nothing: the shards to look at again."""
        self._until = float("-inf")
        waiting, self._waiting = tuple(self._waiting), set()
        return waiting
