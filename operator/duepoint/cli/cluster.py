"""The API server of a command: a session in a context of a kubeconfig, as kubectl has it.

It has the rights of the person who runs the command. Imported by the commands that ask a cluster,
when they run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from duepoint import errors
from duepoint.cli import options, output
from duepoint.kube import api as kubeapi
from duepoint.kube import credentials, port


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSession:
    """An API server, and the namespace that is meant."""

    api: port.Api
    namespace: str


@contextlib.asynccontextmanager
async def session(place: options.Place) -> AsyncIterator[ClusterSession]:
    """A session with the cluster.

    Raises:
        errors.InvalidSetting: no credentials are found, or ``place.patience_seconds`` are over.
    """
    access = credentials.found(place.kubeconfig, place.context)
    try:
        async with (
            asyncio.timeout(place.patience_seconds),
            kubeapi.ApiSession(access, component="cli") as api,
        ):
            login = await access.login()
            yield ClusterSession(api=api, namespace=place.namespace or login.namespace)
    except TimeoutError:
        waited = output.span(place.patience_seconds or 0)
        message = f"the cluster did not answer within {waited}; write a longer one"
        raise errors.InvalidSetting("--timeout", message) from None
