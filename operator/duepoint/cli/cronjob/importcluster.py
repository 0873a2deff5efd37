"""CronJobs of a cluster, as manifests: what ``import cronjob`` reads where no file is named.

Uses the context of a kubeconfig, as kubectl does, and asks for CronJobs page by page; nothing else
is read and nothing is written. The list is whole or an error: half of somebody's CronJobs would be
taken for all of them.
"""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duepoint.cli.check.manifests import Manifest, Unreadable
from duepoint.kube import api, credentials, kubeconfig, port
from duepoint.kube import errors as kube_errors

_GROUP_VERSION = "batch/v1"
_PAGE_TIMEOUT_SECONDS = 60.0
#: A list that took so long that its beginning was forgotten is begun again, so often.
_ATTEMPTS = 3

Found = Manifest | Unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which CronJobs.

    Attributes:
        namespace: None is the context's own.
        everywhere: of all namespaces instead.
        selector: of labels, as kubectl writes it.
        names: only these; empty is all.
    """

    namespace: str | None
    everywhere: bool
    selector: str | None
    names: tuple[str, ...]


def read(wanted: Wanted, file: Path | None, context: str | None) -> list[Found]:
    """The CronJobs asked for, or in its place why a name could not be read.

    Args:
        file: the kubeconfig; None is $KUBECONFIG, then ~/.kube/config.

    Raises:
        errors.DuepointError: the cluster cannot be asked, or does not answer.
    """
    access = kubeconfig.found(file, context)
    return asyncio.run(_read(wanted, access))


async def _read(wanted: Wanted, access: credentials.Credentials) -> list[Found]:
    async with api.ApiSession(access, component="import") as session:
        login = await access.login()
        if wanted.everywhere:
            scope = ""
        else:
            namespace = wanted.namespace or login.namespace
            scope = f"/namespaces/{urllib.parse.quote(namespace, safe='')}"
        path = f"/apis/{_GROUP_VERSION}{scope}/cronjobs"
        if wanted.names:
            return [await _one(session, path, name) for name in wanted.names]
        return await _listed(session, path, wanted.selector)


async def _one(session: port.Api, path: str, name: str) -> Found:
    try:
        body = await session.request("GET", f"{path}/{urllib.parse.quote(name, safe='')}")
    except kube_errors.NotFound:
        return Unreadable(file=f"CronJob {name}", document=0, message="does not exist")
    except kube_errors.Forbidden as error:  # rights may name single objects
        return Unreadable(file=f"CronJob {name}", document=0, message=str(error))
    return _manifest(json.loads(body))


async def _listed(session: port.Api, path: str, selector: str | None) -> list[Found]:
    for attempt in range(_ATTEMPTS):
        try:
            return await _all_pages(session, path, selector)
        except kube_errors.Gone:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


async def _all_pages(session: port.Api, path: str, selector: str | None) -> list[Found]:
    query = {"limit": str(port.PAGE_LIMIT)} | ({"labelSelector": selector} if selector else {})
    found: list[Found] = []
    while True:
        body = await session.request(
            "GET", path, query=query, timeout_seconds=_PAGE_TIMEOUT_SECONDS
        )
        page = json.loads(body)
        found += [_manifest(item) for item in page.get("items") or []]
        query["continue"] = page.get("metadata", {}).get("continue") or ""
        if not query["continue"]:
            return found


def _manifest(item: dict[str, Any]) -> Manifest:
    """An object of a list says neither its kind nor its version."""
    content = {**item, "apiVersion": _GROUP_VERSION, "kind": "CronJob"}
    return Manifest(file="cluster", document=0, item="", content=content)
