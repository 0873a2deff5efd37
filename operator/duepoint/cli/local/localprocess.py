"""One command as a process of this machine, with its output line by line.

The process leads a session of its own. As the end of a container's first process ends the
container, its exit ends the session: what it left in the background is killed and does not hold up
the end of its output. A cancelled run is ended with SIGTERM, and with SIGKILL three seconds later.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from duepoint import errors

#: From SIGTERM to SIGKILL.
GRACE_SECONDS = 3.0
#: Of a line, in characters; the rest of a longer one is not shown.
LONGEST_LINE = 2_000
_LONGEST_BYTES = 1 << 20
#: What is still in the pipe after the end.
_LAST_WORDS_SECONDS = 1.0


class CannotRun(Exception):
    """This machine cannot run the command; the message says what to write."""


async def run(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    folder: str | None,
    on_line: Callable[[str], None],
) -> int:
    """Run to the end; the exit code, or minus the number of the signal that ended it.

    Args:
        words: the program and its arguments.
        environment: added to ours.
        folder: to run in; None = ours.
        on_line: takes each line of standard output and standard error.

    Raises:
        CannotRun: there is no such program or folder.
    """
    if folder is not None and not Path(folder).is_dir():  # noqa: ASYNC240 - a folder of the machine
        raise CannotRun(f"workingDir {errors.quoted(folder)} is no folder of this machine")
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        os.close(reading)
        why = getattr(error, "strerror", None) or str(error)
        raise CannotRun(f"{errors.quoted(words[0])} cannot be run here: {why}") from None
    finally:
        os.close(writing)
    output = asyncio.create_task(_read(reading, on_line))
    try:
        return await process.wait()
    finally:
        await _end(process)
        await asyncio.wait({output}, timeout=_LAST_WORDS_SECONDS)
        output.cancel()


async def _read(reading: int, on_line: Callable[[str], None]) -> None:
    stream = asyncio.StreamReader(limit=_LONGEST_BYTES)
    pipe = os.fdopen(reading, "rb")
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), pipe
    )
    try:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # no line break within the limit: that part is dropped
                continue
            if not line:
                return
            on_line(line.decode(errors="replace").rstrip("\r\n")[:LONGEST_LINE])
    finally:
        transport.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Nothing of the session is left afterwards."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE_SECONDS)
    _signal(process, signal.SIGKILL)
    if process.returncode is None:
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
