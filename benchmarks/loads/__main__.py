"""``python -m benchmarks.loads [NAME ...]``: each load on ours, BullMQ and asynq, or those named.

Three loads of one-offs, spread evenly over their time: 50 in 20 s, 100 in 10 s, 100,000 in 60 s.
They run one after the other, never two at once. ``SMALL=1`` leaves the large one at 5,000 in 5 s.
Pictures of ours go to ``PICTURES``, a folder; unset: none are kept.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.loads import ours, peers
from benchmarks.report import Figure

_LARGE = (5_000, 5) if os.environ.get("SMALL") == "1" else (100_000, 60)
LOADS = ((50, 20), (100, 10), _LARGE)
_OURS = "ours"


async def _ours() -> list[Figure]:
    figures: list[Figure] = []
    with _pictures() as folder:
        async with ours.installed() as installed:
            for count, within in LOADS:
                report.say(f"ours: {count:,} in {within} s")
                picture = folder / f"load-{count}-in-{within}s.svg"
                outcome = await installed.run(count, within, picture)
                figures += outcome.figures(_OURS, count, within, is_ours=True)
    return figures


async def _peer(name: str) -> list[Figure]:
    figures: list[Figure] = []
    for count, within in LOADS:
        report.say(f"{name}: {count:,} in {within} s")
        outcome = await peers.run(name, count, within)
        figures += outcome.figures(name, count, within, is_ours=False)
    return figures


@contextlib.contextmanager
def _pictures() -> Iterator[Path]:
    if kept := os.environ.get("PICTURES"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


if __name__ == "__main__":
    others = {name: functools.partial(_peer, name) for name in peers.PEERS}
    sys.exit(report.measure({_OURS: _ours, **others}, os.environ.get("WHO", "").split()))
