"""``duepoint logs``: what the Pods of a Schedule's run wrote."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.cli.schedules import facts as facts_

_MOST_BYTES = 16 * 1024 * 1024


@click.command()
@options.schedule_name
@click.option(
    "--at",
    metavar="TIME",
    help="The slot of the run, or HH:MM for the last one. Unset: the newest run.",
)
@click.option("--container", "-c", metavar="NAME", help="Only this container. Unset: all.")
@click.option(
    "--tail", metavar="LINES", type=options.whole(1_000_000), help="The last lines of each."
)
@options.of_one
def logs(
    name: str, *, at: str | None, container: str | None, tail: int | None, place: options.Place
) -> None:
    """Print the logs of a run of the Schedule NAME: its Job's Pods, container by container.

    describe -o json names the Job of each run: kubectl logs -f job/JOB follows one that goes on.
    """
    asyncio.run(_print(place, name, at, container, tail))


async def _print(
    place: options.Place, name: str, at: str | None, container: str | None, tail: int | None
) -> None:
    from duepoint.cli import cluster  # noqa: PLC0415 - libraries that --help does not need
    from duepoint.cli.schedules import gathering  # noqa: PLC0415 - the same

    async with cluster.session(place) as server:
        known = facts_.of_object(await gathering.schedule(server, name))
        jobs = await gathering.job_objects(server, known)
        if at is not None:
            at_us = instants.parse_last_us(at, zone=known.zone, name="--at")
            jobs = [job for job in jobs if gathering.slot_us(job) == at_us]
        if not jobs:
            raise errors.InvalidSetting("NAME", _without_job(known, at))
        job_name = jobs[0]["metadata"]["name"]
        pods = await gathering.pods(server, job_name)
        if not pods:
            output.complain(
                f"Job {job_name} has no Pod: kubectl duepoint why {name} -n {known.namespace}"
            )
        read = [await _print_pod(server, pod, container, tail) for pod in pods]
        if pods and not any(read):
            raise click.exceptions.Exit(output.BAD_INPUT)


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


async def _print_pod(
    server: Any,  # noqa: ANN401 - a ClusterSession, whose module is imported late
    pod: dict[str, Any],
    container: str | None,
    tail: int | None,
) -> bool:
    """Print what its containers wrote; whether at least one of them could be read."""
    from duepoint.kube import errors as kube_errors  # noqa: PLC0415 - libraries of the cluster
    from duepoint.kube import port  # noqa: PLC0415 - the same

    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    names = [one["name"] for one in (*spec.get("initContainers", ()), *spec.get("containers", ()))]
    if container is not None and container not in names:
        message = f"Pod {name} has no container {errors.quoted(container)}"
        raise errors.InvalidSetting("--container", f"{message}; write {' or '.join(names)}")
    path = port.path("/api/v1", server.namespace, "pods", name)
    is_read = False
    for each in names if container is None else [container]:
        query = {"container": each, "limitBytes": str(_MOST_BYTES)}
        if tail is not None:
            query["tailLines"] = str(tail)
        try:
            body = await server.api.request("GET", f"{path}/log", query=query)
        except kube_errors.ApiError as trouble:
            output.complain(f"{name}/{each}: {trouble}")
            continue
        is_read = True
        for line in body.decode(errors="replace").splitlines():
            output.say(f"[{name}/{each}] {line}")
    return is_read
