"""``duepoint webhook test``: one delivery of a Schedule's webhook, made as a worker makes it.

The request is composed and sent by the worker's own code at one fixed time, so that what is shown
is what is sent, byte for byte. What the spec refers to comes from the command line first, then from
a cluster where one was named, read with the user's rights. Values of secrets are not shown.
"""

from __future__ import annotations

import contextlib
import ipaddress
import sys
import time
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

import msgspec

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.cli import cluster, options, output
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, secrets
from duepoint.net import dialling, egressrules, http1
from duepoint.runs import outcome
from duepoint.schedules import actions, slots
from duepoint.schedules.spec import ScheduleSpec
from duepoint.targets import endpoints, memory, target
from duepoint.targets.secretaccess import references
from duepoint.targets.webhook import credentials, request
from duepoint.targets.webhook import target as webhooktarget

#: This machine's own addresses are where people try things out.
_LOOPBACK = tuple(ipaddress.ip_network(network) for network in ("127.0.0.1/32", "::1/128"))
V = TypeVar("V")
_UID = "00000000-0000-4000-8000-000000000000"


#: Keys by the name of the Secret or ConfigMap.
Objects = Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What to send, and where its parts are."""

    spec: ScheduleSpec
    slot_us: int
    url: str | None
    objects: Objects = field(repr=False)
    token: str | None = field(repr=False)
    place: options.Place | None


@dataclass(slots=True, kw_only=True)
class SampleResult:
    """The request that was composed, and what came of it.

    Attributes:
        accepted: None where nothing was sent on purpose.
    """

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes | None
    accepted: bool | None = None
    message: str = "not sent"
    status: int | None = None
    seconds: float = 0.0


class _FixedClock(clocks.SystemClock):
    """The wall stands still, so that what is shown and what is sent are the same."""

    def __init__(self) -> None:
        self._now_us = super().now_us()

    def now_us(self) -> int:
        return self._now_us


async def run(sample: Sample, *, send: bool) -> SampleResult:
    """Compose the sample and, with ``send``, send it.

    Raises errors.InvalidSetting where something that it refers to was not given.
    """
    clock = _FixedClock()
    async with _cluster(sample) as api:
        found = _webhook(sample)
        source = _vault(sample, api, clock)
        kept = await source.of(sample.spec.namespace, found) if found.needs_secrets else None
        if isinstance(kept, target.Trouble):
            raise errors.InvalidSetting(sample.spec.identity, _advised(kept.message, api))
        firing = _firing(sample, found)
        services = endpoints.service_cache(api or cast("port.Api", _NoCluster()), clock)
        url = kept.url if kept is not None and found.url_secret is not None else found.url
        located = msgspec.structs.replace(found, url=url)
        where = await endpoints.locate(services, sample.spec.namespace, located)
        if isinstance(where, target.Trouble):
            raise errors.InvalidSetting(sample.spec.identity, _advised(where.message, api))
        composed = request.Composer(found, kept).compose(firing, clock.now_us())
        hidden = () if kept is None else kept.unspeakable
        result = SampleResult(
            method=composed.method,
            url=str(where.url),
            headers=[(name, _without(value, hidden)) for name, value in composed.headers],
            body=composed.body,
        )
        if found.url_secret is not None:  # the URL is a credential
            parts = urllib.parse.urlsplit(result.url)
            result.url = f"{parts.scheme}://{parts.netloc}/[redacted]"
        if not send:
            return result
        dialler = dialling.Dialler(
            egressrules.EgressPolicy(mode="open", allowed=_LOOPBACK, allow_http=True)
        )
        replies: list[http1.Response] = []
        sender = webhooktarget.WebhookTarget(
            dialler, services, source, clock, on_reply=replies.append
        )
        began = time.monotonic()
        try:
            with telemetry.silence():
                answer = await sender.fire(firing)
            result.seconds = time.monotonic() - began
        finally:
            await sender.close()
    result.status = answer.http_status
    result.accepted = isinstance(answer, outcome.Delivered)
    result.message = f"answered {answer.http_status}" if result.accepted else answer.message
    if not result.accepted and replies:
        # The receiver's own words, which are not secret from this user.
        plain = (header.value for header in found.headers)
        if text := target.excerpt(replies[-1].body, plain, hidden):
            result.message += f": {text}"
    return result


# -- what it is made of --------------------------------------------------------------------------


def _webhook(sample: Sample) -> actions.WebhookAction:
    found = sample.spec.action.target
    if not isinstance(found, actions.WebhookAction):
        raise errors.Bug("a sample of something that is no webhook")
    if sample.url is None:
        return found
    if not sample.url.startswith(("http://", "https://")):
        message = f"{errors.quoted(sample.url)}: write http://... or https://..."
        raise errors.InvalidSetting("--url", message)
    tls = found.tls if sample.url.startswith("https:") else None
    return msgspec.structs.replace(found, url=sample.url, url_secret=None, service=None, tls=tls)


def _firing(sample: Sample, found: actions.WebhookAction) -> target.Firing:
    spec = sample.spec
    timeline = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
    now = clocks.SystemClock().monotonic()
    return target.Firing(
        action=msgspec.structs.replace(spec.action, target=found),
        namespace=spec.namespace,
        name=spec.name,
        uid=spec.uid or _UID,
        generation=spec.generation,
        slot_us=sample.slot_us,
        due_us=sample.slot_us,
        previous_us=timeline.previous_before(sample.slot_us),
        trigger="Manual",
        attempt=1,
        run_uid=f"webhook test {time.time_ns()}",
        time_zone=spec.rule.timing.time_zone,
        not_after_monotonic=now + found.timeout_seconds,
    )


def _life(value: V) -> memory.Life[V]:
    return memory.Life(value=value, fresh_seconds=600, usable_seconds=600, size=1)


def _vault(sample: Sample, api: port.Api | None, clock: clocks.Clock) -> credentials.Vault:
    auth = _webhook(sample).auth
    audience = auth.audience if isinstance(auth, actions.AccountToken) else ""

    async def look(namespace: str, key: tuple[str, str]) -> memory.Life[secrets.Data]:
        kind, name = key
        if name in sample.objects:  # given by the person who asks, and so for this receiver
            return _life(secrets.Data(sample.objects[name], {references.SEND_TO: "*"}))
        if kind == references.ACCOUNT and sample.token is not None:
            return _life(secrets.Data({}, {references.TOKEN_AUDIENCES: audience}))
        if api is None:
            raise kube_errors.NotFound(name)
        return _life(await secrets.read(api, kind, namespace, name))

    async def token(namespace: str, key: tuple[str, str]) -> memory.Life[secrets.Token]:
        if sample.token is not None:
            return _life(secrets.Token(text=sample.token, expires_us=0))
        if api is None:
            raise kube_errors.NotFound(key[0])
        return _life(await secrets.token(api, namespace, *key))

    rules = credentials.CredentialRules(insecure_tls=True)
    objects, tokens = memory.Memory(look, clock), memory.Memory(token, clock)
    return credentials.Vault(objects, tokens, rules)


class _NoCluster:
    """Stands where an API server would; Services are the only thing asked of it."""

    async def request(self, verb: str, path: str, *_: object, **__: object) -> bytes:
        raise kube_errors.Unavailable(f"{verb} {path}: no cluster was named")


@contextlib.asynccontextmanager
async def _cluster(sample: Sample) -> AsyncIterator[port.Api | None]:
    """The API server that was named on the command line, and no other."""
    if sample.place is None:
        yield None
        return
    async with cluster.session(sample.place) as found:
        yield found.api


def _advised(message: str, api: port.Api | None) -> str:
    if api is not None:
        return message
    reason = message.replace("does not exist; create it", "is not known here")
    return (
        f"{reason}; write --secret-file NAME/KEY=FILE, --token-file or --url, or --kubeconfig FILE "
        "to look there"
    )


# -- what is shown -------------------------------------------------------------------------------


def _without(value: str, hidden: tuple[str, ...]) -> str:
    for secret in sorted(filter(None, hidden), key=len, reverse=True):
        value = value.replace(secret, "[redacted]")
    return value


def show(result: SampleResult, form: str) -> None:
    """Print the request and what came of it."""
    body = (result.body or b"").decode(errors="replace")
    if output.is_data(form):
        row = {
            "method": result.method,
            "url": result.url,
            "headers": dict(result.headers),
            "body": body,
            "accepted": result.accepted,
            "status": result.status,
            "message": result.message,
        }
        output.write([row], form)
        return
    if result.accepted is None and not sys.stdout.isatty():
        # Byte for byte, so that the signature of what is piped or kept can be checked.
        head = [
            f"{result.method} {result.url}",
            *(f"{each}: {text}" for each, text in result.headers),
        ]
        sys.stdout.flush()
        sys.stdout.buffer.write("\n".join([*head, "", ""]).encode() + (result.body or b""))
        sys.stdout.buffer.flush()
        output.complain(result.message)
        return
    output.say(f"{result.method} {result.url}")
    for name, value in result.headers:
        output.say(f"{name}: {value}")
    output.say()
    output.say(body)
    output.say()
    if result.accepted is None:
        output.say(result.message)
    elif result.accepted:
        output.say(f"accepted: {result.message} after {result.seconds:.3f} s")
    else:
        output.complain(f"not accepted: {result.message}")
