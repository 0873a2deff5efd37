"""The receiver of `duepoint run`, writing down what arrived.

One JSON line per request in a file: arrival, path, the Schedule, its slot, the attempt, the
`webhook-id`. Everything is answered with 204. It checks no signature and keeps the last few
thousand lines only; it listens on one loopback address.
"""

from __future__ import annotations

import argparse
import errno
import json
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from duepoint.cli.local import receiver

HOST = receiver.HOST
PORT = 8089  # the one the manifests in examples/ name
MOST_BYTES = 4 << 20
_TRIES = 10
_PAUSE_SECONDS = 0.5


class DeliveryFile:
    """Appends a line to `file` for each request."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, request: dict[str, Any]) -> None:
        self._make_room()
        with self._file.open("a") as file:  # a line at a time, so that readers see whole ones
            file.write(json.dumps(request) + "\n")

    def _make_room(self) -> None:
        if self._file.exists() and self._file.stat().st_size > MOST_BYTES:
            self._file.replace(self._file.with_suffix(".old"))


def application(file: Path) -> web.Application:
    return receiver.application(DeliveryFile(file).add)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.up.receiver", description=__doc__)
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--file", type=Path, required=True)
    options = parser.parse_args()
    for left in reversed(range(_TRIES)):
        try:
            web.run_app(application(options.file), host=HOST, port=options.port, access_log=None)
        except OSError as error:
            # It was free a moment ago: a program that checks it holds it for as long.
            if error.errno != errno.EADDRINUSE or left == 0:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


if __name__ == "__main__":
    main()
