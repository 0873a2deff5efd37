"""``duepoint webhook``: try a Schedule's webhook before its time, and check what was received.

``test`` sends one delivery of a manifest's webhook exactly as a worker would, from here: same code,
same signature, a slot of now. ``verify`` answers for a receiver whether a captured request was
signed with a secret, and if not, why. Neither needs a cluster.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from duepoint import errors
from duepoint.cli import grouping, instants, limits, options, output
from duepoint.cli.check import validate
from duepoint.schedules import actions
from duepoint.schedules.spec import ScheduleSpec


def _assigned(text: str) -> tuple[str, str, str]:
    named, equals, value = text.partition("=")
    name, slash, key = named.partition("/")
    if not (equals and slash and name and key):
        # Not quoted: it may be the secret itself.
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
@options.of_cluster
@click.option("--dry-run", is_flag=True, help="Show the request and send nothing.")
@options.patience
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
    kubeconfig: Path | None,
    context: str | None,
    patience_seconds: float | None,
    form: str,
    dry_run: bool,
) -> None:
    """Send a signed sample of a Schedule's webhook.

    The egress rules of an installation are not applied: it is this machine that sends. What is not
    given here is read from a cluster if --kubeconfig or --context names one.

    Example: duepoint webhook test schedule.yaml --url http://localhost:8080/hook
    """
    from duepoint.cli import sample  # noqa: PLC0415 - the libraries of a worker

    spec = _chosen(files, name, namespace)
    objects: dict[str, dict[str, bytes]] = {}
    for secret, key, value in secrets:
        objects.setdefault(secret, {})[key] = value.encode()
    for secret, key, secret_file in secret_files:
        objects.setdefault(secret, {})[key] = options.content("--secret-file", secret_file)
    place = options.Place(kubeconfig=kubeconfig, context=context, namespace=None)
    wanted = sample.Sample(
        spec=spec,
        slot_us=instants.now_us() // 1_000_000 * 1_000_000,
        url=url,
        objects=objects,
        token=None if token_file is None else options.text("--token-file", token_file),
        place=place if kubeconfig or context else None,
    )

    async def run() -> sample.SampleResult:
        async with limits.limited(patience_seconds):
            return await sample.run(wanted, send=not dry_run)

    sent = asyncio.run(run())
    sample.show(sent, form)
    if sent.accepted is False:
        raise click.exceptions.Exit(output.FAILED)


def _chosen(files: tuple[str, ...], name: str | None, namespace: str) -> ScheduleSpec:
    """The one Schedule that is meant; raises errors.InvalidSetting."""
    accepted = validate.accepted(files, namespace, instants.now_us())
    webhooks = [
        checked.spec
        for checked in accepted
        if checked.spec is not None
        and isinstance(checked.spec.action.target, actions.WebhookAction)
        and name in (None, checked.spec.name)
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
    metavar="FILE",
    help="The request as it came: headers, an empty line, the body. Unset: standard input.",
)
@click.option("--headers", metavar="FILE", help="Its headers alone, as lines or as JSON.")
@click.option("--body", metavar="FILE", help="Its body alone, byte for byte.")
@click.option(
    "--tolerance",
    "tolerance_us",
    default="5m",
    metavar="DURATION",
    type=options.DURATION_US,
    show_default=True,
    help="How far its time may be from --at; 0s does not look at it.",
)
@click.option("--at", default="now", metavar="TIME", show_default=True, help="When it came.")
@options.output_format
def verify(
    *,
    secrets: tuple[str, ...],
    secret_files: tuple[str, ...],
    request: str | None,
    headers: str | None,
    body: str | None,
    tolerance_us: int,
    at: str,
    form: str,
) -> None:
    """Check the signature of a request that was received.

    Exit code 0: it is ours; 1: it is not, and why; 2: there is nothing to check.
    """
    from duepoint.cli import verification  # noqa: PLC0415 - only this command needs it

    captured = verification.request(request, headers, body)
    verdict = verification.judge(
        captured,
        verification.verifiers(secrets, secret_files),
        tolerance_us=tolerance_us,
        at_us=instants.parse_us(at, zone="Etc/UTC", name="--at"),
    )
    verification.show(verdict, form)
    if not verdict.is_valid:
        raise click.exceptions.Exit(output.FAILED)
