"""``duepoint run``: runs Duepoint without a cluster, and shows it in one of three ways.

They are JSON lines, lines of text, and the live view of ``make up``. Only errors of the engine's
log go to standard error: troubles and failed runs are reported as records. The live view uses the
whole terminal, so these errors are printed after it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime as dt
import io
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Any

import click
import uvloop
from rich.console import Console
from rich.live import Live

from duepoint import telemetry
from duepoint.cli import options, output, receiver
from duepoint.cli.local import view
from duepoint.cli.local.manifestfiles import ManifestFiles
from duepoint.cli.local.session import RunSession
from duepoint.cli.local.view import Record


@click.command("run")
@click.argument("paths", metavar="[FILE|DIR]...", nargs=-1)
@click.option(
    "--filename", "-f", "filenames", metavar="FILE|DIR", multiple=True,
    help="The same: manifests, watched while it runs; a folder with its folders. May be repeated.",
)  # fmt: skip
@options.namespace
@click.option("--exec", "executes", is_flag=True, help="Run the commands of Jobs on this machine.")
@click.option(
    "--once", is_flag=True, help="Run each Schedule once, now, and end; its own slots do not run."
)
@click.option(
    "--for", "seconds", metavar="DURATION", type=options.Converted(options.timeout_seconds),
    help="End after so long, such as 90s or 10m; 0 = not by itself.",
)  # fmt: skip
@click.option(
    "--receive", "receive_port", metavar="PORT", type=click.IntRange(1, 65_535),
    help="Take webhooks at http://127.0.0.1:PORT, those to Services too; answer 204 and show them.",
)  # fmt: skip
@click.option(
    "--output", "-o", "form", metavar="json|text|view",
    type=click.Choice(("json", "text", "view"), case_sensitive=False),
    default=lambda: "view" if output.can_redraw(sys.stdout) else "text",
    help="Unset: the live view on a terminal, elsewhere text.",
)  # fmt: skip
def run(*, paths: tuple[str, ...], filenames: tuple[str, ...], form: str, **given: Any) -> None:  # noqa: ANN401 - click's values
    """Run manifests on this machine, without a cluster, until Ctrl-C.

    Operator, queue and worker are those of an installation; an embedded Valkey holds the queue, and
    memory the objects. Webhooks and streams are really sent. Jobs are shown as they would be
    created and complete after a second, or run as processes of this machine with --exec; no
    container runs.

    Example: duepoint run -f examples --receive 8089
    """
    lines: Lines = collections.deque(maxlen=_MOST_LINES)
    show: dict[str, Callable[[Record], object]] = {
        "json": lambda record: output.write([record], "json"),
        "text": lambda record: output.say(view.line_of(record)),
        "view": lambda record: lines.appendleft(view.line_of(record)),
    }
    names = options.named_files(paths, filenames)
    files = ManifestFiles(names, namespace=given.pop("namespace"))
    running = RunSession(report=show[form], files=files, **given)
    raise click.exceptions.Exit(uvloop.run(_present(running, form, lines)))


TICK_SECONDS = 0.5
_MOST_NOTICES = 6
#: How many lines the view keeps; the newest ones fill the screen.
_MOST_LINES = 200
Lines = collections.deque[str]
#: How many characters of the log to show after the view.
_LAST_ERRORS = 4_000


async def _present(session: RunSession, form: str, lines: Lines) -> int:
    """Run a session and show it; return the exit code."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_logging(form))
        if (port := session.receive_port) is not None:
            receiving = receiver.receiving(receiver.HOST, port, session.on_request)
            await stack.enter_async_context(receiving)
        return await (_in_view(session, lines) if form == "view" else session.run())


@contextlib.contextmanager
def _logging(form: str) -> Iterator[None]:
    kept = io.StringIO()
    with contextlib.redirect_stderr(kept) if form == "view" else contextlib.nullcontext():
        telemetry.configure_logging("error", "json" if form == "json" else "text")
    try:
        yield
    finally:
        sys.stderr.write(kept.getvalue()[-_LAST_ERRORS:])


async def _in_view(session: RunSession, lines: Lines) -> int:
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
                tuple(lines),
                notices,
                now=dt.datetime.now(dt.UTC),
                size=(console.width, console.height),
                former=session.former,
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
        yield lambda: bool(
            select.select([descriptor], [], [], 0)[0] and b"q" in os.read(descriptor, 1_024).lower()
        )
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
