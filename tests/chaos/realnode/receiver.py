"""A receiver for a Pod: answers every POST, follows a stream, and logs both to `/log/received`.

A line has the arrival in microseconds and the path. For a webhook it also has the name of the
Schedule or member, the `id` and the header `x-key`; for any other request, its text. A stream entry
has the path `/member`, its payload as the name, and its own time as the arrival.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import IO, cast

import redis.asyncio

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
FLUSH_SECONDS = 0.5


class Receiver(asyncio.Protocol):
    def __init__(self, log: IO[str]) -> None:
        self._log = log
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        arrived_us = time.time_ns() // 1000
        self._got += data
        head, separator, rest = self._got.partition(b"\r\n\r\n")
        if not separator:
            return
        first, *lines = head.decode().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        body, self._got = rest[:length], rest[length:]
        self._transport.write(ANSWER)
        if headers.get("connection", "").lower() == "close":
            self._transport.close()
        said = body.decode()
        if said.startswith("{"):
            fired = json.loads(said)["data"]
            said = f"{fired['schedule']['name']} {fired['id']} {headers.get('x-key', '-')}"
        self._log.write(f"{arrived_us} {first.split()[1]} {said}\n")


async def follow(host: str, stream: str, log: IO[str]) -> None:
    """Log new entries of a stream, also after the server has restarted."""
    last = b"0"
    while True:
        try:
            async with redis.asyncio.Redis(
                host=host, username="reader", password="reader", socket_timeout=5
            ) as server:
                while True:
                    for _, entries in await server.xread({stream: last}, count=2_000, block=1_000):
                        for last, fields in entries:
                            name = fields[b"payload"].decode().strip('"')
                            arrived = last.partition(b"-")[0].decode() + "000"
                            log.write(f"{arrived} /member {name} {fields[b'id'].decode()} -\n")
        except (redis.RedisError, OSError):
            await asyncio.sleep(0.1)


async def main(host: str, stream: str) -> None:
    loop = asyncio.get_running_loop()
    with open("/log/received", "a", buffering=1 << 20) as log:  # noqa: ASYNC230, PTH123 - few
        await loop.create_server(lambda: Receiver(log), "0.0.0.0", 8080, backlog=1024)
        following = loop.create_task(follow(host, stream, log))
        while not following.done():
            await asyncio.sleep(FLUSH_SECONDS)
            log.flush()
        following.result()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
