"""``duepoint doctor``: checks whether an installation is in order, and says what to do if not.

It reads everything from the API server with the rights of the user: the CRDs, the operator's Lease
and its state of Redis, workers, lag and clocks, the settings of the worker's Deployment, and the
Schedules. A check whose objects the user may not read is ``unknown``, which
does not count as a trouble. Exit code 1: something is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import click

from duepoint import __version__, errors, settings
from duepoint.cli import cluster, instants, options, output
from duepoint.cli.cluster import ClusterSession
from duepoint.cli.schedules import facts
from duepoint.cli.schedules.facts import LeaseFacts
from duepoint.kube import errors as kube_errors
from duepoint.kube import port

_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.duepoint.dev"
_LONG_LAG_SECONDS = 5.0
_SKEW_SECONDS = 0.5
_FULL = 0.9


def _check(name: str, state: str, found: str, do: str = "") -> output.Row:
    """Return the result of a check: ``ok``, ``warning``, ``failed``, or ``unknown`` to the user.

    Args:
        do: what to do; empty if nothing has to be done.
    """
    return {"check": name, "state": state, "found": found, "do": do}


def _judged(name: str, found: str, wrong: object, do: str, state: str = "failed") -> output.Row:
    """Return a check that is ``ok``, or in this state if something is wrong."""
    return _check(name, state, found, do) if wrong else _check(name, "ok", found)


@click.command()
@click.option(
    "--lease",
    metavar="NAMESPACE/NAME",
    type=options.Converted(options.namespaced),
    default="duepoint-system/duepoint-operator",
    show_default=True,
    help="Lease of the operator: the installation that is meant.",
)
@options.output_format
@options.of_many
def doctor(*, lease: str, form: str, place: options.Place) -> None:
    """Check an installation, and say what to do where something is wrong.

    It looks at the CRDs, the leader, Redis, the workers, their lag and clocks, the chart, egress
    and the Schedules of -n, or of all with -A. What you have no right to read is unknown.

    Example: duepoint doctor -A
    """
    rows = asyncio.run(_checked(place, lease))
    output.show_rows(rows, form, {"check": "check", "state": "state", "found": "found"})
    for row in rows:
        if row["do"] and not output.is_data(form):
            output.say(f"{row['check']}: {row['found']}")
            output.say(f"  do  {row['do']}")
    if any(row["state"] == "failed" for row in rows):
        raise click.exceptions.Exit(output.FAILED)


async def _checked(place: options.Place, lease: str) -> list[output.Row]:
    namespace, _, name = lease.partition("/")
    async with cluster.session(place) as server:
        await cluster.get(server, "/version")  # fails here if the API server does not answer
        found = await facts.lease_facts(server, lease, is_certain=True)
        return [
            await _crd(server, "schedules"),
            await _crd(server, "scheduleruns"),
            await _crd(server, "schedulesets"),
            *_of_lease(found, lease),
            *await _deployment(server, namespace, name.replace("operator", "worker")),
            await _schedules(server, place),
        ]


# -- the API -------------------------------------------------------------------------------------


async def _crd(server: ClusterSession, plural: str) -> output.Row:
    name = f"crd {plural}"
    apply = "helm upgrade with this version's chart, or kubectl apply --server-side -f crds/"
    try:
        found = await cluster.get(server, _CRD.format(plural))
    except kube_errors.NotFound:
        return _check(name, "failed", "is not installed", apply)
    except kube_errors.ApiError as refused:
        return _check(name, "unknown", str(refused))
    conditions = (found.get("status") or {}).get("conditions") or ()
    held = {one.get("type"): one.get("status") == "True" for one in conditions}
    is_wrong = not held.get("Established", True) or held.get("Terminating")
    return _judged(name, "is not served" if is_wrong else "installed", is_wrong, apply)


# -- the installation ----------------------------------------------------------------------------


def _of_lease(found: LeaseFacts | None, lease: str) -> Iterator[output.Row]:
    """Yield the checks of the leader, and of Redis, workers, lag and clocks as it sees them."""
    namespace, _, name = lease.partition("/")
    logs = f"kubectl logs -n {namespace} deploy/{{}} --tail=50"
    of_operator, of_worker = logs.format(name), logs.format(name.replace("operator", "worker"))
    if found is None:
        do = "write --lease NAMESPACE/NAME, or have installationReaders of the chart name you"
        yield _check("leader", "unknown", f"you may not read the Lease {lease}", do)
    elif found.leads:
        yield _check("leader", "ok", found.holder)
    else:
        renewed = f"was renewed last at {instants.utc_text(found.renewed_us)}"
        text = f"no operator leads; the Lease {lease} "
        text += renewed if found.renewed_us else "does not exist"
        do = f"kubectl get pods -n {namespace}; {of_operator}"
        yield _check("leader", "failed", text, do)
    state = None if found is None or not found.leads else found.state
    if state is None:
        for name in ("version", "redis", "workers", "lag", "clocks"):
            yield _check(name, "unknown", "no leader says so")
        return
    is_other = state.version != __version__
    text = (
        f"the operator is {state.version}, this command {__version__}" if is_other else __version__
    )
    do = "use the command of the installation's version"
    yield _judged("version", text, is_other, do, "warning")
    used, limit = state.memory_used_bytes, state.memory_limit_bytes
    if state.redis_down_since:
        text = f"does not answer the operator since {state.redis_down_since}"
        do = f"see whether it runs and lets the operator in; {of_operator}"
        yield _check("redis", "failed", text, do)
    else:
        room = f"{output.size(used)} of {output.size(limit)} used" if limit else "no memory limit"
        do = "raise maxmemory: a full server refuses edits and retries"
        is_full = limit and used > _FULL * limit
        yield _judged("redis", f"{state.redis}, {room}", is_full, do, "warning")
    for part, trouble in state.troubles.items():
        text = ": ".join(filter(None, ("is not ready", part, trouble)))
        yield _check("operator", "failed", text, of_operator)
    if state.workers is None:
        yield _check("workers", "unknown", "unknown")
    else:
        troubles = [f"{name}: {trouble}" for name, trouble in state.worker_troubles.items()]
        text = "; ".join([f"{state.workers} live", *troubles])
        yield _judged("workers", text, troubles or not state.workers, of_worker)
    text = f"{state.due} points are due, the oldest for {output.span(state.lag_seconds)}"
    do = "more workers, or targets that answer sooner: duepoint queue stats --by-namespace"
    yield _judged("lag", text, state.lag_seconds > _LONG_LAG_SECONDS, do, "warning")
    if (skew := state.clock_skew_seconds) is None:
        yield _check("clocks", "unknown", "not compared yet")
        return
    side = "ahead of" if skew > 0 else "behind"
    text = f"the operator's clock is {abs(skew):.3f} s {side} Redis's"
    yield _judged("clocks", text, abs(skew) > _SKEW_SECONDS, "set the clock that is wrong")


async def _deployment(server: ClusterSession, namespace: str, name: str) -> list[output.Row]:
    """Return the checks of the chart and of egress, from the worker's Deployment."""
    try:
        path = port.path("/apis/apps/v1", namespace, "deployments", name)
        found = await cluster.get(server, path)
    except kube_errors.ApiError as refused:
        return [_check(check, "unknown", str(refused)) for check in ("chart", "egress")]
    labels = (found.get("metadata") or {}).get("labels") or {}
    variables: dict[str, str] = {}
    with contextlib.suppress(KeyError, TypeError):
        for container in found["spec"]["template"]["spec"]["containers"]:
            variables |= {one["name"]: one.get("value", "") for one in container.get("env") or ()}
    mode = variables.get("DUEPOINT_EGRESS_MODE") or settings.USUAL_EGRESS_MODE
    allows_http = "http" in variables.get("DUEPOINT_WEBHOOK_INSECURE", "")
    text = f"mode {mode}; plain http to public hosts is {'allowed' if allows_http else 'refused'}"
    do = "every author can reach every private address: set egress.mode to"
    do += f" {settings.USUAL_EGRESS_MODE} or allowlist"
    return [
        _check("chart", "ok", labels.get("helm.sh/chart") or "not installed by the chart"),
        _judged("egress", text, mode == "open", do, "warning"),
    ]


# -- the Schedules -------------------------------------------------------------------------------


async def _schedules(server: ClusterSession, place: options.Place) -> output.Row:
    try:
        listed = await cluster.listed_schedules(server, place, None)
    except errors.DuepointError as refused:
        return _check("schedules", "unknown", str(refused))
    found, now_us = [facts.of_object(one) for one in listed], instants.now_us()
    troubled = [one.identity for one in found if one.diagnosis(now_us).is_troubled]
    where = "all namespaces" if place.everywhere else f"namespace {server.namespace}"
    text = f"{len(found)} {'Schedule' if len(found) == 1 else 'Schedules'} in {where}"
    if troubled:
        text += f", {len(troubled)} in trouble: {', '.join(troubled[:3])}"
        text += ", ..." if len(troubled) > 3 else ""
    else:
        text += ", none in trouble" + (" (-A looks at all)" if not place.everywhere else "")
    chosen = "-A" if place.everywhere else f"-n {server.namespace}"
    do = f"kubectl duepoint list --failing {chosen}; kubectl duepoint why NAME says more"
    return _judged("schedules", text, troubled, do, "warning")
