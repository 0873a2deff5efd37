"""Duepoint as a process that dies at a fault point.

``python -m tests.support.faultyprocess POINT COMMAND ...`` is ``duepoint COMMAND ...``. It dies as
by kill -9 when it reaches the point for the first time: no handler runs, no connection is closed
properly.
"""

from __future__ import annotations

import os
import signal
import sys

from duepoint import cli, faults
from duepoint.faults import FaultPoint


def main() -> None:
    """Install the fault, then run ``duepoint COMMAND ...``."""
    wanted = FaultPoint(sys.argv[1])

    async def die(point: FaultPoint) -> None:
        if point is wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    faults.install(die)
    sys.argv[1:] = sys.argv[2:]
    cli.main()


if __name__ == "__main__":
    main()
