"""Connects the commands about a set to the API, with a token for authentication.

The URL comes from ``--server`` or ``DUEPOINT_API_URL``. The token comes from ``--token-file``, else
from the environment, else, for a server on this machine such as the end of a port-forward, from
the kubeconfig's context. This API does not accept the client certificate of a kubeconfig; the
message then says how to get a token. The namespace is that of the context, as for kubectl.

No token is sent unencrypted. A token of the kubeconfig, which may be an administrator's, is not
sent to another machine: otherwise a server in a copied command or in somebody else's variable
would get control over the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib import parse

import click

from duepoint import client, errors
from duepoint.cli import options
from duepoint.client import transport
from duepoint.kube import credentials

_HOW = "write --token-file FILE, or set DUEPOINT_API_TOKEN to what kubectl create token prints"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPlace(options.Place):
    """The options for the API's address and for authentication."""

    server: str | None
    token_file: Path | None
    ca_file: Path | None


of_api = options.gathered(
    "place",
    ApiPlace,
    options.namespace_of_cluster,
    click.option(
        "--server",
        metavar="URL",
        envvar="DUEPOINT_API_URL",
        help="Of the HTTP API. [DUEPOINT_API_URL]",
    ),
    click.option(
        "--token-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Read again when it is replaced. [DUEPOINT_API_TOKEN_FILE]",
    ),
    click.option(
        "--ca-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar="DUEPOINT_API_CA_FILE",
        help="PEM of the API's authority; unset: those of the system. [DUEPOINT_API_CA_FILE]",
    ),
    options.of_cluster,
)


#: The first argument of each command made by ``asking``.
of_set = click.argument("set_name", metavar="SET", type=options.NAME)


def asking(ask: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn a coroutine ``ask(asked_set, **options)`` into a command.

    Raises the errors of ``connected``, and errors.InvalidSetting if there is no such set.
    """

    @of_api
    @functools.wraps(ask)
    def command(*, set_name: str, place: ApiPlace, **given: Any) -> None:  # noqa: ANN401 - click's values
        async def run() -> None:
            async with connected(place) as (api, namespace):
                try:
                    await ask(api.schedule_set(namespace, set_name), **given)
                except client.NothingThere as missing:
                    # Name the namespace: it may come from a context that the user has forgotten.
                    message = (
                        f"{set_name} in namespace {namespace}: {missing}; -n names another one"
                    )
                    raise errors.InvalidSetting("SET", message) from missing

        asyncio.run(run())

    return command


@contextlib.asynccontextmanager
async def connected(place: ApiPlace) -> AsyncIterator[tuple[client.AsyncClient, str]]:
    """Connect to the API; yields a client and the chosen namespace.

    Raises:
        errors.InvalidSetting: the server or the token is missing or wrong.
        client.ClientError: from the requests inside.
    """
    if not place.server:
        raise errors.InvalidSetting(
            "--server",
            "is missing: write the URL of the HTTP API, or set DUEPOINT_API_URL; from outside of"
            " the cluster: kubectl -n duepoint-system port-forward service/duepoint-api 8443:443,"
            " and https://localhost:8443",
        )
    token, namespace = await _login(place, is_near=_is_near(place.server))
    try:
        api = client.AsyncClient(
            place.server,
            token=token,
            ca_file=place.ca_file,
            retries=client.Retries(attempts=4, total_seconds=20.0),
        )
    except OSError as error:
        raise errors.InvalidSetting("--ca-file", f"{place.ca_file}: {error}") from None
    async with api:
        try:
            yield api, namespace
        except client.AccessDenied as denied:
            message = f"the API does not know it ({denied.detail}); {_HOW}"
            if denied.status != 401:
                message = f"{denied.detail}; the ClusterRoles view and edit, bound in the"
                message += " namespace, give the right"
            raise errors.InvalidSetting("--token-file", message) from denied


def _is_near(server: str) -> bool:
    """Whether the server is on this machine, such as the end of a port-forward.

    Raises:
        errors.InvalidSetting: the URL is not valid, or others could read the token on its way.
    """
    try:
        parts = parse.urlsplit(transport.checked_server(server))
    except ValueError as error:
        raise errors.InvalidSetting("--server", str(error)) from None
    host = parts.hostname or ""
    try:
        is_near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_near = host == "localhost" or host.endswith(".localhost")
    if parts.scheme == "http" and not is_near:
        raise errors.InvalidSetting(
            "--server",
            f"{server} is plain HTTP, so others could read the token; use https://, or http://"
            " to this machine alone, such as a port-forward",
        )
    return is_near


async def _login(place: ApiPlace, *, is_near: bool) -> tuple[client.TokenSource, str]:
    """Return the source of the token, and the chosen namespace."""
    login = None
    try:
        login = await credentials.found(place.kubeconfig, place.context).login()
    except errors.InvalidSetting:
        if place.kubeconfig or place.context:
            raise
    namespace = place.namespace or ("default" if login is None else login.namespace)
    try:
        if place.token_file is not None:
            return client.TokenInFile(place.token_file), namespace
        if (token := transport.of_environment(os.environ)) is not None:
            return token, namespace
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise errors.InvalidSetting(
            "--token-file", f"{place.token_file or ''} {why}".strip()
        ) from None
    if login is None or not login.token:
        why = "there is no kubeconfig" if login is None else "the kubeconfig's user has no token"
        raise errors.InvalidSetting("--token-file", f"is missing, and {why}; {_HOW}")
    if not is_near:
        message = f"the kubeconfig's does not go to another machine, {place.server}; {_HOW}"
        raise errors.InvalidSetting("--token-file", message)
    return client.TokenSource(login.token), namespace
