"""``duepoint webhook``: tests a Schedule's webhook, and verifies a received request.

``test`` sends one delivery of a manifest's webhook from this machine, exactly as a worker would:
same code, same signature, with the present time as its slot. ``verify`` tells a receiver whether a
captured request was signed with a secret, and if not, why. Neither needs a cluster.
"""

from __future__ import annotations

import asyncio
import ipaddress
import sys
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import click
import msgspec

from duepoint import clock as clocks
from duepoint import errors, telemetry
from duepoint.cli import instants, options, output
from duepoint.cli.check import validate
from duepoint.kube import errors as kube_errors
from duepoint.kube import secrets
from duepoint.net import dialling, egressrules, httpclient
from duepoint.schedules import actions, slots
from duepoint.schedules.spec import ScheduleSpec
from duepoint.targets import endpoints, memory, outcome, target
from duepoint.targets.secretaccess import references
from duepoint.targets.webhook import credentials, request, signing
from duepoint.targets.webhook import target as webhooktarget

if TYPE_CHECKING:
    from duepoint.kube import port


def _assigned(text: str) -> tuple[str, str, str]:
    named, equals, value = text.partition("=")
    name, slash, key = named.partition("/")
    if not (equals and slash and name and key):
        # The message does not quote the text: it may be the secret itself.
        raise ValueError("write NAME/KEY=..., such as billing-hook/secret=...")
    return name, key, value


@click.group("webhook", cls=options.CommandGroup)
def webhook() -> None:
    """Send a sample of a Schedule's webhook; check a request that was received."""


@webhook.command("test")
@options.files
@click.option("--name", metavar="NAME", help="Which Schedule, where there are several.")
@options.namespace
@click.option("--url", metavar="URL", help="Send it there instead: a tunnel, or a test receiver.")
@click.option(
    "--secret",
    "secrets",
    metavar="NAME/KEY=VALUE",
    multiple=True,
    type=options.Converted(_assigned),
    help="What a Secret or ConfigMap holds; repeat it for each key.",
)
@click.option(
    "--secret-file",
    "secret_files",
    metavar="NAME/KEY=FILE",
    multiple=True,
    type=options.Converted(_assigned),
    help="The same, from a file: others on this machine can read command lines.",
)
@click.option("--token-file", metavar="FILE", help="The token for auth.serviceAccountToken.")
@click.option("--dry-run", is_flag=True, help="Show the request and send nothing.")
@options.output_format
def test(
    *,
    files: tuple[str, ...],
    name: str | None,
    namespace: str,
    url: str | None,
    secrets: tuple[tuple[str, str, str], ...],
    secret_files: tuple[tuple[str, str, str], ...],
    token_file: str | None,
    form: str,
    dry_run: bool,
) -> None:
    """Send a signed sample of a Schedule's webhook.

    The egress rules of an installation are not applied: it is this machine that sends.

    Example: duepoint webhook test schedule.yaml --url http://localhost:8080/hook
    """
    spec = _chosen(files, name, namespace)
    if url is not None:
        spec = _sent_to(url, spec)
    objects: dict[str, dict[str, bytes]] = {}
    for secret, key, value in secrets:
        objects.setdefault(secret, {})[key] = value.encode()
    for secret, key, secret_file in secret_files:
        objects.setdefault(secret, {})[key] = options.content(
            f"--secret-file {secret_file}", secret_file
        )
    token = None if token_file is None else options.text(f"--token-file {token_file}", token_file)

    row = asyncio.run(_sent(spec, objects, token, send=not dry_run))
    _show(row, form)
    if row["accepted"] is False:
        raise click.exceptions.Exit(output.FAILED)


def _sent_to(url: str, spec: ScheduleSpec) -> ScheduleSpec:
    """Return the spec with its webhook sent to a URL; raises errors.InvalidSetting."""
    if not url.startswith(("http://", "https://")):
        message = f"{errors.quoted(url)}: write http://... or https://..."
        raise errors.InvalidSetting("--url", message)
    webhook = spec.action.target
    assert isinstance(webhook, actions.WebhookAction)  # noqa: S101 - only such are chosen
    tls = webhook.tls if url.startswith("https:") else None
    webhook = msgspec.structs.replace(webhook, url=url, url_from=None, service=None, tls=tls)
    action = msgspec.structs.replace(spec.action, target=webhook)
    return msgspec.structs.replace(spec, action=action)


def _chosen(files: tuple[str, ...], name: str | None, namespace: str) -> ScheduleSpec:
    """Return the chosen Schedule; raises errors.InvalidSetting unless there is exactly one."""
    accepted = validate.accepted(files, namespace, instants.now_us())
    webhooks = [
        spec
        for _, spec in accepted
        if isinstance(spec.action.target, actions.WebhookAction) and name in (None, spec.name)
    ]
    if len(webhooks) == 1:
        return webhooks[0]
    if not webhooks:
        wanted = "a webhook" if name is None else f"a webhook and the name {errors.quoted(name)}"
        raise errors.InvalidSetting(", ".join(files), f"has no Schedule with {wanted}")
    names = ", ".join(spec.name for spec in webhooks[:8])
    raise errors.InvalidSetting("--name", f"there are several webhooks; write one of {names}")


@webhook.command("verify")
@click.option(
    "--secret",
    "secrets",
    metavar="SECRET",
    multiple=True,
    help="whsec_..., or the public key whpk_...; may be repeated.",
)
@click.option(
    "--secret-file", "secret_files", metavar="FILE", multiple=True, help="The same, from a file."
)
@click.option(
    "--request",
    default="-",
    metavar="FILE",
    help="The request as it came: headers, an empty line, the body byte for byte. Unset: standard"
    " input.",
)
@options.output_format
def verify(
    *,
    secrets: tuple[str, ...],
    secret_files: tuple[str, ...],
    request: str,
    form: str,
) -> None:
    """Check the signature of a request that was received.

    Exit code 0: it is ours; 1: it is not, and why; 2: there is nothing to check.
    """
    headers, body = captured(options.content(f"--request {request}", request))
    row = judge(headers, body, verifiers(secrets, secret_files))
    if output.is_data(form):
        output.write([row], form)
    elif row["valid"]:
        output.say(
            f"valid: {row['webhookId']}, sent {row['sentAt']}, signed with secret {row['secret']}"
        )
    else:
        output.complain(f"not valid: {row['reason']}")
    if not row["valid"]:
        raise click.exceptions.Exit(output.FAILED)


# -- the signature of a captured request -----------------------------------------------------------


def verifiers(
    literal: tuple[str, ...], files: tuple[str, ...]
) -> tuple[signing.Hmac | signing.Ed25519, ...]:
    """Return the verifiers for the given secrets; raises errors.InvalidSetting."""
    given = [("--secret", text) for text in literal]
    given += [("--secret-file", options.text(f"--secret-file {file}", file)) for file in files]
    if not given:
        raise errors.InvalidSetting("--secret", "is missing; write --secret-file FILE")
    made = []
    for option, secret in given:
        try:
            made.append(signing.verifier(secret))
        except ValueError as error:
            raise errors.InvalidSetting(option, f"the secret {error}") from None
    return tuple(made)


def captured(data: bytes) -> tuple[dict[str, str], bytes]:
    """Return headers, with names in lower case, and body of a request as it was received."""
    head, _, body = data.partition(b"\r\n\r\n" if b"\r\n\r\n" in data else b"\n\n")
    pairs = (line.partition(":") for line in head.decode("latin-1").splitlines() if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}, body


_WANTED = ("webhook-id", "webhook-timestamp", "webhook-signature")
#: The most characters of a name to show, and the most digits in a time in seconds.
_MOST_OF_NAME = 40
_MOST_DIGITS = 12


def judge(
    headers: Mapping[str, str], body: bytes, verifiers: Sequence[signing.Signer]
) -> output.Row:
    """Return which of the secrets the request is signed with, or why it is not signed."""
    row: output.Row = {"valid": False, "webhookId": "", "sentAt": "", "secret": None}
    for name in _WANTED:
        if not headers.get(name):
            known = sorted(headers)[:20]
            found = ", ".join(each[:_MOST_OF_NAME] for each in known) or "none"
            return row | {"reason": f"header {name} is missing; headers found: {found}"}
    row["webhookId"], timestamp, signature = (headers[name] for name in _WANTED)
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _MOST_DIGITS):
        reason = f"webhook-timestamp {errors.quoted(timestamp)} is not a time in whole seconds"
        return row | {"reason": reason}
    sent_us = int(timestamp) * 1_000_000
    row["sentAt"] = output.time(sent_us) or ""
    content = signing.signed_content(row["webhookId"], timestamp, body)
    entries = signature.split()
    for number, verifier in enumerate(verifiers, start=1):
        if any(verifier.accepts(content, entry) for entry in entries):
            return row | {"valid": True, "secret": number, "reason": ""}
    return row | {"reason": _WHY_NOT}


_WHY_NOT = (
    "no entry of webhook-signature matches: another secret signed it, or id, time or body were"
    " changed on the way; verify the bytes as they came, not a body that was parsed and printed"
    " anew, or that got a line break at its end"
)


# -- one delivery, as by a worker ------------------------------------------------------------------


#: This machine's own addresses, allowed because users test receivers there.
_LOOPBACK = tuple(ipaddress.ip_network(network) for network in ("127.0.0.1/32", "::1/128"))
#: Keys and values, by the name of the Secret or ConfigMap.
Objects = Mapping[str, Mapping[str, bytes]]


class _FixedClock(clocks.SystemClock):
    """A clock whose time stands still, so that the request shown is the request sent."""

    def __init__(self) -> None:
        self._now_us = super().now_us()

    def now_us(self) -> int:
        return self._now_us


async def _sent(
    spec: ScheduleSpec, objects: Objects, token: str | None, *, send: bool
) -> output.Row:
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


def _vault(
    webhook: actions.WebhookAction, objects: Objects, given: str | None, clock: clocks.Clock
) -> credentials.Vault:
    """Return the worker's vault over the given objects; they were given for this receiver."""
    account = None if webhook.auth is None else webhook.auth.service_account_token
    audience = "" if account is None else account.audience

    async def look(_: str, key: tuple[str, str]) -> memory.Life[secrets.Data]:
        kind, name = key
        if name in objects:
            data = secrets.Data(objects[name], {references.SEND_TO: "*"})
            return memory.Life(value=data, size=1)
        if kind == references.ACCOUNT and given is not None:
            data = secrets.Data({}, {references.TOKEN_AUDIENCES: audience})
            return memory.Life(value=data, size=1)
        raise kube_errors.NotFound(name)

    async def token(_: str, key: tuple[str, str]) -> memory.Life[secrets.Token]:
        if given is None:
            raise kube_errors.NotFound(key[0])
        return memory.Life(value=secrets.Token(text=given, expires_us=0), size=1)

    return credentials.Vault(
        memory.Memory(look, clock), memory.Memory(token, clock), is_insecure_allowed=True
    )


# -- what is shown -------------------------------------------------------------------------------


def _without(value: str, hidden: tuple[str, ...]) -> str:
    for secret in sorted(filter(None, hidden), key=len, reverse=True):
        value = value.replace(secret, "[redacted]")
    return value


def _show(row: output.Row, form: str) -> None:
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
