"""Shows a session as JSON lines, as lines of text, or in the live view of ``make up``.

Only errors of the engine's log go to standard error: troubles and failed runs are reported as
records. The live view uses the whole terminal, so these errors are printed after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import io
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console
from rich.live import Live

from duepoint import telemetry
from duepoint.cli import output, receiver
from duepoint.cli.local import reports, view
from duepoint.cli.local.reports import Record
from duepoint.cli.local.session import RunSession

TICK_SECONDS = 0.5
_MOST_NOTICES = 6
#: How many characters of the log to show after the view.
_LAST_ERRORS = 4_000


async def present(session: RunSession, form: str) -> int:
    """Run a session and show it; return the exit code."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_logging(form))
        if (port := session.receive_port) is not None:
            receiving = receiver.receiving(receiver.HOST, port, session.on_request)
            await stack.enter_async_context(receiving)
        return await (_in_view(session) if form == "view" else session.run())


def _write_json(record: Record) -> None:
    output.write([record], "json")
    sys.stdout.flush()


def _write_text(record: Record) -> None:
    output.say(reports.line_of(record))
    sys.stdout.flush()


#: What to do with each record, by the form of the output.
WRITERS: Mapping[str, Callable[[Record], None]] = {
    "json": _write_json,
    "text": _write_text,
    "view": lambda _record: None,
}


@contextlib.contextmanager
def _logging(form: str) -> Iterator[None]:
    kept = io.StringIO()
    with contextlib.redirect_stderr(kept) if form == "view" else contextlib.nullcontext():
        telemetry.configure_logging("error", "json" if form == "json" else "text")
    try:
        yield
    finally:
        sys.stderr.write(kept.getvalue()[-_LAST_ERRORS:])


async def _in_view(session: RunSession) -> int:
    console = Console()
    running = asyncio.create_task(session.run())
    with (
        quitting() as is_quitting,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while not running.done():
            if is_quitting():
                session.stopping.set()
            notices = [*session.troubles, *session.wrong][:_MOST_NOTICES]
            notices.append(session.note)
            if (port := session.receive_port) is not None:
                taken = f"webhooks taken at http://{receiver.HOST}:{port}: {session.received}"
                notices.append(taken)
            shown = view.screen(
                session.schedules,
                list(session.log.rows()),
                notices,
                now=dt.datetime.now(dt.UTC),
                size=(console.width, console.height),
                end="is taken: stopping ..." if session.stopping.is_set() else "stops everything",
            )
            live.update(shown, refresh=True)
            await asyncio.wait({running}, timeout=TICK_SECONDS)
    code = running.result()
    how, *which = session.log.summary()
    output.say(how)
    for line in (*which, *session.wrong):
        output.say(f"  {line}")
    return code


# -- keys ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def quitting() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether q was pressed since its last call; only in the foreground.

    The terminal would stop a process in the background that changed the terminal's settings.
    """
    descriptor = sys.stdin.fileno() if sys.stdin.isatty() else -1
    if descriptor < 0 or os.tcgetpgrp(descriptor) != os.getpgrp():
        yield lambda: False
        return
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield lambda: b"q" in _typed(descriptor).lower()
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _typed(descriptor: int) -> bytes:
    typed = b""
    while select.select([descriptor], [], [], 0)[0] and (more := os.read(descriptor, 1_024)):
        typed += more
    return typed
