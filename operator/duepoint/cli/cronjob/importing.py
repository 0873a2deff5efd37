"""``duepoint import cronjob``: CronJobs to manifests of Schedules that do the same.

Owns the options: CronJobs come from files or from a cluster, Schedules go to standard output, ready
for ``kubectl apply -f -``. A CronJob that cannot become a Schedule is one line that names it, its
document and its field; the others are printed all the same. Nothing in a cluster is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from duepoint import errors
from duepoint.cli import instants, options, output
from duepoint.cli.check import manifests
from duepoint.cli.check.manifests import Manifest, Unreadable
from duepoint.cli.cronjob import importjudging, importprinting


class _Kinds(click.Group):
    """Kinds by any of the names that kubectl knows them by; alone, it tells what there is."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, _SAME.get(cmd_name.lower(), cmd_name))


_SAME = {"cronjobs": "cronjob", "cj": "cronjob"}


@click.group("import", cls=_Kinds, invoke_without_command=True)
@click.pass_context
def importing(context: click.Context) -> None:
    """Print Schedules made of what another scheduler runs."""
    if context.invoked_subcommand is None:
        raise errors.InvalidSetting("import", "write what: duepoint import cronjob -f FILE")


@importing.command("cronjob")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--filename", "-f", "files", metavar="FILE", multiple=True,
    help="YAML or JSON; - is standard input. May be repeated. Unset: ask the cluster.",
)  # fmt: skip
@click.option(
    "--namespace", "-n", metavar="NAMESPACE",
    help="Of the cluster: this one. With -f: written into objects that name none.",
)  # fmt: skip
@click.option("--all-namespaces", "-A", "everywhere", is_flag=True, help="Of the whole cluster.")
@click.option("--selector", "-l", metavar="LABELS", help="Of the cluster: only such CronJobs.")
@click.option(
    "--time-zone", metavar="ZONE",
    help="Written where a CronJob names no zone: that of its controller manager. Unset: Etc/UTC.",
)  # fmt: skip
@click.option("--output", "-o", "form", metavar="yaml|json", default="yaml", show_default=True)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Unset: as kubectl finds it.")
@click.option("--context", metavar="NAME", help="Of the kubeconfig; unset: the current one.")
def cronjob(
    *, names: tuple[str, ...], files: tuple[str, ...], namespace: str | None, everywhere: bool,
    selector: str | None, time_zone: str | None, form: str, kubeconfig: Path | None,
    context: str | None,
) -> None:  # fmt: skip
    """Print CronJobs of files or of a cluster as Schedules, and tell what will differ.

    Nothing is changed in the cluster. Needs -f, a NAME, -n or --all-namespaces.
    """
    form = output.choice("--output", form, ("yaml", "json"))
    if time_zone is not None:
        options.check_zone(time_zone)
    _check_choice(names, files, namespace, everywhere=everywhere, selector=selector)
    if files:
        found: Iterable[Manifest | Unreadable] = _of_files(files)
    else:
        from duepoint.cli.cronjob import importcluster  # noqa: PLC0415 - files need no cluster

        wanted = importcluster.Wanted(
            namespace=namespace, everywhere=everywhere, selector=selector, names=names
        )
        found = importcluster.read(wanted, kubeconfig, context)
    given = importjudging.Given(
        namespace=namespace if files else None, time_zone=time_zone, now_us=instants.now_us()
    )
    importprinting.show(importjudging.imported(found, given), form)


def _check_choice(
    names: tuple[str, ...], files: tuple[str, ...], namespace: str | None, *,
    everywhere: bool, selector: str | None,
) -> None:  # fmt: skip
    if files and (names or everywhere or selector):
        raise errors.InvalidSetting(
            "--filename", "a file is imported whole; leave out names, -A and -l"
        )
    if everywhere and (names or namespace):
        raise errors.InvalidSetting("--all-namespaces", "leave out names and -n")
    if names and selector:
        raise errors.InvalidSetting("--selector", "leave out names")
    if not (files or names or namespace or everywhere or selector):
        raise errors.InvalidSetting(
            "import cronjob", "write -f FILE, a NAME, -n NAMESPACE or --all-namespaces"
        )


def _of_files(files: tuple[str, ...]) -> Iterator[Manifest | Unreadable]:
    for file in files:
        yield from manifests.read(file)
