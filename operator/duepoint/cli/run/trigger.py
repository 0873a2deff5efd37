"""``duepoint trigger``: run a Schedule once, now.

Makes a ScheduleRun, so that the Schedule itself stays as it is in Git; it runs with the Schedule's
template, target and payload, suspended or not. The command ends once the ScheduleRun exists,
unless it is to wait.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from duepoint import errors
from duepoint.cli import cluster, instants, options, output
from duepoint.cli.run import scheduleruns
from duepoint.kube import schedules
from duepoint.schedules import manualruns

_POLICIES = ("Allow", "Forbid", "Replace", "Queue")


@click.command()
@click.argument("name")
@click.option("--at", metavar="TIME", help="Slot that the run carries. Unset: the creation.")
@click.option(
    "--payload", metavar="JSON|@FILE", help="In place of the Schedule's; @- is standard input."
)
@click.option(
    "--concurrency-policy",
    "policy",
    metavar="|".join(_POLICIES),
    help="In place of the Schedule's, for this run.",
)
@options.of_run
@click.option("--wait/--no-wait", default=False, show_default=True, help="Wait for its end.")
def trigger(
    name: str,
    *,
    at: str | None,
    payload: str | None,
    policy: str | None,
    namespace: str | None,
    ttl: str,
    timeout: str | None,
    form: str,
    kubeconfig: Path | None,
    context: str | None,
    wait: bool,
) -> None:
    """Run the Schedule NAME once, now."""
    shape = output.choice("--output", form, output.TEXT_FORMATS)
    where = cluster.place(namespace, kubeconfig, context)
    ttl_seconds = options.ttl_seconds(ttl)
    most_seconds = options.timeout_seconds(timeout, wait=wait)
    what: dict[str, Any] = {}
    if policy is not None:
        what["concurrencyPolicy"] = output.choice("--concurrency-policy", policy, _POLICIES)
    if payload is not None:
        what["payload"] = msgspec.Raw(_payload(payload))

    async def made(server: cluster.Cluster) -> schedules.ScheduleRun:
        known = await scheduleruns.schedule(server, name)
        slot = "now"
        if at is not None:
            slot_us = instants.parse_us(at, zone=known.rule.timing.time_zone, name="--at")
            slot_us = manualruns.fitted(slot_us, whole_seconds=known.rule.whole_seconds)
            slot = what["scheduledTime"] = instants.utc_text(slot_us)
        run = await scheduleruns.create(server, name, {"trigger": what}, ttl_seconds)
        scheduleruns.tell_made(run, shape, f"{known.identity} runs with the slot {slot}")
        return run

    scheduleruns.finish(where, made, shape=shape, wait=wait, most_seconds=most_seconds)


def _payload(given: str) -> bytes:
    """JSON text, checked; raises errors.InvalidSetting."""
    text = given.encode()
    if given.startswith("@"):
        text = options.content("--payload", given[1:])
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise errors.InvalidSetting(
            "--payload", f"is not JSON ({error}); write it in quotes, such as '{{\"day\": 1}}'"
        ) from None
    if text.strip() == b"null":
        raise errors.InvalidSetting("--payload", "null would be the Schedule's own; leave it out")
    if len(text) > manualruns.PAYLOAD_LIMIT_BYTES:
        raise errors.InvalidSetting(
            "--payload", f"{len(text)} bytes; write at most {manualruns.PAYLOAD_LIMIT_BYTES}"
        )
    return text
