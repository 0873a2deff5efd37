"""``duepoint trigger``: run a Schedule once, now.

Makes a ScheduleRun, so that the Schedule itself stays as it is in Git; it runs with the Schedule's
template, target and payload, suspended or not. The command ends once the ScheduleRun exists,
unless it is to wait.
"""

from __future__ import annotations

from typing import Any

import click
import msgspec

from duepoint.cli import cluster, instants, options
from duepoint.cli.run import scheduleruns
from duepoint.kube import schedules
from duepoint.schedules import manualruns

_POLICIES = ("Allow", "Forbid", "Replace", "Queue")


def _payload(given: str) -> bytes:
    """JSON text, or that of a file."""
    text = options.content("--payload", given[1:]) if given.startswith("@") else given.encode()
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        example = "write it in quotes, such as '{\"day\": 1}'"
        raise ValueError(f"is not JSON ({error}); {example}") from None
    if text.strip() == b"null":
        raise ValueError("null would be the Schedule's own; leave it out")
    if len(text) > manualruns.PAYLOAD_LIMIT_BYTES:
        raise ValueError(f"{len(text)} bytes; write at most {manualruns.PAYLOAD_LIMIT_BYTES}")
    return text


@click.command()
@options.schedule_name
@click.option(
    "--at",
    metavar="TIME",
    type=options.SLOT_TIME,
    help="Slot that the run carries, or HH:MM for the last one. Unset: the creation.",
)
@click.option(
    "--payload",
    metavar="JSON|@FILE",
    type=options.Converted(_payload),
    help="In place of the Schedule's; @- is standard input.",
)
@click.option(
    "--concurrency-policy",
    "policy",
    metavar="|".join(_POLICIES),
    type=options.words(*_POLICIES),
    help="In place of the Schedule's, for this run.",
)
@scheduleruns.options_of_run(wait=False)
def trigger(
    name: str,
    *,
    at: str | None,
    payload: bytes | None,
    policy: str | None,
    run_options: scheduleruns.RunOptions,
) -> None:
    """Run the Schedule NAME once, now."""
    what: dict[str, Any] = {}
    if policy is not None:
        what["concurrencyPolicy"] = policy
    if payload is not None:
        what["payload"] = msgspec.Raw(payload)

    async def create(server: cluster.ClusterSession) -> schedules.ScheduleRun:
        known = await scheduleruns.schedule(server, name)
        slot = "now"
        if at is not None:
            slot_us = instants.parse_last_us(at, zone=known.rule.timing.time_zone, name="--at")
            slot_us = manualruns.fitted(slot_us, whole_seconds=known.rule.whole_seconds)
            slot = what["scheduledTime"] = instants.utc_text(slot_us)
        shown = f"{known.identity} runs with the slot {slot}"
        return await scheduleruns.create(server, name, {"trigger": what}, run_options, shown)

    scheduleruns.finish(run_options, create)
