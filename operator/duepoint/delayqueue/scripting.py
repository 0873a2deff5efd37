"""The Lua scripts: loading, calling, and what their errors mean.

A script is one file of ``scripts/``; a line ``-- include NAME`` stands for the file of that name
in ``scripts/includes/``. Calls go by EVALSHA; NOSCRIPT (a restarted server) loads everything and
repeats only what was refused, inside pipelines too. Arguments travel by name: ARGV[1] is a
MessagePack map of numbers and text, binary values follow and the map refers to them by position
(``Arguments`` builds both). Nobody outside this package sees a raw reply or a library's error.

Nothing is ever repeated after a lost reply: a script may have been applied. That is the caller's
decision, made with what the script guarantees.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec
import redis.asyncio
import redis.exceptions

from duepoint import errors

#: A command without an answer for so long is given up, and its connection with it.
COMMAND_TIMEOUT_SECONDS = 5.0

_INCLUDE = re.compile(r"^-- include (\w+)$", re.MULTILINE)
_CODE = re.compile(r"^([A-Z]+)\b")


class Uninitialised(errors.QueueUnavailable):
    """The index, or one shard of it, does not exist: the operator has to make it."""


class LayoutChanged(errors.WorldChanged):
    """The index was cut anew or made anew: read the layout, then decide again."""


class Fenced(errors.WorldChanged):
    """A newer leader has been here: this one's term is over."""


class WrongType(errors.DuepointError):
    """The key of a user's stream holds something that is no stream."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one script."""

    script: str
    keys: Sequence[str]
    arguments: Sequence[bytes | str]


@dataclass(frozen=True, slots=True)
class Read:
    """A plain reading command that is to be answered after the calls before it."""

    command: tuple[Any, ...]


class Arguments:
    """ARGV of one call: named numbers and texts, and binary values by position."""

    def __init__(self, **named: object) -> None:
        self._named = named
        self._values: list[bytes | str] = [b""]

    def put(self, name: str, value: object) -> None:
        self._named[name] = value

    def position(self, value: bytes | str) -> int:
        """Where this value stands in ARGV."""
        self._values.append(value)
        return len(self._values)

    def run(self, values: Iterable[bytes | str]) -> tuple[int, int]:
        """Where these values stand in ARGV, first and last; the last is less when none."""
        first = len(self._values) + 1
        self._values.extend(values)
        return first, len(self._values)

    def call(self, script: str, keys: Sequence[str]) -> Call:
        self._values[0] = msgspec.msgpack.encode(self._named)
        return Call(script, keys, self._values)


def source(name: str) -> str:
    """The text of a script as the server gets it, includes in place."""
    folder = resources.files(__package__) / "scripts"

    def included(match: re.Match[str]) -> str:
        return (folder / "includes" / f"{match[1]}.lua").read_text(encoding="utf-8")

    return _INCLUDE.sub(included, (folder / f"{name}.lua").read_text(encoding="utf-8"))


def names() -> tuple[str, ...]:
    """Every script there is."""
    folder = resources.files(__package__) / "scripts"
    return tuple(
        sorted(entry.name[:-4] for entry in folder.iterdir() if entry.name.endswith(".lua"))
    )


class Scripts:
    """The scripts as one server knows them."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._sources = {name: source(name) for name in names()}
        self._shas = {
            name: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            for name, text in self._sources.items()
        }

    async def load(self) -> None:
        """Make sure that the server has every script."""
        pipeline = self._client.pipeline(transaction=False)
        for text in self._sources.values():
            pipeline.script_load(text)
        async with translating("load the scripts", self._client):
            await pipeline.execute()

    async def run(self, call: Call) -> Any:  # noqa: ANN401 - the one place with raw replies
        """The reply to one call; raises the translation of its error."""
        (reply,) = await self.run_many([call])
        if isinstance(reply, errors.DuepointError):
            raise reply
        return reply

    async def run_many(self, calls: Sequence[Call | Read]) -> list[Any]:
        """The replies in order, in one round trip; an error stands in the place of its reply.

        What is read was read after the scripts that stand before it had run: where one of them
        has to be repeated, so has the read.
        """
        if not calls:
            return []
        replies = await self._round_trip(calls)
        refused = _refused(calls, replies)
        if refused:
            await self.load()
            again = await self._round_trip([calls[index] for index in refused])
            for index, reply in zip(refused, again, strict=True):
                replies[index] = reply
        return [
            translated(reply, _attempted(call)) if isinstance(reply, Exception) else reply
            for reply, call in zip(replies, calls, strict=True)
        ]

    async def _round_trip(self, calls: Sequence[Call | Read]) -> list[Any]:
        async with translating(_attempted(calls[0]), self._client):
            if len(calls) == 1:
                return [await self._one(calls[0])]
            pipeline = self._client.pipeline(transaction=False)
            for call in calls:
                pipeline.execute_command(*self._command(call))
            return await pipeline.execute(raise_on_error=False)

    async def _one(self, call: Call | Read) -> Any:  # noqa: ANN401
        try:
            return await self._client.execute_command(*self._command(call))  # type: ignore[no-untyped-call]
        except redis.exceptions.NoScriptError as error:
            return error

    def _command(self, call: Call | Read) -> tuple[Any, ...]:
        if isinstance(call, Read):
            return call.command
        sha = self._shas[call.script]
        return ("EVALSHA", sha, len(call.keys), *call.keys, *call.arguments)


def _refused(calls: Sequence[Call | Read], replies: Sequence[object]) -> list[int]:
    """Scripts that the server did not know, and what was read after the first of them."""
    refused: list[int] = []
    for index, (call, reply) in enumerate(zip(calls, replies, strict=True)):
        unknown = isinstance(reply, redis.exceptions.NoScriptError)
        if unknown or (refused and isinstance(call, Read)):
            refused.append(index)
    return refused


def _attempted(call: Call | Read) -> str:
    return "read" if isinstance(call, Read) else f"run {call.script}"


@contextlib.asynccontextmanager
async def translating(attempted: str, client: redis.asyncio.Redis) -> AsyncIterator[None]:
    """A time limit for what is inside; errors of the library become ours, cancellation passes.

    When a connection breaks, the idle ones beside it are closed too: after a restart of the
    server they are just as dead, and each would cost one more failure.
    """
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
            yield
    except (redis.exceptions.RedisError, OSError) as error:  # TimeoutError is an OSError
        if isinstance(error, redis.exceptions.ConnectionError | OSError):
            await client.connection_pool.disconnect(inuse_connections=False)
        raise translated(error, attempted) from error


_OURS: dict[str, type[errors.DuepointError]] = {
    "UNINIT": Uninitialised,
    "WRONGLAYOUT": LayoutChanged,
    "FENCED": Fenced,
    "WRONGTYPE": WrongType,
}
#: Codes by which a server says "not now" or "not you, not yet": waits, never bugs. Those about
#: rights are among them because a rotated password looks the same and mends itself.
_WAITS = frozenset(
    {
        *("OOM", "BUSY", "LOADING", "READONLY", "MISCONF", "NOREPLICAS", "UNKILLABLE"),
        *("TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "MOVED", "ASK"),
        *("NOAUTH", "WRONGPASS", "NOPERM"),
    }
)
_WAITING_ERRORS = (
    redis.exceptions.ConnectionError,  # also LOADING, wrong password, too many clients
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.NoPermissionError,
    redis.exceptions.ClusterError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    redis.exceptions.MovedError,
    redis.exceptions.AskError,
    OSError,
)


def translated(error: Exception, attempted: str) -> errors.DuepointError:
    """Our error for one of the library's, by what the reader should do next."""
    text = str(error) or type(error).__name__
    message = f"could not {attempted}: {errors.quoted(text)}"
    match = _CODE.match(text)
    code = match[1] if match else ""
    if code in _OURS:
        return _OURS[code](message)
    if code in _WAITS or isinstance(error, _WAITING_ERRORS):
        return errors.QueueUnavailable(message)
    return errors.Bug(message)
