"""How soon after a write the runs of a Schedule may cause the next one.

A status follows its runs by two seconds. A Schedule that runs every second would so cost a write
every two, each as dear to the API server as a create, to say that it still runs: as long as there
is news whenever a write is allowed again, and all of it good, the distance doubles up to ten
seconds. A change of the result, or a moment without news, ends that. A large object costs the API
server a hundred times as much, so its distance follows from its size, whatever the news.
"""

from __future__ import annotations

import msgspec

#: A status follows the runs of its schedule by no more than this when the cluster is calm.
STALENESS_SECONDS = 2.0
#: ... and of one that never pauses by no more than this, while its results are the same.
STEADY_SECONDS = 10.0
#: Of a large object, a second for each of these bytes, and no more than this.
_BYTES_PER_SECOND = 4 * 1024
_MOST_DISTANCE_SECONDS = 60.0
#: News that came so soon after it was allowed had been waiting.
_WAITED_SECONDS = 0.5


def least_distance(size: int) -> float:
    """Seconds between two writes of a large object's runs."""
    return min(size / _BYTES_PER_SECOND, _MOST_DISTANCE_SECONDS)


class Pace(msgspec.Struct, frozen=True, gc=False):
    """The writes of one status; times are monotonic seconds.

    Frozen, so that the many statuses that nobody writes share one.
    """

    written_at: float = float("-inf")
    distance: float = STALENESS_SECONDS

    def rest(self, now: float, *, least: float = 0.0) -> float:
        """Seconds until a run's news may be written again, at least so many after the write."""
        return max(0.0, self.written_at + max(self.distance, least) - now)

    def written(self, now: float) -> Pace:
        """After a write."""
        waited = now <= self.written_at + self.distance + _WAITED_SECONDS
        distance = min(2 * self.distance, STEADY_SECONDS) if waited else STALENESS_SECONDS
        return Pace(written_at=now, distance=distance)

    def hurried(self) -> Pace:
        """After news that is not more of the same."""
        return Pace(written_at=self.written_at, distance=STALENESS_SECONDS)
