"""Secrets for tests: a vault that reads from an API server in memory."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from duepoint import clock as clocks
from duepoint.kube import port
from duepoint.targets.secretaccess import references
from duepoint.targets.webhook import credentials
from tests.fakes import fakekubernetes

#: 24 bytes, the shortest that is allowed; the example of the Standard Webhooks documents.
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def a_vault(
    api: port.Api | None = None,
    clock: clocks.Clock | None = None,
    **rules: Any,
) -> credentials.Vault:
    used = api or fakekubernetes.FakeKubernetes()
    ticking = clock or clocks.SystemClock()
    return credentials.Vault(
        references.objects_of(used, ticking),
        references.tokens_of(used, ticking),
        **rules,
    )


def a_secret(
    name: str, namespace: str = "default", *, send_to: str | None = "*", **values: str | bytes
) -> dict[str, Any]:
    """Return the manifest; `__` in a key stands for a dot, as in tls__crt."""
    annotations = {} if send_to is None else {"duepoint.dev/send-to": send_to}
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "data": {key.replace("__", "."): encoded(value) for key, value in values.items()},
    }


def encoded(value: str | bytes) -> str:
    raw = value.encode() if isinstance(value, str) else value
    return base64.b64encode(raw).decode()


def an_account(name: str, audiences: str, namespace: str = "default") -> dict[str, Any]:
    annotations = {"duepoint.dev/token-audiences": audiences}
    return {"metadata": {"name": name, "namespace": namespace, "annotations": annotations}}


async def api_with(*secrets: Mapping[str, Any]) -> fakekubernetes.FakeKubernetes:
    api = fakekubernetes.FakeKubernetes()
    for secret in secrets:
        await api.apply("secrets", secret)
    return api
