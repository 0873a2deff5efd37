"""A histogram that takes many values at once.

prometheus_client's own takes one value a call, and a lock for each: a burst of a thousand firings
would spend more on it than on the rest of their bookkeeping. This one counts by itself and is a
collector, which the library's documentation describes. One event loop observes and scrapes.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import REGISTRY
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry


class BulkHistogram(Collector):
    """Without labels; ``buckets`` are upper bounds, in order."""

    def __init__(
        self,
        name: str,
        documentation: str,
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = (*map(float, buckets), float("inf"))
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0
        registry.register(self)

    def observe(self, amount: float) -> None:
        """Count one value."""
        self.observe_many({amount: 1})

    def observe_many(self, counts: Mapping[float, int]) -> None:
        """Count values: how often each was seen."""
        for amount, count in counts.items():
            self._counts[bisect.bisect_left(self._bounds, amount)] += count
            self._sum += amount * count

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """What the registry asks for at each scrape."""
        totals = itertools.accumulate(self._counts)
        bounds = [*map(str, self._bounds[:-1]), "+Inf"]
        yield HistogramMetricFamily(
            self._name,
            self._documentation,
            buckets=list(zip(bounds, totals, strict=True)),
            sum_value=self._sum,
        )
