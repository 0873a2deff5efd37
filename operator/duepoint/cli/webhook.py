"""``duepoint webhook``: tests a Schedule's webhook, and verifies a received request.

``test`` sends one delivery of a manifest's webhook from this machine, exactly as a worker would:
same code, same signature, with the present time as its slot. ``verify`` tells a receiver whether a
captured request was signed with a secret, and if not, why. Neither needs a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import click
import msgspec

from duepoint import errors
from duepoint.cli import grouping, instants, options, output
from duepoint.cli.check import validate
from duepoint.schedules import actions
from duepoint.schedules.spec import ScheduleSpec
from duepoint.targets.webhook import signing


def _assigned(text: str) -> tuple[str, str, str]:
    named, equals, value = text.partition("=")
    name, slash, key = named.partition("/")
    if not (equals and slash and name and key):
        # The message does not quote the text: it may be the secret itself.
        raise ValueError("write NAME/KEY=..., such as billing-hook/secret=...")
    return name, key, value


@click.group("webhook", cls=grouping.CommandGroup)
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
    from duepoint.cli import sample  # noqa: PLC0415 - the libraries of a worker

    spec = _chosen(files, name, namespace)
    if url is not None:
        spec = _sent_to(url, spec)
    objects: dict[str, dict[str, bytes]] = {}
    for secret, key, value in secrets:
        objects.setdefault(secret, {})[key] = value.encode()
    for secret, key, secret_file in secret_files:
        objects.setdefault(secret, {})[key] = options.content("--secret-file", secret_file)
    token = None if token_file is None else options.text("--token-file", token_file)

    row = asyncio.run(sample.run(spec, objects, token, send=not dry_run))
    sample.show(row, form)
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
    headers, body = captured(options.content("--request", request))
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
    given += [("--secret-file", options.text("--secret-file", file)) for file in files]
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
    """Return whether the request is signed with one of the secrets, with which, or why not."""
    row: output.Row = {"valid": False, "webhookId": "", "sentAt": "", "secret": None}
    for name in _WANTED:
        if not headers.get(name):
            known = sorted(headers)[:20]
            found = ", ".join(each[:_MOST_OF_NAME] for each in known) or "none"
            return row | {"reason": f"header {name} is missing; headers found: {found}"}
    row["webhookId"], timestamp, signature = (headers[name] for name in _WANTED)
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _MOST_DIGITS):
        reason = f"webhook-timestamp {errors.quoted(timestamp)} is no time in whole seconds"
        return row | {"reason": reason}
    sent_us = int(timestamp) * 1_000_000
    row["sentAt"] = output.time(sent_us) or ""
    content = signing.signed_content(row["webhookId"], timestamp, body)
    row["secret"] = _signed_by(verifiers, content, signature) or None
    if row["secret"] is None:
        return row | {"reason": _why_not(signature)}
    return row | {"valid": True, "reason": ""}


def _signed_by(verifiers: Sequence[signing.Signer], content: bytes, signature: str) -> int:
    entries = signature.split()
    for number, verifier in enumerate(verifiers, start=1):
        if any(verifier.accepts(content, entry) for entry in entries):
            return number
    return 0


def _why_not(signature: str) -> str:
    versions = {entry.partition(",")[0] for entry in signature.split()}
    listed = ", ".join(sorted(version for version in versions if version.isalnum())[:4])
    return (
        f"no entry of webhook-signature ({listed or 'none of a known form'}) matches: another "
        "secret signed it, or id, time or body were changed on the way; verify the bytes as they "
        "came, not a body that was parsed and printed anew, or that got a line break at its end"
    )
