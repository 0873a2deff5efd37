"""Runs the receiver of `duepoint run` as a process; it writes a JSON line for each request.

It answers 204 to everything, checks no signature, and listens on one loopback address.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from duepoint.cli import receiver

HOST = receiver.HOST
PORT = 8089  # the one that the manifests of examples/ name
MOST_BYTES = 4 << 20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.up.receiver", description=__doc__)
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--file", type=Path, required=True)
    options = parser.parse_args()

    def note(request: dict[str, Any]) -> None:
        if options.file.exists() and options.file.stat().st_size > MOST_BYTES:
            options.file.replace(options.file.with_suffix(".old"))
        with options.file.open("a") as file:  # a line at a time, so that readers see whole ones
            file.write(json.dumps(request, default=str) + "\n")

    web.run_app(receiver.application(note), host=HOST, port=options.port, access_log=None)


if __name__ == "__main__":
    main()
