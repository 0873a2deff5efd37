"""What the last slots cost that Redis keeps: firing rate, CPU and memory, with and without them.

The full chain of one worker process, as in ``chain``, in pairs of turns, one that keeps them and
one that does not, each on a server of its own. Every firing is a request whose target answers at
once, so the rate is what the worker itself does; of entries of streams nothing is kept.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator

from benchmarks import report
from benchmarks.queuespeed import chain
from benchmarks.report import Figure
from duepoint.delayqueue import quotas

NAME = "history"
_OFF = dataclasses.replace(quotas.USUAL, history=0)


async def run(kind: str, *, count: int = 100_000, turns: int = 5) -> list[Figure]:
    case = chain.Firings.REQUESTS
    report.say(f"{kind}: {count:,} chains due at once, {case.value}, history on and off")
    pairs = [
        (
            await chain.turn(kind, count, case, quotas.USUAL),
            await chain.turn(kind, count, case, _OFF),
        )
        for _ in range(turns)
    ]
    return list(_figures(f"{kind}, {count:,} due at once, {case.value}", pairs))


def _figures(case: str, pairs: list[tuple[chain.Taken, chain.Taken]]) -> Iterator[Figure]:
    ratios = [on.rate / off.rate for on, off in pairs]

    def both(name: str, unit: float, digits: int) -> str:
        on, off = (statistics.median(getattr(pair[i], name) for pair in pairs) for i in (0, 1))
        return f"{on / unit:,.{digits}f} and {off / unit:,.{digits}f}"

    yield Figure(
        benchmark=NAME, figure=f"firing rate, on / off: {case}", unit="times", bar=">= 0.95",
        value=round(statistics.median(ratios), 3), runs=len(ratios),
        spread=(round(min(ratios), 3), round(max(ratios), 3)),
        compared_with=(
            f"{both('rate', 1, 0)} firings/s; CPU of a firing: client {both('client_us', 1, 1)} us,"
            f" server {both('server_us', 1, 1)} us; its memory: {both('memory', 1e6, 1)} MB"
        ),
    )  # fmt: skip
