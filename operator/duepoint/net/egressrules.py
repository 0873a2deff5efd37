"""The egress rules: which addresses a worker may dial for a Schedule.

``verdict`` is the whole decision about one address as it would be dialled. The author's message
names the setting that would change the decision. It is the same for our own servers, the cluster
and private addresses, so that authors learn neither what a name resolves to here nor what runs
there; only the log says it. In every mode, ranges denied by setting are denied, and so are our own
Redis and API server. Loopback, link-local, metadata and other special addresses need an entry that
names exactly them. So do the cluster's own ranges, except for a Service whose endpoints Kubernetes
keeps. The mode decides about the rest: public addresses, Services of the Schedule's own namespace
and private addresses. Pure; ``dialling`` enforces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duepoint import settings
from duepoint.net import addresses


@dataclass(frozen=True, kw_only=True)
class EgressPolicy:
    """The operator's settings for egress.

    Attributes:
        mode: ``public-only``, ``same-namespace``, ``allowlist`` or ``open``.
        allowed, denied: address ranges; a denied range stays denied in every mode.
        cluster: address ranges of the cluster's Pods, Services and nodes, public ones included.
        allow_http: whether public receivers may be called without TLS.
    """

    mode: str = "same-namespace"
    allowed: tuple[addresses.Network, ...] = ()
    denied: tuple[addresses.Network, ...] = ()
    cluster: tuple[addresses.Network, ...] = ()
    allow_http: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Facts about a call that the rules need.

    Attributes:
        scheme: ``http`` or ``https``.
        service: whether the addresses come from a Service of the Schedule's own namespace.
        vouched: for a Service, whether Kubernetes itself keeps all of its endpoints; those that
            a user wrote need the allow-list.
        web: whether the target is a URL, whose port must not be that of another kind of server.
        endpoints: for a Service, the (address, port) pairs to dial instead of a name's answers.
    """

    scheme: str
    service: bool = False
    vouched: bool = False
    web: bool = False
    endpoints: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Denied:
    """An address must not be dialled.

    Attributes:
        reason: for the author of the Schedule: the setting that would allow it, without address.
        detail: for the operator's log: which address, and what it is.
    """

    reason: str
    detail: str


#: Addresses and ports of our own servers.
Own = frozenset[tuple[addresses.Address, int]]

#: Ports of servers that are no webhook receivers and may take a request for something else: ssh,
#: telnet, mail, name service, etcd, Redis, memcached and the kubelet's.
OTHER_PORTS = frozenset({22, 23, 25, 53, 465, 587, 2379, 2380, 6379, 10250, 10255, 11211, 26379})


def verdict(
    address: str, port: int, policy: EgressPolicy, route: Route, own: Own = frozenset()
) -> Denied | None:
    """Return why this address may not be dialled; None if it may. Pure.

    Args:
        address: as it would be dialled; any unusual spelling is denied.
        port: as it would be dialled.
        own: our Redis and API server, which no setting opens.
    """
    parsed = addresses.parse(address)
    if parsed is None:
        why = f"{address!r} is not a plain IP address; write it as 192.0.2.1 or 2001:db8::1"
        return Denied(why, why)
    for reached in addresses.reached_by(parsed):
        judged = _judge(_Aim(parsed, reached, port), policy, route, own)
        if judged is not None:
            return judged
    return None


@dataclass(frozen=True, slots=True)
class _Aim:
    """An address as dialled, and one that a packet to it may reach."""

    dialled: addresses.Address
    reached: addresses.Address
    port: int

    def within(self, networks: Sequence[addresses.Network]) -> bool:
        return any(self.reached in network or self.dialled in network for network in networks)

    def named_by(self, policy: EgressPolicy) -> bool:
        """Whether an allowed entry names exactly this address, not a range around it."""
        return self.within([each for each in policy.allowed if each.num_addresses == 1])

    def allowed_by(self, policy: EgressPolicy) -> bool:
        """Whether an allowed entry names the address or a range around it."""
        return self.within(policy.allowed)

    def __str__(self) -> str:
        same = self.dialled == self.reached
        return str(self.reached) if same else f"{self.dialled} (that is {self.reached})"


def _judge(aim: _Aim, policy: EgressPolicy, route: Route, own: Own) -> Denied | None:
    closed = _closed(policy, route)
    if (aim.reached, aim.port) in own:
        return Denied(closed, f"{aim} port {aim.port} is Duepoint's own Redis or API server")
    if aim.within(policy.denied):
        why = f"its address is not allowed by {settings.variable('egress_denied_cidrs')}"
        return Denied(why, f"{aim} is in these ranges")
    kind, word = addresses.kind(aim.reached)
    ours = any(aim.reached == address for address, _ in own)
    if (kind is addresses.AddressKind.SPECIAL or ours) and not aim.named_by(policy):
        word = "the address of Duepoint's own Redis or API server" if ours else word
        return Denied(closed, f"{aim} is {word}; {_only(aim)}")
    is_in_cluster = aim.within(policy.cluster) and not (route.service and route.vouched)
    if is_in_cluster and not aim.named_by(policy):
        ranges = settings.variable("egress_cluster_cidrs")
        where = f"inside the cluster ({ranges}, or the worker's own Pod network)"
        return Denied(closed, f"{aim} is {where}; {_only(aim)}")
    judge = _judge_service if route.service else _judge_url
    return judge(aim, policy, route)


def _judge_service(aim: _Aim, policy: EgressPolicy, route: Route) -> Denied | None:
    if policy.mode == "public-only":
        return Denied(_closed(policy, route), f"{aim} belongs to a Service")
    if route.vouched or aim.allowed_by(policy):
        return None
    return Denied(
        _closed(policy, route),
        f"{aim} is an endpoint of a Service whose endpoints a user may write (it has no selector, "
        "or an EndpointSlice that the endpointslice controller does not manage)",
    )


def _judge_url(aim: _Aim, policy: EgressPolicy, route: Route) -> Denied | None:
    kind, word = addresses.kind(aim.reached)
    is_public = kind is addresses.AddressKind.PUBLIC
    if is_public and route.scheme == "http" and not policy.allow_http:
        why = "the URL is plain http; use https, or have the operator set "
        return Denied(f"{why}{settings.variable('webhook_insecure')}=http", f"{aim} is public")
    if aim.allowed_by(policy):
        return None
    if route.web and aim.port in OTHER_PORTS:
        why = f"port {aim.port} is another kind of server's; if it accepts webhooks, {_ASK}"
        return Denied(why, f"{aim} is not named")
    if policy.mode == "open" or (is_public and policy.mode != "allowlist"):
        return None
    return Denied(_closed(policy, route), f"{aim} is {word}")


_ASK = "have the operator of Duepoint add the address to " + settings.variable(
    "egress_allowed_cidrs"
)


def _closed(policy: EgressPolicy, route: Route) -> str:
    """Return the reason for the author, without revealing what runs at the address."""
    if route.service and policy.mode == "public-only":
        mode = settings.variable("egress_mode")
        return f"{mode} is public-only, which permits no webhook.service"
    if route.service:
        return f"an endpoint of the Service is not allowed; {_ASK}"
    if policy.mode == "allowlist":
        mode = settings.variable("egress_mode")
        return f"its address is not allowed, because {mode} is allowlist; {_ASK}"
    service = "use webhook.service for a Service of this namespace"
    return f"its address is not allowed; {service}, or {_ASK}"


def _only(aim: _Aim) -> str:
    """Return which entry would allow the address."""
    entry = f"{aim.reached}/{aim.reached.max_prefixlen}"
    return f"only the entry {entry} of {settings.variable('egress_allowed_cidrs')} opens it"
