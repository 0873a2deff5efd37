"""What every part of the delay queue shares: the connection, the scripts, the names, the layout.

Owns the client and its settings. RESP2 is pinned (reply shapes differ under RESP3); no command is
repeated by the library (a lost reply may hide an applied script); a cancelled or timed-out
command closes its connection, so that no later command reads a reply that is not its own
(redis-py does that, and a test holds it to it).

Commands time out after five seconds, half of the shortest sensible lease. The limit is ours
(``scripting.translating``), not redis-py's ``socket_timeout``: with that one set it sends under
``asyncio.wait_for``, which on Python 3.11 loses a cancellation that arrives while the bytes go out
(python/cpython#81839): the task then goes on as if nothing had been said.
"""

from __future__ import annotations

import itertools
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.backoff

from duepoint import clock as clocks
from duepoint import errors
from duepoint.delayqueue import (
    foresight,
    gathering,
    interning,
    keys,
    messages,
    scripting,
    seal,
    serverclock,
)

CONNECT_TIMEOUT_SECONDS = 5.0

#: Plain reading commands that one caller wants answered together.
Commands = Sequence[tuple[Any, ...]]


class FilePassword(redis.CredentialProvider):
    """A password that somebody rotates: the file is read again at each connection."""

    def __init__(self, username: str | None, file: Path) -> None:
        self._username = username
        self._file = file

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._file.read_text().strip()
        return (self._username, password) if self._username else (password,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where the server is and how to log in."""

    url: str
    password_file: Path | None = None


def make_client(server: Server, *, connections: int) -> redis.asyncio.Redis:
    """A client on its own pool; raises InvalidSetting on a URL that is none. Does not connect."""
    url, login = server.url, {}
    if server.password_file is not None:
        url, username = _without_user(server.url)
        login["credential_provider"] = FilePassword(username, server.password_file)
    try:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            protocol=2,
            max_connections=connections,
            timeout=scripting.COMMAND_TIMEOUT_SECONDS,
            socket_timeout=None,
            socket_connect_timeout=CONNECT_TIMEOUT_SECONDS,
            socket_keepalive=True,
            retry=redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0),
            **login,
        )
    except ValueError as error:
        raise errors.InvalidSetting("redis_url", str(error)) from error
    return redis.asyncio.Redis.from_pool(pool)


def _without_user(url: str) -> tuple[str, str | None]:
    """The URL without its user part, and the user named there."""
    parts = urllib.parse.urlsplit(url)
    username = urllib.parse.unquote(parts.username) if parts.username else None
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(), username


class Core:
    """Base of the queue's parts."""

    def __init__(
        self,
        url: str,
        *,
        blob_key: bytes,
        prefix: str = keys.DEFAULT_PREFIX,
        clock: clocks.Clock | None = None,
        connections: int = 8,
        password_file: Path | None = None,
    ) -> None:
        self._server = Server(url=url, password_file=password_file)
        self._clock: clocks.Clock = clock or clocks.SystemClock()
        self._client = make_client(self._server, connections=connections)
        self._scripts = scripting.Scripts(self._client)
        self._gathered = gathering.Gathering(self._scripts.run_many)
        self._gathered_reads = gathering.Gathering(self._read_each)
        self._keys = keys.Keys(prefix)
        self._seal = seal.Seal(blob_key)
        self._layout: messages.Layout | None = None
        self._buckets = keys.BUCKETS
        self._interned = interning.Interned()
        self._server_clock = serverclock.ServerClock(self._clock)
        self._foresight = foresight.Foresight()

    async def start(self) -> None:
        await self._scripts.load()

    async def close(self) -> None:
        await self._client.aclose(close_connection_pool=True)  # type: ignore[attr-defined,unused-ignore]

    def _known_layout(self) -> messages.Layout:
        if self._layout is None:
            raise scripting.Uninitialised("the layout has not been read: call layout() first")
        return self._layout

    def _shard(self, shard: messages.ShardId) -> keys.ShardKeys:
        return self._keys.shard(self._known_layout().number, shard)

    async def _read_each(self, groups: list[Commands]) -> list[Any]:
        """Replies of groups of plain reading commands, in one round trip."""
        async with scripting.translating("read", self._client):
            pipeline = self._client.pipeline(transaction=False)
            for command in itertools.chain.from_iterable(groups):
                pipeline.execute_command(*command)
            replies = iter(await pipeline.execute(raise_on_error=False))
        return [_whole(list(itertools.islice(replies, len(group)))) for group in groups]

    async def _read(self, attempted: str, *commands: tuple[Any, ...]) -> list[Any]:
        """Replies of plain reading commands, in one round trip."""
        async with scripting.translating(attempted, self._client):
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return await pipeline.execute()


def _whole(replies: list[Any]) -> list[Any] | errors.DuepointError:
    """The replies of one group; the first error stands for all of them."""
    for reply in replies:
        if isinstance(reply, Exception):
            return scripting.translated(reply, "read")
    return replies
