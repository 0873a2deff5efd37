"""Sessions of commands with an API server, by a context of a kubeconfig as in kubectl.

A session has the rights of the user who runs the command. Commands import this module only when
they run.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec

from duepoint import errors
from duepoint.cli import options
from duepoint.kube import api as kubeapi
from duepoint.kube import credentials, port, schedules
from duepoint.kube import errors as kube_errors

_PAGE = "500"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSession:
    """A session with an API server, and the chosen namespace."""

    api: port.Api
    namespace: str


@contextlib.asynccontextmanager
async def session(place: options.Place) -> AsyncIterator[ClusterSession]:
    """Open a session with the cluster.

    Raises:
        errors.InvalidSetting: no credentials are found, the cluster does not accept them or does
            not answer, or a right is missing.
    """
    access = credentials.found(place.kubeconfig, place.context)
    where = "the API server"
    namespace = place.namespace or ""
    try:
        async with kubeapi.ApiSession(access, component="cli") as api:
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
        # The chart adds its kinds to these roles.
        advice = f"ask an admin of {namespace} for the role view, or edit for changes"
        if place.everywhere:
            advice = (
                "ask for the ClusterRole view (edit for changes) in every namespace, or write -n"
            )
        raise errors.InvalidSetting("cluster", f"{refused}; {advice}") from refused
    except kube_errors.Unavailable as silent:
        if silent.status:
            raise  # the server answered, and says what is wrong
        message = f"{where} does not answer ({silent}); is this the right --context?"
        raise errors.InvalidSetting("cluster", message) from silent


async def listed(
    server: ClusterSession, path: str, selector: str | None = None
) -> list[dict[str, Any]]:
    """List the objects of a collection with matching labels.

    Raises:
        errors.InvalidSetting: the selector is wrong.
        kube_errors.ApiError: they may not be listed, or the API server does not answer.
    """
    query = {"limit": _PAGE} | ({"labelSelector": selector} if selector else {})
    found: list[dict[str, Any]] = []
    try:
        while True:
            page = await get(server, path, **query)
            found += page.get("items") or ()
            if not (token := (page.get("metadata") or {}).get("continue")):
                return found
            query["continue"] = token
    except kube_errors.Invalid as refused:
        if not selector:
            raise
        message = f"{errors.quoted(selector)}: {refused.server_message}"
        raise errors.InvalidSetting("--selector", message) from refused


async def listed_schedules(
    server: ClusterSession, place: options.Place, selector: str | None = None
) -> list[dict[str, Any]]:
    """List the Schedules of a namespace or of the cluster; raises as ``listed``, or ``no_crd``."""
    path = schedules.collection(None if place.everywhere else server.namespace)
    try:
        return await listed(server, path, selector)
    except kube_errors.NotFound:
        raise no_crd() from None


async def get(server: ClusterSession, path: str, **query: str) -> Any:  # noqa: ANN401 - any JSON
    """Read the JSON of a path; raises kube_errors.ApiError."""
    return msgspec.json.decode(await server.api.request("GET", path, query=query or None))


async def schedule(server: ClusterSession, name: str) -> dict[str, Any]:
    """Read the Schedule with this name.

    Raises:
        errors.InvalidSetting: there is none, or no CRD; the message names similar names.
    """
    with contextlib.suppress(kube_errors.NotFound):
        found: dict[str, Any] = await get(server, schedules.path(server.namespace, name))
        return found
    hint = f"kubectl duepoint list -n {server.namespace} shows those there are"
    try:
        others = await listed(server, schedules.collection(server.namespace))
    except kube_errors.NotFound:
        raise no_crd() from None
    except kube_errors.ApiError:
        others = []
    if near := options.nearest(name, [item["metadata"]["name"] for item in others]):
        hint = f'did you mean "{near}"?'
    message = f"there is no Schedule {server.namespace}/{name}"
    raise errors.InvalidSetting("NAME", f"{message}; {hint}")


def no_crd() -> errors.InvalidSetting:
    """Return the error for a cluster without our CRDs."""
    return errors.InvalidSetting(
        "cluster",
        "it has no Schedules (the CRD schedules.duepoint.dev is missing): install Duepoint, or"
        " write another --context",
    )
