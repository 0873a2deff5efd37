"""A webhook receiver for trying things out: takes every request and writes down what arrived.

One JSON line per request in a file: arrival, path, the Schedule, its slot, the attempt, the
`webhook-id`. Everything is answered with 204. It checks no signature and keeps the last few
thousand lines only; it listens on one loopback address.
"""

from __future__ import annotations

import argparse
import datetime as dt
import errno
import json
import time
from pathlib import Path
from typing import Any

from aiohttp import web

HOST = "127.0.0.1"
PORT = 8089  # the one the manifests in examples/ name
MOST_BYTES = 4 << 20
_TRIES = 10
_PAUSE_SECONDS = 0.5


class Receiver:
    """Appends a line to `file` for each request."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def receive(self, request: web.Request) -> web.Response:
        arrived = dt.datetime.now(dt.UTC)
        line = json.dumps(
            described(arrived, request.path, dict(request.headers), await _text(request))
        )
        self._make_room()
        with self._file.open("a") as file:  # a line at a time, so that readers see whole ones
            file.write(line + "\n")
        return web.Response(status=204)

    def _make_room(self) -> None:
        if self._file.exists() and self._file.stat().st_size > MOST_BYTES:
            self._file.replace(self._file.with_suffix(".old"))


def described(
    arrived: dt.datetime, path: str, headers: dict[str, str], body: str
) -> dict[str, Any]:
    """What is worth keeping of a request, whether or not the body is ours."""
    lowered = {name.lower(): value for name, value in headers.items()}
    data = _data(body)
    schedule = data.get("schedule")
    if not isinstance(schedule, dict):
        schedule = {}
    return {
        "arrived": arrived.isoformat(),
        "path": path,
        "id": lowered.get("webhook-id", ""),
        "namespace": schedule.get("namespace", ""),
        "schedule": schedule.get("name", ""),
        "scheduled_time": data.get("scheduled_time", ""),
        "attempt": data.get("attempt", 0),
    }


def _data(body: str) -> dict[str, Any]:
    try:
        data = json.loads(body)["data"]
    except (ValueError, TypeError, KeyError):
        return {}
    return data if isinstance(data, dict) else {}


async def _text(request: web.Request) -> str:
    return (await request.read()).decode(errors="replace")


def application(file: Path) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", Receiver(file).receive)
    return app


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
