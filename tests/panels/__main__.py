"""Draw the panels of the Grafana dashboard: ``make panels``, or ``python -m tests.panels --help``.

It needs a control plane of its own, as ``python -m tools.devcluster run --tool helm --`` gives it.
The exit code is 1 where a query of a panel has no data.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.panels import answers, drawing, minutes, prometheus
from tests.support import controlplane
from tools.devcluster import state as states

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "howto" / "panels"
#: Most queries are of the last five minutes.
_WINDOW_SECONDS = 300
VARIABLES = {"installation": minutes.INSTALLATION, "namespace": "|".join(minutes.NAMESPACES)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.panels", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long the faults go on")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER")
    chosen = parser.parse_args()
    if "DUEPOINT_TEST_STATE" not in os.environ:
        _say("this needs a control plane: use `make panels`")
        return 2
    try:
        prometheus.program()
    except FileNotFoundError as error:
        _say(str(error))
        return 2
    return asyncio.run(_draw(chosen.seconds, chosen.into))


async def _draw(seconds: float, into: Path) -> int:
    state = states.State(Path(os.environ["DUEPOINT_TEST_STATE"]))
    record = state.read()
    assert record is not None
    folder = Path(tempfile.mkdtemp(prefix="panels-"))
    _say(f"logs: {folder}")
    async with (
        minutes.running(controlplane.of(state, record), folder) as running,
        prometheus.scraping(running.targets, folder) as server,
    ):
        async with running.in_use():
            _say(f"{_WINDOW_SECONDS} s until the rates of the dashboard have their whole window")
            await asyncio.sleep(_WINDOW_SECONDS)
            began = time.time()
            await running.play(seconds, _say)
            ended = time.time()
        rows = await answers.of_rows(server, VARIABLES, began, ended)
    empty = []
    for row, panels in rows:
        drawn = drawing.picture(row, panels, began, ended, running.events)
        await asyncio.to_thread(_write, into / f"{row.name}.svg", drawn)
        empty += [
            f"{row.title}: {each.panel.title}: {query}" for each in panels for query in each.empty
        ]
    for each in empty:
        _say(f"NO DATA  {each}")
    return 1 if empty else 0


def _write(file: Path, drawn: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(drawn)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
