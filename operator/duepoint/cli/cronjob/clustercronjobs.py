"""The CronJobs of a cluster, as ``import`` reads them.

A list of CronJobs is read page by page and is whole or an error: half of the CronJobs would be
taken for all of them.
"""

from __future__ import annotations

import urllib.parse
from typing import Any

import msgspec

from duepoint.cli import cluster as clusters
from duepoint.cli import options
from duepoint.cli.check.manifests import Manifest, Unreadable
from duepoint.kube import errors as kube_errors
from duepoint.kube import port

#: A list that took so long that its beginning was forgotten is begun again, so often.
_ATTEMPTS = 3

Found = Manifest | Unreadable


class _CronJob(msgspec.Struct):
    """Everything of a CronJob but its status; unlike elsewhere the metadata stay as they are."""

    metadata: dict[str, Any]
    spec: dict[str, Any]


async def cronjobs(
    place: options.Place, *, names: tuple[str, ...], everywhere: bool, selector: str | None
) -> list[Found]:
    """The CronJobs asked for, or in the place of one why it could not be read.

    Args:
        names: only these; empty is all.
        everywhere: of all namespaces.
        selector: of labels, as kubectl writes it.

    Raises:
        errors.DuepointError: the cluster cannot be asked, or does not answer.
    """
    async with clusters.session(place) as cluster:
        namespace = None if everywhere else cluster.namespace
        path = port.path("/apis/batch/v1", namespace, "cronjobs")
        if names:
            return [await _read(cluster.api, path, name) for name in names]
        return await _listed(cluster.api, path, selector)


async def _read(api: port.Api, path: str, name: str) -> Found:
    try:
        body = await api.request("GET", f"{path}/{urllib.parse.quote(name, safe='')}")
    except kube_errors.NotFound:
        return Unreadable(file=f"CronJob {name}", document=0, message="does not exist")
    except kube_errors.Forbidden as error:  # rights may name single objects
        return Unreadable(file=f"CronJob {name}", document=0, message=str(error))
    return _manifest(msgspec.json.decode(body, type=_CronJob))


async def _listed(api: port.Api, path: str, selector: str | None) -> list[Found]:
    query = {"labelSelector": selector} if selector else None
    for attempt in range(_ATTEMPTS):
        try:
            found = await port.listed(api, path, _CronJob, query)  # type: ignore[type-var]
            return [_manifest(item) for item in found]
        except kube_errors.Gone:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _manifest(item: _CronJob) -> Manifest:
    content = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": item.metadata,
        "spec": item.spec,
    }
    return Manifest(file="cluster", document=0, item="", content=content)
