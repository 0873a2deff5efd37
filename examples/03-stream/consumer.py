# ruff: noqa: INP001 - a script of its own
"""A consumer group over a stream that Duepoint fills: one of many consumers handles each event.

    pip install redis
    python consumer.py --url redis://127.0.0.1:6379 --stream dp:stream:default:ticks

Start as many as you like, each with its own --name. After --idle seconds another consumer takes
over events that a dead consumer never acknowledged. An event that was handled before is recognised
by its id, which is the same for every attempt of a slot. A consumer first handles an event and then
notes its id, so a crash between the two, or work that takes longer than --idle, repeats the work.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
from collections.abc import Iterator

import redis

#: How long the id of a handled event is remembered.
REMEMBERED_SECONDS = 7 * 86_400


def handle(event: dict[str, str]) -> None:
    """Do your work here. If it raises, another consumer handles the event again."""
    payload = json.loads(event["payload"]) if event["payload"] else None
    print(event["scheduled_time"], event["id"], payload, flush=True)  # noqa: T201 - what it is for


class Consumer:
    """One member of the group."""

    def __init__(self, server: redis.Redis, stream: str, group: str, name: str) -> None:
        self._server = server
        self._stream = stream
        self._group = group
        self._name = name

    def join(self) -> None:
        """Create the group, from the stream's beginning, unless it exists."""
        try:
            self._server.xgroup_create(self._stream, self._group, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def turn(self, *, idle_seconds: float, wait_seconds: float) -> int:
        """Handle events of dead consumers, then new ones, and return their number."""
        handled = 0
        for entry_id, event in [*self._left_over(idle_seconds), *self._new(wait_seconds)]:
            self._handle_once(event)
            self._server.xack(self._stream, self._group, entry_id)
            handled += 1
        return handled

    def _handle_once(self, event: dict[str, str]) -> None:
        seen = f"{self._group}:seen:{event['id']}"
        if self._server.exists(seen):
            return
        handle(event)
        self._server.set(seen, "", ex=REMEMBERED_SECONDS)

    def _left_over(self, idle_seconds: float) -> Iterator[tuple[str, dict[str, str]]]:
        _, found, *_ = self._server.xautoclaim(
            self._stream, self._group, self._name, int(idle_seconds * 1000), count=100
        )
        yield from ((entry_id, event) for entry_id, event in found if event)

    def _new(self, wait_seconds: float) -> Iterator[tuple[str, dict[str, str]]]:
        found = self._server.xreadgroup(
            self._group, self._name, {self._stream: ">"}, count=100, block=int(wait_seconds * 1000)
        )
        for _, entries in found or []:
            yield from entries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="redis://127.0.0.1:6379")
    parser.add_argument("--stream", default="dp:stream:default:ticks")
    parser.add_argument("--group", default="example")
    parser.add_argument("--name", default=f"{socket.gethostname()}-{os.getpid()}")
    parser.add_argument("--idle", type=float, default=30.0, metavar="SECONDS")
    asked = parser.parse_args()
    server = redis.Redis.from_url(asked.url, decode_responses=True, protocol=2)
    consumer = Consumer(server, asked.stream, asked.group, asked.name)
    consumer.join()
    while True:
        consumer.turn(idle_seconds=asked.idle, wait_seconds=5.0)


if __name__ == "__main__":
    main()
