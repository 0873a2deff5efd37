"""The API server of a command: a session in a context of a kubeconfig, as kubectl has it.

It has the rights of the person who runs the command. Imported by the commands that ask a cluster,
when they run.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from duepoint.cli import options
from duepoint.kube import api as kubeapi
from duepoint.kube import credentials, port


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSession:
    """An API server, and the namespace that is meant."""

    api: port.Api
    namespace: str


@contextlib.asynccontextmanager
async def session(place: options.Place) -> AsyncIterator[ClusterSession]:
    """A session with the cluster; raises errors.InvalidSetting where no credentials are found."""
    access = credentials.found(place.kubeconfig, place.context)
    async with kubeapi.ApiSession(access, component="cli") as api:
        login = await access.login()
        yield ClusterSession(api=api, namespace=place.namespace or login.namespace)
