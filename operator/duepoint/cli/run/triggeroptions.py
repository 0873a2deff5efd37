"""Options that ``trigger`` and ``backfill`` share, and what they mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from duepoint import errors
from duepoint.cli import output
from duepoint.cli.queue import connection
from duepoint.cli.run import triggercluster, triggerwait
from duepoint.cli.webhook import webhookreading
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules

#: The longest time to live that the API takes, in seconds.
_MOST_SECONDS = 2**31 - 1

_OPTIONS = (
    click.option("--namespace", "-n", metavar="NAME", help="Unset: the namespace of the context."),
    click.option(
        "--ttl",
        default=str(triggercluster.TTL_SECONDS),
        metavar="SECONDS|never",
        show_default=True,
        help="Delete the ScheduleRun so long after it has ended.",
    ),
    click.option(
        "--timeout", metavar="DURATION", help="Wait no longer than this, such as 90s or 2h."
    ),
    click.option(
        "--output", "-o", "form", default="text", metavar="json|text", help="Unset: text."
    ),
    click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Unset: as kubectl finds it."
    ),
    click.option("--context", metavar="NAME", help="Of the kubeconfig; unset: the current one."),
)


def shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, for ``place``, ``ttl_seconds`` and ``timeout_seconds``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def place(
    namespace: str | None, kubeconfig: Path | None, context: str | None
) -> triggercluster.Place:
    """Where to look; raises errors.InvalidSetting."""
    connection.check_name("--namespace", namespace)
    return triggercluster.Place(kubeconfig=kubeconfig, context=context, namespace=namespace)


def ttl_seconds(text: str) -> int | None:
    """None = kept; raises errors.InvalidSetting."""
    if text.lower() == "never":
        return None
    if not text.isascii() or not text.isdecimal() or int(text[:18]) > _MOST_SECONDS:
        said = f"{errors.quoted(text)}: write a whole number of seconds up to {_MOST_SECONDS}"
        raise errors.InvalidSetting("--ttl", f"{said}, or never")
    return int(text)


def timeout_seconds(text: str | None, *, wait: bool) -> float | None:
    """None = as long as it takes; raises errors.InvalidSetting."""
    if text is None:
        return None
    if not wait:
        raise errors.InvalidSetting(
            "--timeout",
            "limits how long the command waits, and it does not; add --wait, or leave it out",
        )
    return webhookreading.duration_us("--timeout", text) / 1e6


def form(text: str) -> str:
    """``json`` or ``text``; raises errors.InvalidSetting."""
    return output.choice("--output", text, triggerwait.FORMATS)


def finish(
    where: triggercluster.Place,
    made: Callable[[triggercluster.Cluster], Any],
    *,
    shape: str,
    wait: bool,
    most_seconds: float | None,
) -> None:
    """Make the ScheduleRun and, where asked for, follow it to its end.

    Raises:
        errors.InvalidSetting: what was asked for cannot be, or the cluster says no.
        click.exceptions.Exit: with the exit code of how it ended.
    """
    known: list[schedules.ScheduleRun] = []
    try:
        asyncio.run(_finish(where, made, known, wait=wait, most_seconds=most_seconds))
    except KeyboardInterrupt:
        if known:
            output.complain(triggerwait.how_to_end(known[-1]))
        raise
    except kube_errors.ApiError as trouble:
        if known:
            output.complain(triggerwait.how_to_end(known[-1]))
        raise errors.InvalidSetting("cluster", str(trouble)) from trouble
    if known:
        triggerwait.tell_end(known[-1], shape, waited=wait)


async def _finish(
    where: triggercluster.Place,
    made: Callable[[triggercluster.Cluster], Any],
    known: list[schedules.ScheduleRun],
    *,
    wait: bool,
    most_seconds: float | None,
) -> None:
    async with triggercluster.session(where) as cluster:
        run = await made(cluster)
        if run is None:
            return
        known.append(run)
        if wait:
            known.append(await triggerwait.to_the_end(cluster, run, most_seconds))
