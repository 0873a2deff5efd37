"""``duepoint run``: runs Duepoint without a cluster.

The engine is imported only when the command runs, so that ``--help`` is quick.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from duepoint.cli import options, output

_MOST_PORT = 65_535


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
    "--receive", "receive_port", metavar="PORT", type=options.whole(_MOST_PORT),
    help="Take webhooks at http://127.0.0.1:PORT, those to Services too; answer 204 and show them.",
)  # fmt: skip
@click.option(
    "--output", "-o", "form", metavar="json|text|view", type=options.words("json", "text", "view"),
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
    import uvloop  # noqa: PLC0415 - quick --help

    from duepoint.cli.local import presenting, session  # noqa: PLC0415 - quick --help

    files = options.named_files(paths, filenames)
    running = session.RunSession(presenting.WRITERS[form], files=files, **given)
    raise click.exceptions.Exit(uvloop.run(presenting.present(running, form)))
