"""`python -m tools.up.picture FILE`: the live view of what `make up DETACH=1` runs, as an SVG.

The picture in the README is one of these, so it shows a real run. It is recorded once a webhook and
a Job have arrived and some seconds have passed.
"""

from __future__ import annotations

import datetime as dt
import io
import re
import sys
import time
from pathlib import Path

from rich.console import Console

from duepoint.cli.local import view
from tools.devcluster import state as states
from tools.devcluster.errors import DevClusterError
from tools.up.watching import Watcher

COLUMNS, ROWS = 118, 26
#: rich names a font of another site; any monospaced one will do.
_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def main(file: Path, watcher: Watcher, settle_seconds: float = 20.0) -> None:
    watcher.wait_for_first()
    time.sleep(settle_seconds)
    watcher.look()
    file.write_text(svg(watcher, dt.datetime.now(dt.UTC)), encoding="utf-8")


def svg(watcher: Watcher, now: dt.datetime) -> str:
    """The screen of this moment."""
    console = Console(
        record=True, width=COLUMNS, height=ROWS, file=io.StringIO(), force_terminal=True
    )
    arrived = [*watcher.jobs, *watcher.webhooks]
    size = (COLUMNS, ROWS)
    console.print(view.screen(watcher.schedules, arrived, watcher.notices, now=now, size=size))
    return _FONT.sub("", console.export_svg(title="make up"))


if __name__ == "__main__":
    from tools.up.__main__ import bring_up

    if len(sys.argv) != 2:
        raise DevClusterError("write the file: python -m tools.up.picture docs/pictures/view.svg")
    main(Path(sys.argv[1]), bring_up(states.default(), "simulated")[0])
