"""The API server of a command: one session, and the CronJobs that ``import`` reads there.

Uses a context of a kubeconfig as kubectl does, with the rights of the person who runs the command.
A list of CronJobs is read page by page and is whole or an error: half of somebody's CronJobs would
be taken for all of them. Imported by the commands that ask a cluster, when they run.
"""

from __future__ import annotations

import contextlib
import json
import urllib.parse
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duepoint.cli import options
from duepoint.cli.check.manifests import Manifest, Unreadable
from duepoint.kube import api as kubeapi
from duepoint.kube import errors as kube_errors
from duepoint.kube import kubeconfig, port

_GROUP_VERSION = "batch/v1"
_PAGE_TIMEOUT_SECONDS = 60.0
#: A list that took so long that its beginning was forgotten is begun again, so often.
_ATTEMPTS = 3

Found = Manifest | Unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to look: a kubeconfig, a context of it, a namespace; None = kubectl's defaults."""

    kubeconfig: Path | None
    context: str | None
    namespace: str | None


def place(namespace: str | None, kubeconfig: Path | None, context: str | None) -> Place:
    """Where to look; raises errors.InvalidSetting."""
    options.check_name("--namespace", namespace)
    return Place(kubeconfig=kubeconfig, context=context, namespace=namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """An API server, and the namespace that is meant."""

    api: port.Api
    namespace: str


@contextlib.asynccontextmanager
async def session(place: Place) -> AsyncIterator[Cluster]:
    """A session with the cluster.

    Raises:
        errors.InvalidSetting: there are no credentials, or the kubeconfig is wrong.
    """
    access = kubeconfig.found(place.kubeconfig, place.context)
    async with kubeapi.ApiSession(access, component="cli") as api:
        login = await access.login()
        yield Cluster(api=api, namespace=place.namespace or login.namespace)


# -- CronJobs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which CronJobs.

    Attributes:
        everywhere: of all namespaces instead.
        selector: of labels, as kubectl writes it.
        names: only these; empty is all.
    """

    everywhere: bool
    selector: str | None
    names: tuple[str, ...]


async def cronjobs(wanted: Choice, place: Place) -> list[Found]:
    """The CronJobs asked for, or in its place why a name could not be read.

    Raises:
        errors.DuepointError: the cluster cannot be asked, or does not answer.
    """
    async with session(place) as cluster:
        scope = "" if wanted.everywhere else f"/namespaces/{_part(cluster.namespace)}"
        path = f"/apis/{_GROUP_VERSION}{scope}/cronjobs"
        if wanted.names:
            return [await _one(cluster.api, path, name) for name in wanted.names]
        return await _listed(cluster.api, path, wanted.selector)


def _part(text: str) -> str:
    return urllib.parse.quote(text, safe="")


async def _one(api: port.Api, path: str, name: str) -> Found:
    try:
        body = await api.request("GET", f"{path}/{_part(name)}")
    except kube_errors.NotFound:
        return Unreadable(file=f"CronJob {name}", document=0, message="does not exist")
    except kube_errors.Forbidden as error:  # rights may name single objects
        return Unreadable(file=f"CronJob {name}", document=0, message=str(error))
    return _manifest(json.loads(body))


async def _listed(api: port.Api, path: str, selector: str | None) -> list[Found]:
    for attempt in range(_ATTEMPTS):
        try:
            return await _all_pages(api, path, selector)
        except kube_errors.Gone:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


async def _all_pages(api: port.Api, path: str, selector: str | None) -> list[Found]:
    query = {"limit": str(port.PAGE_LIMIT)} | ({"labelSelector": selector} if selector else {})
    found: list[Found] = []
    while True:
        body = await api.request("GET", path, query=query, timeout_seconds=_PAGE_TIMEOUT_SECONDS)
        page = json.loads(body)
        found += [_manifest(item) for item in page.get("items") or []]
        query["continue"] = page.get("metadata", {}).get("continue") or ""
        if not query["continue"]:
            return found


def _manifest(item: dict[str, Any]) -> Manifest:
    """An object of a list says neither its kind nor its version."""
    content = {**item, "apiVersion": _GROUP_VERSION, "kind": "CronJob"}
    return Manifest(file="cluster", document=0, item="", content=content)
