"""``duepoint doctor``: checks whether an installation is in order, and says what to do if not.

It reads everything from the API server with the rights of the user: the CRDs, the operator's Lease
and its state of Redis, workers, lag and clocks, the user's own rights, the settings of the worker's
Deployment, and the Schedules. A check whose objects the user may not read is ``unknown``, which
does not count as a trouble. Exit code 1: something is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import click
import msgspec

from duepoint import __version__, errors, settings
from duepoint.cli import cluster, instants, options, output
from duepoint.cli.cluster import ClusterSession
from duepoint.cli.schedules import facts
from duepoint.cli.schedules.facts import LeaseFacts
from duepoint.kube import errors as kube_errors
from duepoint.kube import port
from duepoint.kube.installation import InstallationState

_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.duepoint.dev"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#: Rights of the user to check: verb, group, resource.
_OWN_RIGHTS = (
    ("list", "duepoint.dev", "schedules"),
    ("patch", "duepoint.dev", "schedules"),
    ("create", "duepoint.dev", "scheduleruns"),
    ("run", "duepoint.dev", "schedules"),
)
_LONG_LAG_SECONDS = 5.0
_SKEW_SECONDS = 0.5
_FULL = 0.9


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        state: ``ok``, ``warning``, ``failed``, or ``unknown`` if it may not be read.
        do: what to do; empty if nothing has to be done.
    """

    name: str
    state: str
    found: str
    do: str = ""


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

    Example: duepoint doctor -A
    """
    found = asyncio.run(_checked(place, lease))
    rows = [
        {"check": one.name, "state": one.state, "found": one.found, "do": one.do} for one in found
    ]
    output.show_rows(rows, form, {"check": "check", "state": "state", "found": "found"})
    for one in found:
        if one.do and not output.is_data(form):
            output.say(f"{one.name}: {one.found}")
            output.say(f"  do  {one.do}")
    if any(one.state == "failed" for one in found):
        raise click.exceptions.Exit(output.FAILED)


async def _checked(place: options.Place, lease: str) -> list[Check]:
    namespace, _, name = lease.partition("/")
    async with cluster.session(place) as server:
        await cluster.get(server, "/version")  # fails here if the API server does not answer
        found = await facts.lease_facts(server, lease, is_certain=True)
        release = name.removesuffix("-operator")
        return [
            *[
                await _crd(server, plural)
                for plural in ("schedules", "scheduleruns", "schedulesets")
            ],
            _leader(found, lease),
            *_of_state(found, namespace, release),
            await _rights(server, place),
            *await _deployment(server, namespace, f"{release}-worker"),
            await _schedules(server, place),
        ]


# -- the API -------------------------------------------------------------------------------------


async def _crd(server: ClusterSession, plural: str) -> Check:
    name = f"crd {plural}"
    apply = "helm upgrade with this version's chart, or kubectl apply --server-side -f crds/"
    try:
        found = await cluster.get(server, _CRD.format(plural))
    except kube_errors.NotFound:
        return Check(name, "failed", "is not installed", apply)
    except kube_errors.ApiError as refused:
        return Check(name, "unknown", str(refused))
    wrong = [
        f"{one.get('type')}: {one.get('message')}"
        for one in (found.get("status") or {}).get("conditions") or ()
        if (one.get("type"), one.get("status"))
        in (("Established", "False"), ("NamesAccepted", "False"), ("Terminating", "True"))
    ]
    if wrong:
        return Check(name, "failed", "; ".join(wrong), apply)
    return Check(name, "ok", "installed, of this version")


async def _rights(server: ClusterSession, place: options.Place) -> Check:
    where = "" if place.everywhere else server.namespace
    named = where or "every namespace"
    refused = [
        f"{verb} {resource}"
        for verb, group, resource in _OWN_RIGHTS
        if not await _may(server, where, verb, group, resource)
    ]
    if refused:
        found = f"in {named}: you may not {', '.join(refused)}"
        return Check("your rights", "warning", found, f"ask for the role edit in {named}")
    return Check("your rights", "ok", f"in {named}: you may do all that this needs")


async def _may(
    server: ClusterSession, namespace: str, verb: str, group: str, resource: str
) -> bool:
    """Whether the user has a right in a namespace; an empty one means all namespaces."""
    wanted = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }
    try:
        answer = await server.api.request("POST", _REVIEWS, body)
    except kube_errors.ApiError:
        return False
    return bool((msgspec.json.decode(answer).get("status") or {}).get("allowed"))


# -- the installation ----------------------------------------------------------------------------


def _leader(found: LeaseFacts | None, lease: str) -> Check:
    namespace, _, name = lease.partition("/")
    if found is None:
        do = "write --lease NAMESPACE/NAME, or have installationReaders of the chart name you"
        return Check("leader", "unknown", f"you may not read the Lease {lease}", do)
    if found.leads:
        return Check("leader", "ok", found.holder)
    text = "does not exist"
    if found.renewed_us:
        text = f"was renewed last at {instants.utc_text(found.renewed_us)}"
    do = f"kubectl get pods -n {namespace}; kubectl logs -n {namespace} deploy/{name} --tail=50"
    return Check("leader", "failed", f"no operator leads; the Lease {lease} {text}", do)


def _of_state(found: LeaseFacts | None, namespace: str, release: str) -> Iterator[Check]:
    """Yield the checks of Redis, workers, lag and clocks, from the leader's state on its Lease."""
    state = None if found is None else found.state
    if found is None or state is None or not found.leads:
        for name in ("version", "redis", "workers", "lag", "clocks"):
            yield Check(name, "unknown", "no leader says so")
        return
    logs = f"kubectl logs -n {namespace} deploy/{release}-{{}} --tail=50"
    if state.version == __version__:
        yield Check("version", "ok", state.version)
    else:
        text = f"the operator is {state.version or 'older'}, this command {__version__}"
        do = "use the command of the installation's version"
        yield Check("version", "warning", text, do)
    yield _redis(state, logs.format("operator"))
    for part, text in state.troubles.items():
        said = f"is not ready: {part}: {text}" if text else f"is not ready: {part}"
        yield Check("operator", "failed", said, logs.format("operator"))
    if state.workers is None:
        yield Check("workers", "unknown", "unknown")
    else:
        troubles = [f"{name}: {text}" for name, text in state.worker_troubles.items()]
        said = "; ".join([f"{state.workers} live", *troubles])
        is_ok = state.workers and not troubles
        yield Check(
            "workers", *(("ok", said) if is_ok else ("failed", said, logs.format("worker")))
        )
    lag = f"{state.due} points are due, the oldest for {output.span(state.lag_seconds)}"
    if state.lag_seconds > _LONG_LAG_SECONDS:
        do = "more workers, or targets that answer sooner: duepoint queue stats --by namespace"
        yield Check("lag", "warning", lag, do)
    else:
        yield Check("lag", "ok", lag)
    if (skew := state.clock_skew_seconds) is None:
        yield Check("clocks", "unknown", "not compared yet")
        return
    side = "ahead of" if skew > 0 else "behind"
    text = f"the operator's clock is {abs(skew):.3f} s {side} Redis's"
    if abs(skew) <= _SKEW_SECONDS:
        yield Check("clocks", "ok", text)
    else:
        yield Check("clocks", "failed", text, "set the clock that is wrong")


def _redis(state: InstallationState, logs: str) -> Check:
    if state.redis_down_since:
        text = f"does not answer the operator since {state.redis_down_since}"
        return Check(
            "redis", "failed", text, f"see whether it runs and lets the operator in; {logs}"
        )
    used, limit = state.memory_used_bytes, state.memory_limit_bytes
    room = f"{output.size(used)} of {output.size(limit)} used" if limit else "no memory limit"
    text = f"{state.redis}, {room}"
    if limit and used > _FULL * limit:
        return Check(
            "redis", "warning", text, "raise maxmemory: a full server refuses edits and retries"
        )
    return Check("redis", "ok", text)


async def _deployment(server: ClusterSession, namespace: str, name: str) -> list[Check]:
    """Return the checks of the chart and of egress, from the worker's Deployment."""
    worker = f"the Deployment {namespace}/{name}"
    try:
        path = port.path("/apis/apps/v1", namespace, "deployments", name)
        found = await cluster.get(server, path)
    except kube_errors.ApiError as refused:
        text = str(refused)
        if isinstance(refused, kube_errors.NotFound):
            text = f"{worker} does not exist: not installed by the chart, or under another name"
        elif isinstance(refused, kube_errors.Forbidden):
            text = f"you may not read {worker}"
        return [Check("chart", "unknown", text), Check("egress", "unknown", text)]
    labels = (found.get("metadata") or {}).get("labels") or {}
    chart = labels.get("helm.sh/chart") or labels.get("app.kubernetes.io/version") or "no label"
    variables: dict[str, str] = {}
    with contextlib.suppress(KeyError, TypeError):
        for container in found["spec"]["template"]["spec"]["containers"]:
            variables |= {one["name"]: one.get("value", "") for one in container.get("env") or ()}
    mode = variables.get("DUEPOINT_EGRESS_MODE") or settings.USUAL_EGRESS_MODE
    allows_http = "http" in variables.get("DUEPOINT_WEBHOOK_INSECURE", "")
    text = f"mode {mode}; plain http to public hosts is {'allowed' if allows_http else 'refused'}"
    egress = Check("egress", "ok", text)
    if mode == "open":
        do = "every author can reach every private address: set egress.mode to"
        egress = Check("egress", "warning", text, f"{do} {settings.USUAL_EGRESS_MODE} or allowlist")
    return [Check("chart", "ok", str(chart)), egress]


# -- the Schedules -------------------------------------------------------------------------------


async def _schedules(server: ClusterSession, place: options.Place) -> Check:
    try:
        listed = await cluster.listed_schedules(server, place, None)
    except errors.DuepointError as refused:
        return Check("schedules", "unknown", str(refused))
    found = [facts.of_object(one) for one in listed]
    if not (found or place.everywhere):
        with contextlib.suppress(kube_errors.Forbidden):
            try:
                await cluster.get(
                    server, port.path("/api/v1", None, "namespaces", server.namespace)
                )
            except kube_errors.NotFound:
                text = f"there is no namespace {server.namespace}"
                do = "write another -n; kubectl get namespaces shows those there are"
                return Check("schedules", "failed", text, do)
    now_us = instants.now_us()
    troubled = [one.identity for one in found if one.diagnosis(now_us).is_troubled]
    where = "all namespaces" if place.everywhere else f"namespace {server.namespace}"
    text = f"{len(found)} {'Schedule' if len(found) == 1 else 'Schedules'} in {where}"
    if troubled:
        text += f", {len(troubled)} in trouble: {', '.join(troubled[:3])}"
        text += ", ..." if len(troubled) > 3 else ""
        chosen = "-A" if place.everywhere else f"-n {server.namespace}"
        do = f"kubectl duepoint list --failing {chosen}; kubectl duepoint why NAME says more"
        return Check("schedules", "warning", text, do)
    text += ", none in trouble" + (" (-A looks at all)" if not place.everywhere else "")
    return Check("schedules", "ok", text)
