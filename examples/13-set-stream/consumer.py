# ruff: noqa: INP001 - a script of its own
"""A consumer group over the stream of a set: several consumers share the events of all members.

    pip install redis
    python consumer.py --url redis://127.0.0.1:6379 --stream dp:stream:default:checks

Start as many as you like, each with its own --name. An event is acknowledged when its work is done.
Until then it is pending: if its consumer dies, another one takes it over after --idle seconds. An
event whose work fails again and again is parked in a stream of its own after --attempts, so that it
holds up nothing; the others go on. An id that was handled before is acknowledged without work.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
from typing import Any

import redis

#: How long the id of a handled event is remembered.
REMEMBERED_SECONDS = 7 * 86_400
BATCH = 100

Event = dict[str, str]


def handle(event: Event) -> None:
    """Do your work here. If it raises, the event is tried again later."""
    payload = json.loads(event["payload"]) if event["payload"] else None
    print(event["scheduled_time"], event["id"], payload, flush=True)  # noqa: T201 - what it is for


class Consumer:
    """One member of the group."""

    def __init__(
        self, server: redis.Redis[str], stream: str, group: str, name: str, *, attempts: int = 5
    ) -> None:
        self._server = server
        self._stream = stream
        self._group = group
        self._name = name
        self._attempts = attempts

    def join(self) -> None:
        """Create the group, from the stream's beginning, unless it exists."""
        try:
            self._server.xgroup_create(self._stream, self._group, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def turn(self, *, idle_seconds: float, wait_seconds: float) -> int:
        """One look at what was left over and at what is new; how many were acknowledged."""
        done = sum(self._finish(entry, event) for entry, event in self._left_over(idle_seconds))
        return done + sum(self._finish(entry, event) for entry, event in self._new(wait_seconds))

    def _finish(self, entry: str, event: Event) -> bool:
        """Whether the entry could be acknowledged."""
        seen = f"{self._group}:seen:{event['id']}"
        if not self._server.exists(seen):
            try:
                handle(event)
            except Exception as error:  # noqa: BLE001 - the other entries go on
                return self._failed(entry, event, error)
            self._server.set(seen, "", ex=REMEMBERED_SECONDS)
        self._server.xack(self._stream, self._group, entry)
        return True

    def _failed(self, entry: str, event: Event, error: Exception) -> bool:
        """Leave it pending, or park it after its last attempt."""
        (pending,) = self._server.xpending_range(self._stream, self._group, entry, entry, count=1)
        if pending["times_delivered"] < self._attempts:
            return False
        parked: dict[Any, Any] = {**event, "error": repr(error)[:500]}
        self._server.xadd(f"{self._stream}:{self._group}:parked", parked, maxlen=10_000)
        self._server.xack(self._stream, self._group, entry)
        return True

    def _left_over(self, idle_seconds: float) -> list[tuple[str, Event]]:
        """Events that a dead consumer never acknowledged, or whose work failed."""
        _, found, *_ = self._server.xautoclaim(
            self._stream, self._group, self._name, int(idle_seconds * 1000), count=BATCH
        )
        return [(entry, event) for entry, event in found if event]

    def _new(self, wait_seconds: float) -> list[tuple[str, Event]]:
        found = self._server.xreadgroup(
            self._group, self._name, {self._stream: ">"}, count=BATCH, block=int(wait_seconds * 1e3)
        )
        return [pair for _, entries in found or [] for pair in entries]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="redis://127.0.0.1:6379")
    parser.add_argument("--stream", default="dp:stream:default:checks")
    parser.add_argument("--group", default="example")
    parser.add_argument("--name", default=f"{socket.gethostname()}-{os.getpid()}")
    parser.add_argument("--idle", type=float, default=30.0, metavar="SECONDS")
    parser.add_argument("--attempts", type=int, default=5)
    asked = parser.parse_args()
    server = redis.Redis.from_url(asked.url, decode_responses=True, protocol=2)
    consumer = Consumer(
        server, asked.stream, asked.group, asked.name, attempts=max(asked.attempts, 1)
    )
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    consumer.join()
    while not stopping:  # a consumer that is asked to stop finishes its events
        consumer.turn(idle_seconds=asked.idle, wait_seconds=2.0)


if __name__ == "__main__":
    main()
