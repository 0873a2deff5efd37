"""``duepoint logs`` and ``duepoint dashboard``: the commands that run kubectl.

``logs`` finds the Job of a Schedule's run, and runs ``kubectl logs`` of its Pods. ``dashboard``
opens the web dashboard of an installation, signed in: kubectl forwards a free port of this machine
to the API's Service. The page gets the token in the fragment of its address, which is not sent to
any server. Other users of this machine can read command lines, so the browser is not started with
that address: a page that is served only once redirects it there.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import webbrowser
from pathlib import Path
from typing import Any

import click

from duepoint import errors
from duepoint.cli import cluster, instants, options, output
from duepoint.cli.cluster import ClusterSession
from duepoint.cli.schedules import facts
from duepoint.cli.schedules.facts import ScheduleFacts
from duepoint.controller.status import published
from duepoint.kube import credentials, jobbuilder, schedules
from duepoint.kube import errors as kube_errors
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

    Only Jobs have logs; describe and why say what a webhook answered and how a delivery ended.

    Other options are kubectl's, such as --tail=20, --since=10m, --previous or -c CONTAINER.

    Example: duepoint logs nightly -n reports -f --tail=20
    """
    own = [*_kubectl(place), "logs"]
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
    if (run := max(found, key=_created_us, default=None)) is None:
        return None
    slot_us = _created_us(run)
    if (named := run["spec"]["trigger"].get("scheduledTime")) is not None:
        slot_us = published.instant_us(named)
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
    return published.instant_us(thing["metadata"].get("creationTimestamp"))


def _chosen(known: ScheduleFacts, jobs: list[Any], at: str | None) -> Any:  # noqa: ANN401 - JSON
    """Return the Job of the requested run; raises errors.InvalidSetting if there is none."""
    if at is not None:
        at_us = instants.parse_last_us(at, zone=known.timing.time_zone, name="--at")
        jobs = [job for job in jobs if facts.slot_us(job) == at_us]
    if jobs:
        return jobs[0]
    of_it = f"{known.name} -n {known.namespace}"
    if known.status.target and not known.status.target.startswith("Job"):
        message = f"runs no Pods ({known.status.target}); duepoint describe {of_it} shows how its"
        message += " deliveries ended"
    else:
        which = "no run" if at is None else f"no run with the slot {errors.quoted(at)}"
        message = f"has {which} whose Job still exists; duepoint why {of_it} says why"
    raise errors.InvalidSetting("NAME", f"{known.identity} {message}")


_FORWARDS = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")


def _kubectl(place: options.Place) -> list[str]:
    """Return the kubectl of the PATH, else the one beside our interpreter, with its cluster flags.

    Raises:
        errors.InvalidSetting: there is no kubectl.
    """
    own = Path(sys.executable).with_name("kubectl")
    found = shutil.which("kubectl") or (str(own) if own.exists() else None)
    if found is None:
        raise errors.InvalidSetting("kubectl", "is not on the PATH; install it")
    words = [found]
    if place.kubeconfig is not None:
        words.append(f"--kubeconfig={place.kubeconfig}")
    if place.context is not None:
        words.append(f"--context={place.context}")
    return words


# -- dashboard -------------------------------------------------------------------------------------


@click.command()
@click.option(
    "--service",
    metavar="NAMESPACE/NAME",
    type=options.Converted(options.namespaced),
    default="duepoint-system/duepoint-api",
    show_default=True,
    help="Service of the HTTP API.",
)
@click.option(
    "--account",
    metavar="NAME",
    type=options.NAME,
    help="Sign in as this ServiceAccount of -n: kubectl create token. Unset: as the kubeconfig's"
    " user, who needs a token.",
)
@options.of_one
def dashboard(*, service: str, account: str | None, place: options.Place) -> None:
    """Open the web dashboard in the browser, until Ctrl-C.

    Example: kubectl duepoint dashboard --account anna -n shop
    """
    namespace, _, name = service.partition("/")
    words = _kubectl(place)
    of_service = [f"--namespace={namespace}", f"service/{name}"]
    ports = "-o=jsonpath={.spec.ports[0].name} {.spec.ports[0].port}"
    scheme, _, port = _kubectl_output([*words, "get", *of_service, ports]).partition(" ")
    token = _token(words, account, place)
    forwarding = subprocess.Popen(  # noqa: S603 - no shell
        [*words, "port-forward", *of_service, f":{port}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert forwarding.stdout is not None  # noqa: S101 - a pipe was asked for
        for line in forwarding.stdout:
            if found := _FORWARDS.match(line):
                _open(f"{scheme}://localhost:{found[1]}/dashboard/", token)
    except KeyboardInterrupt:
        return
    finally:
        forwarding.terminate()
        forwarding.wait()
    raise click.exceptions.Exit(output.BAD_INPUT)  # kubectl has reported why


def _kubectl_output(words: list[str]) -> str:
    """Return the output of kubectl; exit if it fails, after it has reported why."""
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603 - no shell
    if done.returncode:
        raise click.exceptions.Exit(output.BAD_INPUT)
    return done.stdout.strip()


def _token(words: list[str], account: str | None, place: options.Place) -> str:
    """Return the token for signing in; raises errors.InvalidSetting if the user has none."""
    login = asyncio.run(credentials.found(place.kubeconfig, place.context).login())
    if account is not None:
        namespace = place.namespace or login.namespace
        return _kubectl_output([*words, "create", "token", account, f"--namespace={namespace}"])
    if not login.token:
        message = "is missing, and the kubeconfig's user has no token; write --account NAME, a"
        raise errors.InvalidSetting("--account", f"{message} ServiceAccount with the role view")
    return login.token


def _open(address: str, token: str) -> None:
    """Print the address of the dashboard, and open it in the browser with the token."""
    output.say(f"{address}  (Ctrl-C ends it)")
    signed_in = f"{address}#token={urllib.parse.quote(token, safe='')}"
    if not webbrowser.open(_leading_once(signed_in)):
        output.say(f"there is no browser to open; signed in: {signed_in}")


def _leading_once(address: str) -> str:
    """Return a secret URL on this machine that redirects to the address once."""
    path = f"/{secrets.token_urlsafe()}"
    left = {path: address}

    class Leading(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = left.pop(self.path, "")
            self.send_response(302 if found else 404)
            self.send_header("Location", found)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing: standard error is for people."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Leading)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}{path}"
