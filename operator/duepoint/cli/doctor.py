"""``duepoint doctor``: whether an installation is in order, and what to do where it is not.

Everything is read from the API server with the rights of the person who asks: the CRDs, the
operator's Lease and what it says of Redis, workers, lag and clocks, rights of this person, the
settings of the worker's Deployment, and the Schedules. What may not be
read is ``unknown`` and no trouble. Exit code 1: something is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
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

_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.duepoint.dev"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#: Of this person: verb, group, resource.
_OWN_RIGHTS = (
    ("list", "duepoint.dev", "schedules"),
    ("patch", "duepoint.dev", "schedules"),
    ("create", "duepoint.dev", "scheduleruns"),
    ("run", "duepoint.dev", "schedules"),
)
_LONG_LAG_SECONDS = 5.0
_SKEW_SECONDS = 0.5
_FULL = 0.9
_TELL = "kubectl logs -n {ns} deploy/{name}-{part} --tail=50"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        state: ``ok``, ``warning``, ``failed``, or ``unknown`` where it may not be read.
        do: what to do; empty where nothing has to be done.
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
    columns: output.Columns = {"check": "check", "state": "state", "found": "found"}
    if output.is_data(form):
        output.write(rows, form)
    else:
        output.show_rows(rows, form, columns)
        for row in rows:
            if row["do"]:
                output.say(f"{row['check']}: {row['found']}")
                output.say(f"  do  {row['do']}")
    if any(one.state == "failed" for one in found):
        raise click.exceptions.Exit(output.FAILED)


async def _checked(place: options.Place, lease: str) -> list[Check]:

    namespace, _, name = lease.partition("/")
    async with cluster.session(place) as server:
        await cluster.get(server, "/version")  # without an answer there is nothing to check
        found = await facts.lease_facts(server, lease, is_certain=True)
        release = name.removesuffix("-operator")
        return [
            *[one async for one in _crds(server)],
            *_of_lease(found, lease),
            *_of_state(found, namespace, release),
            await _rights(server, place),
            *[one async for one in _deployments(server, namespace, release)],
            await _schedules(server, place),
        ]


# -- the API -------------------------------------------------------------------------------------


async def _crds(server: ClusterSession) -> AsyncIterator[Check]:

    apply = "helm upgrade with this version's chart, or kubectl apply --server-side -f crds/"
    for plural in ("schedules", "scheduleruns", "schedulesets"):
        try:
            found = await cluster.get(server, _CRD.format(plural))
        except kube_errors.NotFound:
            yield Check(name=f"crd {plural}", state="failed", found="is not installed", do=apply)
            continue
        except kube_errors.ApiError as refused:
            yield Check(name=f"crd {plural}", state="unknown", found=str(refused))
            continue
        conditions = (found.get("status") or {}).get("conditions") or ()
        wrong = [
            f"{one.get('type')}: {one.get('message')}"
            for one in conditions
            if (one.get("type"), one.get("status"))
            in (("Established", "False"), ("NamesAccepted", "False"), ("Terminating", "True"))
        ]
        if wrong:
            yield Check(name=f"crd {plural}", state="failed", found="; ".join(wrong), do=apply)
        else:
            yield Check(name=f"crd {plural}", state="ok", found="installed, of this version")


async def _rights(server: ClusterSession, place: options.Place) -> Check:
    where = "" if place.everywhere else server.namespace
    named = where or "every namespace"
    refused = [
        f"{verb} {resource}"
        for verb, group, resource in _OWN_RIGHTS
        if not await _may(server, where, verb, group, resource)
    ]
    found = f"you may not {', '.join(refused)}" if refused else "you may do all that this needs"
    do = f"ask for the role edit in {named}" if refused else ""
    state = "warning" if refused else "ok"
    return Check(name="your rights", state=state, found=f"in {named}: {found}", do=do)


async def _may(
    server: ClusterSession, namespace: str, verb: str, group: str, resource: str
) -> bool:
    """Whether who asks may do that there; in no namespace = in every one."""
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


def _of_lease(found: LeaseFacts | None, lease: str) -> list[Check]:
    namespace, _, name = lease.partition("/")
    look = f"kubectl get pods -n {namespace}; kubectl logs -n {namespace} deploy/{name} --tail=50"
    if found is None:
        text = f"you may not read the Lease {lease}"
        do = "write --lease NAMESPACE/NAME, or have installationReaders of the chart name you"
        return [Check(name="leader", state="unknown", found=text, do=do)]
    if found.leads:
        return [Check(name="leader", state="ok", found=found.holder)]
    text = f"no operator leads; the Lease {lease} "
    if not found.renewed_us:
        text += "does not exist"
    else:
        text += f"was renewed last at {instants.utc_text(found.renewed_us)}"
    return [Check(name="leader", state="failed", found=text, do=look)]


def _of_state(found: LeaseFacts | None, namespace: str, release: str) -> list[Check]:
    state = None if found is None else found.state
    if found is None or state is None or not found.leads:
        names = ("version", "redis", "workers", "lag", "clocks")
        return [Check(name=name, state="unknown", found="no leader says so") for name in names]
    operators = _TELL.format(ns=namespace, name=release, part="operator")
    workers = _TELL.format(ns=namespace, name=release, part="worker")
    checks = [_version(state.version)]
    if state.redis_down_since:
        text = f"does not answer the operator since {state.redis_down_since}"
        do = f"see whether it runs and lets the operator in; {operators}"
        checks.append(Check(name="redis", state="failed", found=text, do=do))
    else:
        checks.append(_redis(state.redis, state.memory_used_bytes, state.memory_limit_bytes))
    for part, text in state.troubles.items():
        said = f"{part}: {text}" if text else part
        checks.append(
            Check(name="operator", state="failed", found=f"is not ready: {said}", do=operators)
        )
    troubles = "; ".join(f"{name}: {text}" for name, text in state.worker_troubles.items())
    living = "unknown" if state.workers is None else f"{state.workers} live"
    checks.append(
        Check(
            name="workers",
            state="unknown"
            if state.workers is None
            else "failed"
            if troubles or not state.workers
            else "ok",
            found=f"{living}; {troubles}" if troubles else living,
            do=workers if troubles or not state.workers else "",
        )
    )
    lag = f"{state.due} points are due, the oldest for {output.span(state.lag_seconds)}"
    is_late = state.lag_seconds > _LONG_LAG_SECONDS
    do = "more workers, or targets that answer sooner: duepoint queue stats --by namespace"
    checks.append(
        Check(name="lag", state="warning" if is_late else "ok", found=lag, do=do if is_late else "")
    )
    checks.append(_clocks(state.clock_skew_seconds))
    return checks


def _version(version: str) -> Check:
    if version == __version__:
        return Check(name="version", state="ok", found=version)
    text = f"the operator is {version or 'older'}, this command {__version__}"
    do = "use the command of the installation's version"
    return Check(name="version", state="warning", found=text, do=do)


def _redis(server: str, used: int, limit: int) -> Check:
    room = f"{output.size(used)} of {output.size(limit)} used" if limit else "no memory limit"
    if limit and used > _FULL * limit:
        do = "raise maxmemory: a full server refuses edits and retries"
        return Check(name="redis", state="warning", found=f"{server}, {room}", do=do)
    return Check(name="redis", state="ok", found=f"{server}, {room}")


def _clocks(skew: float | None) -> Check:
    if skew is None:
        return Check(name="clocks", state="unknown", found="not compared yet")
    found = (
        f"the operator's clock is {abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} Redis's"
    )
    if abs(skew) <= _SKEW_SECONDS:
        return Check(name="clocks", state="ok", found=found)
    return Check(name="clocks", state="failed", found=found, do="set the clock that is wrong")


async def _deployments(
    server: ClusterSession, namespace: str, release: str
) -> AsyncIterator[Check]:

    path = port.path("/apis/apps/v1", namespace, "deployments", f"{release}-worker")
    try:
        found = await cluster.get(server, path)
    except kube_errors.ApiError as refused:
        worker = f"the Deployment {namespace}/{release}-worker"
        if isinstance(refused, kube_errors.NotFound):
            text = f"{worker} does not exist: not installed by the chart, or under another name"
        elif isinstance(refused, kube_errors.Forbidden):
            text = f"you may not read {worker}"
        else:
            text = str(refused)
        for name in ("chart", "egress"):
            yield Check(name=name, state="unknown", found=text)
        return
    labels = (found.get("metadata") or {}).get("labels") or {}
    chart = labels.get("helm.sh/chart") or labels.get("app.kubernetes.io/version") or "no label"
    yield Check(name="chart", state="ok", found=str(chart))
    variables: dict[str, str] = {}
    with contextlib.suppress(KeyError, TypeError):
        for container in found["spec"]["template"]["spec"]["containers"]:
            variables |= {one["name"]: one.get("value", "") for one in container.get("env") or ()}
    mode = variables.get("DUEPOINT_EGRESS_MODE") or settings.USUAL_EGRESS_MODE
    text = f"mode {mode}; plain http to public hosts is "
    text += "allowed" if "http" in variables.get("DUEPOINT_WEBHOOK_INSECURE", "") else "refused"
    is_open = mode == "open"
    do = "every author can reach every private address: set egress.mode to "
    do += f"{settings.USUAL_EGRESS_MODE} or allowlist"
    yield Check(
        name="egress", state="warning" if is_open else "ok", found=text, do=do if is_open else ""
    )


# -- the Schedules -------------------------------------------------------------------------------


async def _schedules(server: ClusterSession, place: options.Place) -> Check:
    try:
        listed = await cluster.listed_schedules(server, place, None)
    except errors.DuepointError as refused:
        return Check(name="schedules", state="unknown", found=str(refused))
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
                return Check(name="schedules", state="failed", found=text, do=do)
    now_us = instants.now_us()
    troubled = [one.identity for one in found if one.diagnosis(now_us).is_troubled]
    where = "all namespaces" if place.everywhere else f"namespace {server.namespace}"
    text = f"{len(found)} {'Schedule' if len(found) == 1 else 'Schedules'} in {where}"
    if troubled:
        text += f", {len(troubled)} in trouble: {', '.join(troubled[:3])}"
        text += ", ..." if len(troubled) > 3 else ""
        chosen = "-A" if place.everywhere else f"-n {server.namespace}"
        do = f"kubectl duepoint list --failing {chosen}; kubectl duepoint why NAME says more"
        return Check(name="schedules", state="warning", found=text, do=do)
    text += ", none in trouble" + (" (-A looks at all)" if not place.everywhere else "")
    return Check(name="schedules", state="ok", found=text)
