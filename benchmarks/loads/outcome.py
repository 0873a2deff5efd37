"""What became of a load, the same for ours and for others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from benchmarks.report import Figure
from duepoint.cli.load import lateness

#: Milliseconds, for ours.
_BAR = "<= 50"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one load; ``early`` counts events before their due time."""

    lost: int
    doubled: int
    early: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float

    def figures(
        self, who: str, count: int, within_seconds: int, *, is_ours: bool
    ) -> Iterator[Figure]:
        """Lines of the report; bars are for ours."""
        load = f"{who}: {count:,} in {within_seconds} s"

        def figure(name: str, value: float, unit: str, bar: str = "") -> Figure:
            return Figure(
                benchmark="loads", figure=f"{load}, {name}", value=value, unit=unit,
                bar=bar if is_ours else "", runs=count,
            )  # fmt: skip

        yield figure("lost", self.lost, "events", "= 0")
        yield figure("doubled", self.doubled, "events", "= 0")
        yield figure("early", self.early, "events", "= 0")
        yield figure("lateness p50", self.p50_ms, "ms")
        yield figure("lateness p90", self.p90_ms, "ms")
        yield figure("lateness p99", self.p99_ms, "ms", _BAR)
        yield figure("lateness max", self.max_ms, "ms")


def measured(late_us: Sequence[int], *, lost: int, doubled: int) -> Outcome:
    """Of the lateness of each event that came."""
    ascending = sorted(late_us)
    p50, p90, p99, most = (
        lateness.percentile(ascending, share) / 1_000 for share in (0.5, 0.9, 0.99, 1.0)
    )
    return Outcome(
        lost=lost, doubled=doubled, early=sum(late < 0 for late in late_us),
        p50_ms=p50, p90_ms=p90, p99_ms=p99, max_ms=most,
    )  # fmt: skip
