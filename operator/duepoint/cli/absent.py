"""What is said where a Schedule, or all that Duepoint installs, is not there."""

from __future__ import annotations

from duepoint import errors
from duepoint.cli import cluster as clusters
from duepoint.cli import mistakes
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules


async def unknown_name(server: clusters.ClusterSession, name: str) -> errors.InvalidSetting:
    """The mistake of a name that no Schedule of the namespace has."""
    message = f"there is no Schedule {server.namespace}/{name}"
    hint = f"kubectl duepoint list -n {server.namespace} shows those there are"
    try:
        path = schedules.collection(server.namespace)
        listed = await port.listed(server.api, path, schedules.Schedule)
    except kube_errors.NotFound:
        return no_crd()
    except kube_errors.ApiError:
        return errors.InvalidSetting("NAME", f"{message}; {hint}")
    if near := mistakes.nearest(name, [item.metadata.name for item in listed]):
        hint = f'did you mean "{near}"?'
    return errors.InvalidSetting("NAME", f"{message}; {hint}")


def no_crd() -> errors.InvalidSetting:
    """The mistake of a cluster without our CRDs."""
    return errors.InvalidSetting(
        "cluster",
        "it has no Schedules (the CRD schedules.duepoint.dev is missing): install Duepoint, or"
        " write another --context",
    )
