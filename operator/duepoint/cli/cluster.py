"""The API server of a command: a session in a context of a kubeconfig, as kubectl has it.

It has the rights of the person who runs the command. Imported by the commands that ask a cluster,
when they run.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from duepoint import errors
from duepoint.cli import grouping, options
from duepoint.kube import api as kubeapi
from duepoint.kube import credentials, port, schedules
from duepoint.kube import errors as kube_errors

_PAGE = "500"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSession:
    """An API server, and the namespace that is meant."""

    api: port.Api
    namespace: str


@contextlib.asynccontextmanager
async def session(place: options.Place) -> AsyncIterator[ClusterSession]:
    """A session with the cluster.

    Raises:
        errors.InvalidSetting: no credentials are found, the cluster does not accept them or does
            not answer, a right is missing, or ``place.patience_seconds`` are over.
    """
    access = credentials.found(place.kubeconfig, place.context)
    where = "the API server"
    namespace = place.namespace or ""
    try:
        async with (
            options.limited(place.patience_seconds),
            kubeapi.ApiSession(access, component="cli") as api,
        ):
            login = await access.login()
            where = login.server
            namespace = place.namespace or login.namespace
            yield ClusterSession(api=api, namespace=namespace)
    except kube_errors.Unauthorized as refused:
        message = f"{where} does not accept these credentials ({refused}); log in again"
        raise errors.InvalidSetting(
            "cluster", f"{message}, or write another --context"
        ) from refused
    except kube_errors.Forbidden as refused:
        if not refused.is_about_rights:
            raise
        raise errors.InvalidSetting(
            "cluster", f"{refused}; {_ask_for_rights(place, namespace)}"
        ) from refused
    except kube_errors.Unavailable as silent:
        if silent.status:
            raise  # an answer, which says what is wrong
        message = f"{where} does not answer ({silent}); is this the right --context?"
        raise errors.InvalidSetting("cluster", message) from silent


def _ask_for_rights(place: options.Place, namespace: str) -> str:
    """What to do where a right is missing; the chart adds its kinds to these roles."""
    if place.everywhere:
        return "ask for the ClusterRole view (edit for changes) in every namespace, or write -n"
    return f"ask an admin of {namespace} for the role view, or edit for changes"


async def listed(
    server: ClusterSession, path: str, selector: str | None = None
) -> list[dict[str, Any]]:
    """The objects of a collection, with such labels; a list that expired meanwhile begins anew.

    Raises:
        errors.InvalidSetting: the selector is wrong.
        kube_errors.ApiError: they may not be listed, or the API server does not answer.
    """
    query = {"limit": _PAGE} | ({"labelSelector": selector} if selector else {})
    for is_last in (False, False, True):
        found: list[dict[str, Any]] = []
        token: str | None = None
        try:
            while True:
                more = {"continue": token} if token else {}
                body = await server.api.request("GET", path, query=query | more)
                page = msgspec.json.decode(body)
                found += page.get("items") or ()
                if not (token := (page.get("metadata") or {}).get("continue")):
                    return found
        except kube_errors.Gone:
            if is_last:
                raise
        except kube_errors.Invalid as refused:
            if not selector:
                raise
            message = f"{errors.quoted(selector)}: {refused.server_message}"
            raise errors.InvalidSetting("--selector", message) from refused
    raise AssertionError


async def listed_schedules(
    server: ClusterSession, place: options.Place, selector: str | None = None
) -> list[dict[str, Any]]:
    """The Schedules of a namespace or of the cluster; raises as ``listed``, and without our CRD."""
    path = schedules.collection(None if place.everywhere else server.namespace)
    try:
        return await listed(server, path, selector)
    except kube_errors.NotFound:
        raise no_crd() from None


async def get(server: ClusterSession, path: str, **query: str) -> Any:  # noqa: ANN401 - any JSON
    """The JSON of a path; raises kube_errors.ApiError."""
    return msgspec.json.decode(await server.api.request("GET", path, query=query or None))


async def schedule(server: ClusterSession, name: str) -> dict[str, Any]:
    """The Schedule of this name.

    Raises:
        errors.InvalidSetting: there is none, or no CRD; it names what is near.
    """
    try:
        found: dict[str, Any] = await get(server, schedules.path(server.namespace, name))
    except kube_errors.NotFound:
        raise await unknown_name(server, name) from None
    return found


# -- what is not there -----------------------------------------------------------------------------


async def unknown_name(server: ClusterSession, name: str) -> errors.InvalidSetting:
    """The mistake of a name that no Schedule of the namespace has."""
    message = f"there is no Schedule {server.namespace}/{name}"
    hint = f"kubectl duepoint list -n {server.namespace} shows those there are"
    try:
        found = await listed(server, schedules.collection(server.namespace))
    except kube_errors.NotFound:
        return no_crd()
    except kube_errors.ApiError:
        return errors.InvalidSetting("NAME", f"{message}; {hint}")
    if near := grouping.nearest(name, [item["metadata"]["name"] for item in found]):
        hint = f'did you mean "{near}"?'
    return errors.InvalidSetting("NAME", f"{message}; {hint}")


def no_crd() -> errors.InvalidSetting:
    """The mistake of a cluster without our CRDs."""
    return errors.InvalidSetting(
        "cluster",
        "it has no Schedules (the CRD schedules.duepoint.dev is missing): install Duepoint, or"
        " write another --context",
    )


# -- kubectl ---------------------------------------------------------------------------------------


def kubectl(place: options.Place) -> list[str]:
    """The kubectl of the PATH, else that beside our interpreter, and the cluster that is meant.

    Raises:
        errors.InvalidSetting: there is none.
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
