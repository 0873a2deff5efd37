"""``duepoint run``: try Duepoint without a cluster.

What the engine is made of is imported when the command runs, so that ``--help`` is quick.
"""

from __future__ import annotations

import re
import sys

import click

from duepoint import errors
from duepoint.cli import options, output
from duepoint.net import addresses

_MOST_PORT = 65_535
_SERVICE = re.compile(
    r"(?P<name>[a-z0-9]([-a-z0-9]*[a-z0-9])?)(\.(?P<namespace>[a-z0-9]([-a-z0-9]*[a-z0-9])?))?"
    r":(?P<service_port>[a-z0-9]([-a-z0-9]*[a-z0-9])?)"
    r"=(\[(?P<v6>[^]]+)\]|(?P<v4>[^:\[\]]+)):(?P<port>[0-9]{1,5})"
)


def _service(text: str) -> re.Match[str]:
    found = _SERVICE.fullmatch(text)
    if found is None or addresses.parse(found["v6"] or found["v4"]) is None:
        example = "write SERVICE[.NAMESPACE]:PORT=ADDRESS:PORT, such as billing:80=127.0.0.1:8089"
        raise ValueError(f"{errors.quoted(text)}: {example}")
    if not 0 < int(found["port"]) <= _MOST_PORT:
        raise ValueError(f"{errors.quoted(text)}: write a port from 1 to {_MOST_PORT}")
    return found


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
    help="Take webhooks at http://127.0.0.1:PORT, answer 204 and show them.",
)  # fmt: skip
@click.option(
    "--service", "named_services", metavar="SERVICE:PORT=ADDRESS:PORT", multiple=True,
    type=options.Converted(_service), help="Where webhooks to a Service go. May be repeated.",
)  # fmt: skip
@click.option(
    "--output", "-o", "form", metavar="json|text|view", type=options.words("json", "text", "view"),
    default=lambda: "view" if output.can_redraw(sys.stdout) else "text",
    help="Unset: the live view on a terminal, elsewhere text.",
)  # fmt: skip
def run(
    *,
    paths: tuple[str, ...],
    filenames: tuple[str, ...],
    namespace: str,
    executes: bool,
    once: bool,
    seconds: float | None,
    receive_port: int | None,
    named_services: tuple[re.Match[str], ...],
    form: str,
) -> None:
    """Run manifests on this machine, without a cluster, until Ctrl-C.

    Operator, queue and worker are those of an installation; an embedded Valkey holds the queue, and
    memory the objects. Webhooks and streams are really sent. Jobs are shown as they would be
    created and complete after a second, or run as processes of this machine with --exec; no
    container runs.
    """
    from duepoint.cli.local import engine, presenting, session  # noqa: PLC0415 - quick --help

    request = session.RunRequest(
        files=options.named_files(paths, filenames),
        namespace=namespace,
        executes=executes,
        seconds=seconds,
        once=once,
        local_services=tuple(
            engine.LocalService(
                namespace=found["namespace"] or namespace,
                name=found["name"],
                service_port=found["service_port"],
                address=found["v6"] or found["v4"],
                port=int(found["port"]),
            )
            for found in named_services
        ),
    )
    raise click.exceptions.Exit(presenting.present(request, form, receive_port))
