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
from duepoint.kube import errors as kube_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSession:
    """An API server, and the namespace that is meant."""

    api: port.StreamingApi
    namespace: str


@contextlib.asynccontextmanager
async def session(place: options.Place) -> AsyncIterator[ClusterSession]:
    """A session with the cluster.

    Raises:
        errors.InvalidSetting: no credentials are found, the cluster does not accept them or does
            not answer, or ``place.patience_seconds`` are over.
    """
    access = credentials.found(place.kubeconfig, place.context)
    where = "the API server"
    try:
        async with (
            asyncio.timeout(place.patience_seconds),
            kubeapi.ApiSession(access, component="cli") as api,
        ):
            login = await access.login()
            where = login.server
            yield ClusterSession(api=api, namespace=place.namespace or login.namespace)
    except TimeoutError:
        waited = output.span(place.patience_seconds or 0)
        message = f"the cluster did not answer within {waited}; write a longer one"
        raise errors.InvalidSetting("--timeout", message) from None
    except kube_errors.Unauthorized as refused:
        message = f"{where} does not accept these credentials ({refused}); log in again"
        raise errors.InvalidSetting(
            "cluster", f"{message}, or write another --context"
        ) from refused
    except kube_errors.Unavailable as silent:
        if silent.status:
            raise  # an answer, which says what is wrong
        message = f"{where} does not answer ({silent}); is this the right --context?"
        raise errors.InvalidSetting("cluster", message) from silent
