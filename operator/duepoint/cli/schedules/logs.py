"""``duepoint logs``: finds the Job of a Schedule's run, and runs ``kubectl logs`` of its Pods."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import time
from typing import Any

import click

from duepoint import errors
from duepoint.cli import cluster, instants, options, output
from duepoint.cli.cluster import ClusterSession
from duepoint.cli.schedules import facts
from duepoint.cli.schedules.facts import ScheduleFacts
from duepoint.controller.status import texts
from duepoint.kube import errors as kube_errors
from duepoint.kube import jobbuilder, schedules
from duepoint.kube import jobs as kube_jobs

#: Without --follow, how long to wait for a Pod that is being created.
_STARTS_WITHIN_SECONDS = 10.0
_LOOK_SECONDS = 0.5
#: How many containers kubectl may read at once; its default is lower.
_MOST_AT_ONCE = 100


@click.command(context_settings={"ignore_unknown_options": True})
@options.schedule_name
@click.argument("words", metavar="[KUBECTL-OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--at",
    metavar="TIME",
    help="The slot of the run, or HH:MM for the last one. Unset: the newest run.",
)
@click.option("--follow", "-f", "follows", is_flag=True, help="Go on until the run has ended.")
@options.of_one
def logs(
    name: str, *, words: tuple[str, ...], at: str | None, follows: bool, place: options.Place
) -> None:
    """Print the logs of a run of the Schedule NAME: its Job's Pods, by kubectl logs.

    Other options are kubectl's, such as --tail=20, --since=10m, --previous or -c CONTAINER.

    Example: duepoint logs nightly -n reports -f --tail=20
    """
    own = [*cluster.kubectl(place), "logs"]
    job_name, namespace = asyncio.run(_job_to_read(place, name, at, follows=follows))
    own += [f"--namespace={namespace}", "--prefix"]
    own.append(f"--selector=batch.kubernetes.io/job-name={job_name}")
    own.append("--tail=-1")  # with a selector, kubectl shows ten lines by default
    own.append(f"--max-log-requests={_MOST_AT_ONCE}")
    if not any(word.startswith(("-c", "--container")) for word in words):
        own.append("--all-containers")
    own += ["--follow"] * follows
    code = subprocess.run([*own, *words], check=False).returncode  # noqa: S603 - no shell
    if code not in (0, -signal.SIGPIPE):
        raise click.exceptions.Exit(2)


async def _job_to_read(
    place: options.Place, name: str, at: str | None, *, follows: bool
) -> tuple[str, str]:
    """Wait until a Pod of the requested Job has a log; return the Job's name and namespace.

    Without --follow, wait for the Pod only some seconds; kubectl then says why it has no log.
    """
    async with cluster.session(place) as server:
        known = facts.of_object(await cluster.schedule(server, name))
        jobs = await facts.job_objects(server, known)
        run = await _triggered(server, known, jobs) if at is None else None
        job = _chosen(known, jobs, at) if run is None else await _job_of(server, *run)
        if run is not None and job is None:
            output.complain(f"waiting for the Job of ScheduleRun {run[0]}")
        ends_at = time.monotonic() + _STARTS_WITHIN_SECONDS
        while True:
            if run is not None and job is None:
                job = await _job_of(server, *run)
            if job is not None:
                pods = await facts.pods(server, job["metadata"]["name"])
                if facts.is_over(job) or (pods and facts.has_log(pods[-1])):
                    break
            if not follows and time.monotonic() >= ends_at:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        if job is None:
            message = f"ScheduleRun {run and run[0]} has no Job yet; write --follow to wait for it"
            raise errors.InvalidSetting("NAME", message)
        job_name = str(job["metadata"]["name"])
        if facts.is_over(job) and not pods:
            message = f"Job {job_name} has no Pod: duepoint why {name} -n {server.namespace}"
            raise errors.InvalidSetting("NAME", message)
        return job_name, server.namespace


async def _triggered(
    server: ClusterSession, known: ScheduleFacts, jobs: list[Any]
) -> tuple[str, str] | None:
    """Return the newest unfinished run of ``duepoint trigger``, and the name of its Job.

    None if a Job is newer, the Schedule makes none, or the user may not list ScheduleRuns.
    """
    if known.status.target and not known.status.target.startswith("Job"):
        return None
    path = schedules.collection(server.namespace, plural=schedules.RUN_PLURAL)
    try:
        listed = (await cluster.get(server, path)).get("items") or ()
    except kube_errors.Forbidden:
        return None
    since_us = max(map(_created_us, jobs), default=0)
    found = [
        run
        for run in listed
        if run["spec"].get("scheduleName") == known.name and "trigger" in run["spec"]
        if _created_us(run) >= since_us and not facts.is_over(run)
    ]
    if not found:
        return None
    run = max(found, key=_created_us)
    slot_us = _created_us(run)
    if (named := run["spec"]["trigger"].get("scheduledTime")) is not None:
        slot_us = texts.instant_us(named)
    metadata = run["metadata"]
    return metadata["name"], jobbuilder.name_of(known.name, slot_us, metadata["uid"])


async def _job_of(server: ClusterSession, run_name: str, job_name: str) -> Any:  # noqa: ANN401 - JSON
    """Read the Job of a run; None before it exists; raises InvalidSetting if it never will."""
    is_over = True
    with contextlib.suppress(kube_errors.NotFound):
        path = schedules.path(server.namespace, run_name, plural=schedules.RUN_PLURAL)
        is_over = facts.is_over(await cluster.get(server, path))
    with contextlib.suppress(kube_errors.NotFound):
        return await cluster.get(server, kube_jobs.path(server.namespace, job_name))
    if is_over:
        message = f"ScheduleRun {run_name} ended without a Job: kubectl describe schedulerun"
        raise errors.InvalidSetting("NAME", f"{message} {run_name} -n {server.namespace}")
    return None


def _created_us(thing: Any) -> int:  # noqa: ANN401 - JSON
    return texts.instant_us(thing["metadata"].get("creationTimestamp"))


def _chosen(known: ScheduleFacts, jobs: list[Any], at: str | None) -> Any:  # noqa: ANN401 - JSON
    """Return the Job of the requested run; raises errors.InvalidSetting if there is none."""
    if at is not None:
        at_us = instants.parse_last_us(at, zone=known.zone, name="--at")
        jobs = [job for job in jobs if facts.slot_us(job) == at_us]
    if not jobs:
        raise errors.InvalidSetting("NAME", _without_job(known, at))
    return jobs[0]


def _without_job(known: ScheduleFacts, at: str | None) -> str:
    if known.status.target and not known.status.target.startswith("Job"):
        return (
            f"{known.identity} runs no Pods ({known.status.target}); duepoint describe {known.name}"
            f" -n {known.namespace} shows how its deliveries ended"
        )
    which = "no run" if at is None else f"no run with the slot {errors.quoted(at)}"
    return (
        f"{known.identity} has {which} whose Job still exists; duepoint why {known.name} -n"
        f" {known.namespace} says why"
    )
