"""A real Valkey with a virtual clock: one connection, one command at a time.

Scripts are the product's, except where they read the server's clock: ``TIME`` becomes a key that is
set before each call, and stream ids are made from it. This module answers a client's TIME itself.

Published messages go into a list that is read together with the replies: this needs no second
connection and no extra round trip.

A fallback by k commands empties the server and repeats, each at its own time, all commands that
changed something except the last k. From then on the server has a new run id and no scripts, and
its connections are gone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hiredis
import redis
import redis.exceptions

from duepoint.delayqueue.wire import scripting
from tests.support import redisserver

_NOW = "simulated:now"
#: The true time: stream ids use it, as they never go back, however wrong the server's clock is.
_TRUE_NOW = "simulated:true-now"
_ENTRY_ID = f"""string.format('%.0f-*', math.floor(redis.call('GET', '{_TRUE_NOW}') / 1000))"""
_TIME = re.compile(r"local time = redis\.call\('TIME'\)\n.*\n")
_AUTO_ID = re.compile(r"(redis\.p?call\('XADD', \w+,(?: 'MAXLEN', '~', [\w.]+,)? )'\*'")
_PUBLISHED = "simulated:published"
_PUBLISH = re.compile(r"redis\.call\('SPUBLISH', ")
#: The number of commands that set the two clocks, before the commands of a message.
_OWN_CHANGES = 2
#: Commands that change nothing, or are only about connections.
_READING = frozenset(
    {
        *("PING", "TIME", "INFO", "GET", "HGET", "HMGET", "HGETALL", "HLEN", "HEXISTS", "EXISTS"),
        *("ZRANGE", "ZSCORE", "ZCARD", "ZCOUNT", "ZMSCORE", "XLEN", "XRANGE", "XREVRANGE", "XINFO"),
        *("XPENDING", "SCARD", "SMEMBERS", "HSCAN", "ZSCAN", "SSCAN", "OBJECT", "TYPE", "SCRIPT"),
        *("CONFIG", "MEMORY", "ACL", "STRLEN", "HSTRLEN"),
    }
)
_ERRORS: tuple[tuple[str, type[Exception]], ...] = (
    ("NOSCRIPT ", redis.exceptions.NoScriptError),
    ("OOM ", redis.exceptions.OutOfMemoryError),
    ("NOPERM ", redis.exceptions.NoPermissionError),
    ("READONLY ", redis.exceptions.ReadOnlyError),
)

Command = tuple[Any, ...]


def simulated(text: str) -> str:
    """Return a script's text, changed to read the simulated clock."""
    text = _TIME.sub(f"do return tonumber(redis.call('GET', '{_NOW}')) end\n", text)
    text = _PUBLISH.sub(f"redis.call('RPUSH', '{_PUBLISHED}', ", text)
    return _AUTO_ID.sub(rf"\1{_ENTRY_ID}", text)


_TAKE_PUBLISHED: tuple[Command, ...] = (("LRANGE", _PUBLISHED, 0, -1), ("DEL", _PUBLISHED))
_INFO: Command = ("INFO", "persistence")


def _changes(info: bytes) -> int:
    found = re.search(rb"rdb_changes_since_last_save:(\d+)", info)
    assert found is not None
    return int(found[1])


class Connection:
    """The simulator's own connection; a call sends all commands and reads all replies."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._reader = hiredis.Reader(replyError=redis.exceptions.ResponseError)

    def send(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands and return the replies, errors included."""
        self._socket.sendall(b"".join(map(_packed, commands)))
        return [self.read() for _ in commands]

    def read(self) -> Any:
        while True:
            reply = self._reader.gets()
            if reply is not False:
                return reply
            self._reader.feed(self._socket.recv(65_536))

    def close(self) -> None:
        self._socket.close()


def _packed(command: Command) -> bytes:
    first = command[0]
    if isinstance(first, str) and " " in first:
        command = (*first.split(), *command[1:])
    try:
        packed: bytes = hiredis.pack_command(command)
    except TypeError:  # an argument of a type that the library cannot pack
        packed = hiredis.pack_command(tuple(map(_text, command)))
    return packed


def _text(value: object) -> str | bytes:
    if isinstance(value, bytes):
        return value
    return repr(value) if isinstance(value, float) else str(value)


class SimulatedValkey:
    """The server that histories use one after the other.

    Args:
        path: the server's unix socket.
    """

    def __init__(self, path: str) -> None:
        self._connection = Connection(path)
        self._published: list[tuple[str, bytes]] = []
        self._names = {_sha(scripting.source(name)): name for name in scripting.names()}
        self._callbacks = redis.Redis(protocol=2).response_callbacks
        self.load()
        self.begin(lambda: 0)

    def load(self) -> None:
        """Load the product's scripts, changed for the simulation."""
        #: The product's SHA-1 -> the server's.
        self._texts: dict[str, str] = {}
        for name in scripting.names():
            text = scripting.source(name)
            (sha,) = self._connection.send([("SCRIPT", "LOAD", simulated(text))])
            self._texts[_sha(text)] = sha.decode()

    def begin(self, now_us: Callable[[], int], *, counts: bool = False) -> None:
        """Begin with an empty server.

        Args:
            now_us: the true time, which its clock shows while ``clock_offset_us`` is 0.
            counts: record the commands that change something, so that it can fall back.
        """
        self._now_us = now_us
        self._counts = counts
        self._log: list[tuple[Command, Command]] = []
        self._loaded: set[str] = set()
        self._dirty = 0
        self.clock_offset_us = 0
        self.run = 1
        self._connection.send([("FLUSHALL",)])
        if counts:
            self._dirty = self._changes()
        self.published()

    def forget_clock(self) -> None:
        """Drop the clock of a finished history, which would keep the whole history alive."""
        self._now_us = lambda: 0

    def stop_counting(self) -> None:
        """Stop recording commands: the server will not fall back any more."""
        self._counts = False
        self._log.clear()

    @property
    def run_id(self) -> str:
        return f"{self.run:040x}"

    def close(self) -> None:
        self._connection.close()

    def describe(self, command: Command) -> str:
        """Return a command's text for the trace, without its arguments."""
        if command[0] == "EVALSHA":
            return self._names.get(str(command[1]), "?")
        return str(command[0])

    # -- commands ----------------------------------------------------------------------------

    def carry_out(self, commands: Sequence[Command]) -> list[Any]:
        """Carry out commands and return the replies in order; a failed one's reply is its error."""
        local = [self._answer(command) for command in commands]
        asked = [
            self._translated(command)
            for command, answer in zip(commands, local, strict=True)
            if answer is None
        ]
        replies = iter(self._send(asked)) if asked else iter(())
        return [
            self._finished(command, next(replies)) if answer is None else answer
            for command, answer in zip(commands, local, strict=True)
        ]

    def look(self, *commands: Command) -> list[Any]:
        """Return raw replies for the simulator itself."""
        return self._connection.send(commands)

    def _send(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip, at one instant."""
        clocks = self._clocks(self._now_us())
        if self._counts:
            return self._send_and_count(clocks, commands)
        if not any(command[0] == "EVALSHA" for command in commands):
            return self._connection.send([clocks, *commands])[1:]
        _, *replies, published, _ = self._connection.send([clocks, *commands, *_TAKE_PUBLISHED])
        self._note_published(published)
        return replies

    def _clocks(self, true_us: int) -> Command:
        return ("MSET", _NOW, true_us + self.clock_offset_us, _TRUE_NOW, true_us)

    def _note_published(self, flat: Sequence[bytes]) -> None:
        """Store published messages, given as alternating channels and data."""
        pairs = zip(flat[::2], flat[1::2], strict=True)
        self._published += [(channel.decode(), data) for channel, data in pairs]

    def _send_and_count(self, clocks: Command, commands: Sequence[Command]) -> list[Any]:
        """Send commands, and record those that changed something."""
        sent: list[Command] = [clocks]
        for command in commands:
            sent.append(command)
            if str(command[0]) not in _READING:
                sent += (_INFO, *_TAKE_PUBLISHED)
        answers = iter(self._connection.send(sent)[1:])
        self._dirty += _OWN_CHANGES
        replies = []
        for command in commands:
            replies.append(next(answers))
            if str(command[0]) in _READING:
                continue
            info, published, _ = next(answers), next(answers), next(answers)
            self._note_published(published)
            dirty = _changes(info)
            if dirty > self._dirty + len(published):
                self._log.append((clocks, command))
            self._dirty = dirty + bool(published)
        return replies

    def _changes(self) -> int:
        return _changes(self._connection.send([_INFO])[0])

    def _answer(self, command: Command) -> Any:
        """Return the answer to a command that needs no server; None = ask the server."""
        name = command[0]
        if name == "TIME":
            now_us = self._now_us() + self.clock_offset_us
            return (now_us // 1_000_000, now_us % 1_000_000)
        if name == "SCRIPT" and command[1] == "LOAD":
            sha = _sha(command[2])
            self._loaded.add(sha)
            return sha
        if name == "EVALSHA" and command[1] not in self._loaded:
            return redis.exceptions.NoScriptError("No matching script.")
        return None

    def _translated(self, command: Command) -> Command:
        if command[0] == "EVALSHA":
            return ("EVALSHA", self._texts[command[1]], *command[2:])
        return command

    def _finished(self, command: Command, reply: Any) -> Any:
        name = str(command[0])
        if isinstance(reply, Exception):
            text = str(reply)
            for prefix, type_ in _ERRORS:
                if text.startswith(prefix):
                    return type_(text.removeprefix(prefix) if prefix == "NOSCRIPT " else text)
            return reply
        if name in ("EVALSHA", "HMGET"):
            return reply
        callback = self._callbacks.get(name)
        return reply if callback is None else callback(reply)

    def published(self) -> list[tuple[str, bytes]]:
        """Return the messages since the last call: channel and data."""
        found, self._published = self._published, []
        return found

    # -- what befalls the server ---------------------------------------------------------------

    def flush(self) -> None:
        """Empty the server, as FLUSHALL does."""
        self._connection.send([("FLUSHALL",)])
        self._log.clear()
        self._dirty = self._changes()

    def fall_back(self, commands: int) -> int:
        """Replace the server by one that lacks the last commands that changed something."""
        kept = self._log[: max(0, len(self._log) - commands)]
        lost = len(self._log) - len(kept)
        again = [each for clocks, command in kept for each in (clocks, command)]
        self._connection.send([("FLUSHALL",), *again, ("DEL", _PUBLISHED)])
        self._log = kept
        self._dirty = self._changes()
        self.published()
        self.restart()
        return lost

    def restart(self) -> None:
        """Replace the server by another process with the same data."""
        self.run += 1
        self._loaded.clear()


@contextlib.contextmanager
def a_server() -> Iterator[str]:
    """Yield the unix socket of a running Valkey."""
    with tempfile.TemporaryDirectory(prefix="duepoint-valkey-") as folder:
        path = str(Path(folder) / "valkey.sock")
        options = ("--unixsocket", path, "--enable-debug-command", "local")
        server = redisserver.RedisServer("valkey", Path(folder), *options)
        server.start()
        try:
            yield path
        finally:
            server.stop()


@contextlib.contextmanager
def a_valkey() -> Iterator[SimulatedValkey]:
    """Yield a server for many histories."""
    with a_server() as path:
        valkey = SimulatedValkey(path)
        try:
            yield valkey
        finally:
            valkey.close()


@functools.lru_cache(maxsize=256)  # every process loads every script
def _sha(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
