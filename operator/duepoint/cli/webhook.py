"""``duepoint webhook test``: try a Schedule's webhook before its time.

Sends one delivery of a manifest's webhook exactly as a worker would, from here: same code, same
signature, a slot of now. It needs no cluster.
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
    """Try a Schedule's webhook before its time."""


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
