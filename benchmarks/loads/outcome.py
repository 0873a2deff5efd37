"""What became of a load, the same for ours and for others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from benchmarks import report
from benchmarks.report import Figure


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one load.

    Attributes:
        early: events before their due time.
        late_ms: of those that came, in ascending order.
    """

    lost: int
    doubled: int
    early: int
    late_ms: list[float]

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

        for name, value in (
            ("lost", self.lost), ("doubled", self.doubled), ("early", self.early),
        ):  # fmt: skip
            yield figure(name, value, "events", "= 0")
        for share in (0.5, 0.9, 0.99, 1.0):
            name = f"lateness p{share * 100:g}" if share < 1 else "lateness max"
            bar = "<= 50" if share == 0.99 else ""
            yield figure(name, report.percentile(self.late_ms, share), "ms", bar)
