"""Inject faults into real processes and judge the outcome (``make chaos``).

A run needs a control plane of its own: put ``python -m tools.devcluster run --tool helm --`` in
front of this command. Checking a stored history needs none.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos import checker, history, quietness, report
from tests.chaos.plan import FaultKind


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="decides the plan; unset: a random one")
    parser.add_argument(
        "--kind",
        choices=("single", "cluster", "sentinel"),
        default="single",
        help="the Redis set-up",
    )
    parser.add_argument("--size", choices=("small", "usual", "soak"), default="usual")
    parser.add_argument("--rounds", type=int, help="of faults; unset: as many as the size has")
    parser.add_argument("--faults", default="", help="kinds of faults, a,b,c; unset: all")
    parser.add_argument("--check", type=Path, metavar="FILE", help="judge a stored history again")
    parser.add_argument("--keep", type=Path, default=Path(".duepoint/chaos"), metavar="FOLDER")
    chosen = parser.parse_args()
    if chosen.check is not None:
        found = history.read_file(chosen.check)
        from tests.chaos import sizes

        rounds = chosen.rounds or sizes.RHYTHMS[chosen.size].rounds
        return _judge(found, sorted({one.kind for one in found.faults}), rounds, chosen.size)
    seed = random.SystemRandom().randrange(1_000_000) if chosen.seed is None else chosen.seed
    return _play(seed, chosen)


def _play(seed: int, chosen: argparse.Namespace) -> int:
    from tests.chaos import playing, sizes

    if "DUEPOINT_TEST_STATE" not in os.environ:
        _say("a run needs a control plane: use `make chaos`")
        return 2
    chosen.keep.mkdir(parents=True, exist_ok=True)
    path = chosen.keep / f"{chosen.kind}-{seed}-{time.strftime('%Y%m%dT%H%M%S')}.jsonl"
    _say(f"seed {seed}; the history goes to {path}")
    kinds = [FaultKind(name) for name in chosen.faults.split(",") if name]
    plane, stopped = sizes.own_plane()
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    wanted = sizes.wanted(chosen.size, seed, chosen.kind, kinds, stopped)
    if chosen.rounds:
        rhythm = dataclasses.replace(wanted.rhythm, rounds=chosen.rounds)
        wanted = dataclasses.replace(wanted, rhythm=rhythm)
    _say(f"logs: {folder}")
    played = asyncio.run(playing.play(wanted, plane, folder, path, _say))
    history_ = played.recorder.history
    return _judge(history_, sorted(played.kinds), wanted.rhythm.rounds, chosen.size)


def _judge(found: history.History, kinds: list[str], rounds: int, size: str) -> int:
    violations = checker.judge(found)
    least = rounds if size == "soak" else None
    complaints = list(quietness.complaints(found, kinds, rounds=rounds, least_faults=least))
    for line in report.lines(found, violations, complaints):
        _say(line)
    return 1 if violations or complaints else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
