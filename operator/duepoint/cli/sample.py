"""``duepoint webhook test``: sends one delivery of a Schedule's webhook in the way a worker does.

The worker's own code composes and sends the request at one fixed time, so the request that is shown
is the one that is sent, byte for byte. Secrets and other references are taken from the command
line; their values are not shown.
"""

from __future__ import annotations

import ipaddress
import sys
import time
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.cli import output
from duepoint.kube import errors as kube_errors
from duepoint.kube import secrets
from duepoint.net import dialling, egressrules, httpclient
from duepoint.schedules import actions, slots
from duepoint.schedules.spec import ScheduleSpec
from duepoint.targets import endpoints, memory, outcome, target
from duepoint.targets.secretaccess import references
from duepoint.targets.webhook import credentials, request
from duepoint.targets.webhook import target as webhooktarget

if TYPE_CHECKING:
    from duepoint.kube import port

#: This machine's own addresses, allowed because users test receivers there.
_LOOPBACK = tuple(ipaddress.ip_network(network) for network in ("127.0.0.1/32", "::1/128"))
V = TypeVar("V")


#: Keys and values, by the name of the Secret or ConfigMap.
Objects = Mapping[str, Mapping[str, bytes]]


class _FixedClock(clocks.SystemClock):
    """A clock whose time stands still, so that the request shown is the request sent."""

    def __init__(self) -> None:
        self._now_us = super().now_us()

    def now_us(self) -> int:
        return self._now_us


async def run(spec: ScheduleSpec, objects: Objects, token: str | None, *, send: bool) -> output.Row:
    """Compose a sample for a slot at the present time and, with ``send``, send it.

    Args:
        objects: Secrets and ConfigMaps from the command line.
        token: the ServiceAccount's token, if the command line has one.

    Returns:
        The request without secrets, and its result; ``accepted`` is None if it was not sent.

    Raises:
        errors.InvalidSetting: an object that it refers to is missing.
    """
    clock = _FixedClock()
    webhook = spec.action.target
    assert isinstance(webhook, actions.WebhookAction)  # noqa: S101 - only such are chosen
    if webhook.service is not None:
        message = f"is missing: the Service {webhook.service.name} has no address outside a cluster"
        raise errors.InvalidSetting("--url", message)
    vault = _vault(webhook, objects, token, clock)
    kept = await vault.of(spec.namespace, webhook) if webhook.needs_secrets else None
    if isinstance(kept, target.Trouble):
        reason = kept.message.replace("does not exist; create it", "is not known here")
        advice = "write --secret-file NAME/KEY=FILE, --token-file or --url"
        raise errors.InvalidSetting(spec.identity, f"{reason}; {advice}")
    is_secret = webhook.url_from is not None  # the URL is then a credential
    url = kept.url if kept is not None and is_secret else webhook.url
    where = endpoints.of_url(url or "")
    if isinstance(where, target.Trouble):
        raise errors.InvalidSetting(spec.identity, where.message)
    firing = _firing(spec, webhook, clock.now_us())
    composer = request.Composer(webhook, kept)
    own, body = composer.compose(firing, clock.now_us())
    hidden = () if kept is None else kept.unspeakable
    parts = urllib.parse.urlsplit(str(where.url))
    row: output.Row = {
        "method": webhook.method,
        "url": f"{parts.scheme}://{parts.netloc}/[redacted]" if is_secret else str(where.url),
        "headers": {name: _without(value, hidden) for name, value in (*composer.common, *own)},
        "body": (body or b"").decode(errors="replace"),
        "accepted": None,
        "status": None,
        "message": "not sent",
    }
    if not send:
        return row
    rules = egressrules.EgressPolicy(mode="open", allowed=_LOOPBACK, allow_http=True)
    replies: list[httpclient.Response] = []
    services = endpoints.service_cache(cast("port.Api", None), clock)  # no Service comes here
    sender = webhooktarget.WebhookTarget(
        dialling.Dialler(rules), services, vault, clock, on_reply=replies.append
    )
    began = time.monotonic()
    try:
        with telemetry.silence():
            answer = await sender.fire(firing)
        seconds = time.monotonic() - began
    finally:
        await sender.close()
    row |= {"status": answer.http_status, "accepted": isinstance(answer, outcome.Delivered)}
    row["message"] = f"answered {answer.http_status} after {seconds:.3f} s"
    if not row["accepted"]:
        row["message"] = answer.message
        # The user may see the receiver's answer.
        plain = (header.value or "" for header in webhook.headers)
        if replies and (text := target.excerpt(replies[-1].body, plain, hidden)):
            row["message"] += f": {text}"
    return row


def _firing(spec: ScheduleSpec, webhook: actions.WebhookAction, now_us: int) -> target.Firing:
    timeline = slots.for_rule(spec.rule, identity=spec.identity, created_us=spec.created_us)
    slot_us = now_us // 1_000_000 * 1_000_000
    end = clocks.SystemClock().monotonic() + webhook.timeout_seconds
    return target.Firing(
        action=spec.action,
        namespace=spec.namespace,
        name=spec.name,
        uid=spec.uid,
        generation=spec.generation,
        slot_us=slot_us,
        due_us=slot_us,
        previous_us=timeline.previous_before(slot_us),
        trigger="Manual",
        attempt=1,
        run_uid=f"webhook test {time.time_ns()}",
        time_zone=spec.rule.timing.time_zone,
        not_after_monotonic=end,
        ends_by_monotonic=end,
    )


def _life(value: V) -> memory.Life[V]:
    return memory.Life(value=value, fresh_seconds=600, usable_seconds=600, size=1)


def _vault(
    webhook: actions.WebhookAction, objects: Objects, given: str | None, clock: clocks.Clock
) -> credentials.Vault:
    """Return the worker's vault over the given objects; they were given for this receiver."""
    account = None if webhook.auth is None else webhook.auth.service_account_token
    audience = "" if account is None else account.audience

    async def look(_: str, key: tuple[str, str]) -> memory.Life[secrets.Data]:
        kind, name = key
        if name in objects:
            return _life(secrets.Data(objects[name], {references.SEND_TO: "*"}))
        if kind == references.ACCOUNT and given is not None:
            return _life(secrets.Data({}, {references.TOKEN_AUDIENCES: audience}))
        raise kube_errors.NotFound(name)

    async def token(_: str, key: tuple[str, str]) -> memory.Life[secrets.Token]:
        if given is None:
            raise kube_errors.NotFound(key[0])
        return _life(secrets.Token(text=given, expires_us=0))

    return credentials.Vault(
        memory.Memory(look, clock), memory.Memory(token, clock), is_insecure_allowed=True
    )


# -- what is shown -------------------------------------------------------------------------------


def _without(value: str, hidden: tuple[str, ...]) -> str:
    for secret in sorted(filter(None, hidden), key=len, reverse=True):
        value = value.replace(secret, "[redacted]")
    return value


def show(row: output.Row, form: str) -> None:
    """Print the request and its result."""
    if output.is_data(form):
        output.write([row], form)
        return
    head = [f"{row['method']} {row['url']}"]
    head += [f"{name}: {value}" for name, value in row["headers"].items()]
    if row["accepted"] is None and not sys.stdout.isatty():
        # Byte for byte, so that the signature of a saved request can be verified.
        sys.stdout.flush()
        sys.stdout.buffer.write("\n".join([*head, "", row["body"]]).encode())
        sys.stdout.buffer.flush()
        output.complain(row["message"])
        return
    for line in (*head, "", row["body"], ""):
        output.say(line)
    if row["accepted"] is False:
        output.complain(f"not accepted: {row['message']}")
    else:
        output.say(f"accepted: {row['message']}" if row["accepted"] else row["message"])
