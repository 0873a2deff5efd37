"""A webhook target wired for tests: a dialler that counts what it opens, Services from a dict."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator, Sequence

from duepoint import clock
from duepoint.kube import errors, services
from duepoint.net import dialling, egressrules, resolving
from duepoint.targets.webhook import admission, credentials
from duepoint.targets.webhook import target as webhooktarget
from tests.support import vaults


class CountingDialler(dialling.Dialler):
    """Attributes:
    opened: (address, port) of every connection that it opened.
    """

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.opened: list[tuple[str, int]] = []

    async def connect(self, endpoint):
        made = await super().connect(endpoint)
        self.opened.append(made.getpeername()[:2])
        return made


class FixedServices:
    """Services by (namespace, name); any other does not exist."""

    def __init__(self, known: dict[tuple[str, str], object] | None = None) -> None:
        self.known = known or {}
        self.forgotten: list[tuple[str, str]] = []

    async def get(self, namespace, key):
        name = key[0]
        found = self.known.get((namespace, name))
        if isinstance(found, errors.ApiError):
            raise found
        return found or services.ServiceUnresolved(
            message=f"Service {namespace}/{name}: not there",
        )

    def forget(self, namespace, which) -> None:
        self.forgotten += [(namespace, "billing")] if which(("billing", 80)) else []


def a_service(*addresses: tuple[str, int], name="billing", namespace="default", vouched=True):
    return services.ServiceResolved(
        addresses=addresses,
        server_name=f"{name}.{namespace}.svc",
        vouched=vouched,
    )


def answering(**names: Sequence[str]) -> resolving.Ask:
    """Return a resolver of these names (`_` for `.`): answers in turn, the last one for ever."""
    answers = {name.replace("_", "."): list(texts) for name, texts in names.items()}

    def look(host: str, _port: int) -> Sequence[str]:
        known = answers.get(host)
        if not known:
            raise OSError(f"no such name {host}")
        answer = known.pop(0) if len(known) > 1 else known[0]
        return answer.split()

    return look


@contextlib.asynccontextmanager
async def a_target(
    *,
    mode: str = "same-namespace",
    allowed: Sequence[str] = ("127.0.0.1/32",),
    allow_http: bool = False,
    lookup: resolving.Ask = resolving.ask_system,
    known: FixedServices | None = None,
    own: Sequence[tuple[str, int]] | resolving.Servers = (),
    tls: ssl.SSLContext | None = None,
    limit_per_host: int = 8,
    places: int = 256,
    source: credentials.Vault | None = None,
    breaker: admission.CircuitBreaker | None = None,
) -> AsyncIterator[tuple[webhooktarget.WebhookTarget, CountingDialler]]:
    policy = egressrules.EgressPolicy(
        mode=mode,
        allowed=tuple(ipaddress.ip_network(one) for one in allowed),
        allow_http=allow_http,
    )
    servers = own if callable(own) else lambda: own
    guard = CountingDialler(policy, servers, ask=lookup)
    target = webhooktarget.WebhookTarget(
        guard,
        known or FixedServices(),
        source or vaults.a_vault(),
        clock.SystemClock(),
        admission=admission.Admission(
            clock.SystemClock(), per_host=limit_per_host, places=places, breaker=breaker
        ),
        tls=tls,
    )
    try:
        yield target, guard
    finally:
        await target.close()
