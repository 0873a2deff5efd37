"""What became of a load: lost, doubled, early, and how late. Pure.

Lateness is the receiver's clock at the arrival less the due time. Percentiles are nearest-rank: a
value that was measured, with at most that share of the others above it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from duepoint.cli import output

_SHARES = (0.5, 0.9, 0.99)


@dataclass(slots=True, kw_only=True)
class Arrivals:
    """What has arrived so far, by the numbers of the one-offs.

    Attributes:
        first_us: when each arrived first; 0 = not yet.
        repeated: numbers that arrived again, once for each time.
        foreign: requests that were no event of this load.
    """

    due_us: Sequence[int]
    first_us: list[int] = field(init=False)
    repeated: list[int] = field(default_factory=list)
    count: int = 0
    foreign: int = 0

    def __post_init__(self) -> None:
        self.first_us = [0] * len(self.due_us)

    def add(self, number: int, arrived_us: int) -> None:
        if self.first_us[number]:
            self.repeated.append(number)
            return
        self.first_us[number] = arrived_us
        self.count += 1

    def late_us(self) -> list[int]:
        """Of those that arrived, in ascending order; negative = early."""
        pairs = zip(self.first_us, self.due_us, strict=True)
        return sorted(arrived - due for arrived, due in pairs if arrived)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """A load that has ended.

    Attributes:
        refused: by code, those that the API did not take.
        submitted_seconds: from the first request to the last answer.
        accepted_late: were answered after their due time, so they could not be punctual.
        arrived: of all; lost: of those that the API accepted.
        late_us: of those that arrived, in ascending order.
    """

    set_name: str
    count: int
    within_seconds: float
    accepted: int
    refused: dict[str, int]
    submitted_seconds: float
    accepted_late: int
    arrived: int
    lost: int
    doubled: int
    foreign: int
    late_us: list[int]

    @property
    def early(self) -> int:
        return sum(late < 0 for late in self.late_us)

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.doubled or self.early or self.refused)

    def percentile_ms(self, share: float) -> float | None:
        """None where nothing arrived."""
        return percentile(self.late_us, share) / 1_000 if self.late_us else None

    def row(self) -> output.Row:
        """The report as JSON."""
        return {
            "set": self.set_name,
            "count": self.count,
            "withinSeconds": self.within_seconds,
            "accepted": self.accepted,
            "refused": self.refused,
            "submittedSeconds": round(self.submitted_seconds, 3),
            "acceptedLate": self.accepted_late,
            "arrived": self.arrived,
            "lost": self.lost,
            "doubled": self.doubled,
            "early": self.early,
            "foreign": self.foreign,
            "latenessMs": {
                **{f"p{share * 100:g}": self.percentile_ms(share) for share in _SHARES},
                "max": self.percentile_ms(1.0),
            },
        }

    def lines(self) -> list[str]:
        """The report as text."""
        rate = self.accepted / self.submitted_seconds if self.submitted_seconds else 0.0
        lines = [
            (
                f"submitted  {self.accepted:,} of {self.count:,} in"
                f" {output.span(self.submitted_seconds)} ({rate:,.0f}/s)"
            )
        ]
        if self.refused:
            codes = ", ".join(f"{code} {count:,}" for code, count in self.refused.items())
            lines.append(f"refused    {codes}")
        if self.accepted_late:
            lines.append(f"           {self.accepted_late:,} of them after their due time")
        lines.append(
            f"arrived    {self.arrived:,}; lost {self.lost:,}, doubled {self.doubled:,},"
            f" early {self.early:,}"
        )
        if self.late_us:
            shown = (f"p{share * 100:g} {_ms(self.percentile_ms(share))}" for share in _SHARES)
            lines.append(f"lateness   {'  '.join(shown)}  max {_ms(self.percentile_ms(1.0))}")
        if self.foreign:
            lines.append(f"besides    {self.foreign:,} requests that were no event of this load")
        return lines


def percentile(ascending: Sequence[int], share: float) -> int:
    """Nearest-rank; of at least one value."""
    return ascending[max(math.ceil(share * len(ascending)) - 1, 0)]


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f} ms"
