"""``duepoint logs``: what the Pods of a Schedule's run wrote, or write now, by kubectl."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import click

from duepoint import errors
from duepoint.cli import instants, limits, options, output
from duepoint.cli.schedules import facts as facts_

if TYPE_CHECKING:
    from duepoint.cli.cluster import ClusterSession
    from duepoint.cli.schedules.podlogs import LogChoice

#: ``--timeout`` was over before the run.
_NOT_ENDED = 3
#: A Pod that is being created is waited for so long, though the log is not followed.
_STARTS_WITHIN_SECONDS = 10.0


@click.command()
@options.schedule_name
@click.option(
    "--at",
    metavar="TIME",
    type=options.SLOT_TIME,
    help="The slot of the run, or HH:MM for the last one. Unset: the newest run.",
)
@click.option("--follow", "-f", "follows", is_flag=True, help="Go on until the run has ended.")
@click.option("--container", "-c", metavar="NAME", help="Only this container. Unset: all.")
@click.option("--tail", metavar="LINES", help="The last lines of each; 0: only new ones.")
@click.option("--since", metavar="DURATION", help="Only lines that are not older, such as 10m.")
@click.option("--timestamps", "has_stamps", is_flag=True, help="The time in front of each line.")
@click.option(
    "--previous",
    "-p",
    "is_previous",
    is_flag=True,
    help="Of each container before its last restart.",
)
@options.of_one
def logs(
    name: str,
    *,
    at: str | None,
    follows: bool,
    container: str | None,
    tail: str | None,
    since: str | None,
    has_stamps: bool,
    is_previous: bool,
    place: options.Place,
) -> None:
    """Print the logs of a run of the Schedule NAME: its Job's Pods, container by container.

    Each is read by kubectl, which takes --tail, --since, --timestamps and --previous as it knows
    them. With --follow, lines appear as they are written, also of Pods that start later; exit code
    3 says that --timeout was over first.
    """
    from duepoint.cli.schedules import podlogs  # noqa: PLC0415 - libraries that --help does not need

    if is_previous and follows:
        raise errors.InvalidSetting(
            "--previous", "leave it out, or leave --follow out: what has ended writes no more"
        )
    given = {"--tail": tail, "--since": since}
    words = [f"{name}={value}" for name, value in given.items() if value is not None]
    words += ["--timestamps"] * has_stamps + ["--previous"] * is_previous
    choice = podlogs.LogChoice(container=container, options=tuple(words))
    asyncio.run((_follow if follows else _print)(place, name, at, choice))


async def _print(place: options.Place, name: str, at: str | None, choice: LogChoice) -> None:
    from duepoint.cli import cluster  # noqa: PLC0415 - libraries that --help does not need
    from duepoint.cli.schedules import gathering, podlogs, runpods  # noqa: PLC0415 - the same

    async with cluster.session(place) as server:
        known, jobs = await _known(server, name)
        job_name = _chosen(known, jobs, at)
        is_over = any(gathering.is_over(job) for job in jobs if job["metadata"]["name"] == job_name)
        patience_seconds = 0.0 if is_over else _STARTS_WITHIN_SECONDS
        pods = await runpods.started_pods(server, job_name, patience_seconds)
        if not pods:
            output.complain(_without_pod(job_name, name, server.namespace))
        elif code := await podlogs.PodLogs(server, place, job_name, choice).show(pods):
            raise click.exceptions.Exit(code)


async def _follow(place: options.Place, name: str, at: str | None, choice: LogChoice) -> None:
    from duepoint.cli import cluster  # noqa: PLC0415 - libraries that --help does not need
    from duepoint.cli.schedules import podlogs, triggered  # noqa: PLC0415 - the same

    loop, seconds = asyncio.get_running_loop(), place.patience_seconds
    until = None if seconds is None else loop.time() + seconds
    async with cluster.session(dataclasses.replace(place, patience_seconds=None)) as server:
        async with limits.limited(seconds):
            known, jobs = await _known(server, name)
            run = await triggered.newest(server, known, jobs) if at is None else None
            job_name = _chosen(known, jobs, at) if run is None else run.job_name
        followed = f"Job {job_name}"
        try:
            async with asyncio.timeout_at(until) as limit:
                if run is not None and not await triggered.has_job(server, run):
                    followed = f"ScheduleRun {run.name}"
                    output.complain(f"waiting for the Job of {followed}")
                    await triggered.wait_for_job(server, run)
                code = await podlogs.PodLogs(server, place, job_name, choice).follow()
        except TimeoutError:
            if not limit.expired():
                raise
            output.complain(f"{followed} had not ended when the time was over; it goes on")
            raise click.exceptions.Exit(_NOT_ENDED) from None
        if code is None:
            output.complain(_without_pod(job_name, name, server.namespace))
        elif code:
            raise click.exceptions.Exit(code)


async def _known(server: ClusterSession, name: str) -> tuple[facts_.ScheduleFacts, list[Any]]:
    """The Schedule and its Jobs, newest slot first."""
    from duepoint.cli.schedules import gathering  # noqa: PLC0415 - libraries of the cluster

    known = facts_.of_object(await gathering.schedule(server, name))
    return known, await gathering.job_objects(server, known)


def _chosen(known: facts_.ScheduleFacts, jobs: list[Any], at: str | None) -> str:
    """The Job of the run that is meant; raises errors.InvalidSetting."""
    from duepoint.cli.schedules import gathering  # noqa: PLC0415 - libraries of the cluster

    if at is not None:
        at_us = instants.parse_last_us(at, zone=known.zone, name="--at")
        jobs = [job for job in jobs if gathering.slot_us(job) == at_us]
    if not jobs:
        raise errors.InvalidSetting("NAME", _without_job(known, at))
    return str(jobs[0]["metadata"]["name"])


def _without_pod(job_name: str, name: str, namespace: str) -> str:
    return f"Job {job_name} has no Pod: kubectl duepoint why {name} -n {namespace}"


def _without_job(known: facts_.ScheduleFacts, at: str | None) -> str:
    if known.target and not known.target.startswith("Job"):
        return (
            f"{known.identity} runs no Pods ({known.target}); duepoint describe {known.name} -n"
            f" {known.namespace} shows how its deliveries ended"
        )
    which = "no run" if at is None else f"no run with the slot {errors.quoted(at)}"
    return (
        f"{known.identity} has {which} whose Job still exists; duepoint why {known.name} -n"
        f" {known.namespace} says why"
    )
