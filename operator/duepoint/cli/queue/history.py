"""``duepoint queue history``: the last slots of one Schedule or member that the queue has kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from duepoint import errors
from duepoint.cli import options, output, slotrows
from duepoint.cli.queue import connection, views
from duepoint.controller.status import recent
from duepoint.schedules import points

if TYPE_CHECKING:
    from duepoint.delayqueue.delayqueue import DelayQueue
    from duepoint.runs.history import PastSlot


@click.command("history")
@click.argument("name", metavar="NAME|UID")
@click.option("--namespace", "-n", metavar="NAME", type=options.NAME, default="default",
    show_default=True, help="Of the Schedule or the set.")  # fmt: skip
@click.option("--set", "set_name", metavar="SET", type=options.NAME,
    help="NAME is a member of this ScheduleSet: only what went wrong is kept.")  # fmt: skip
@options.output_format
@connection.looking()
async def history(
    opened: DelayQueue, *, name: str, namespace: str, set_name: str | None, form: str
) -> int:
    """Show the last slots of the Schedule NAME, those that did not run too."""
    if set_name is None:
        slots = await _of_schedule(opened, namespace, name)
    else:
        slots = await _of_member(opened, namespace, set_name, name)
    if not slots:
        output.complain(f"no slot of {namespace}/{name} is kept")
    rows = [slotrows.row(recent.as_shown(slot)) for slot in slots]
    columns = slotrows.columns("Etc/UTC")
    return output.show_rows(rows, form, columns, spare=("took",), may_cut="why")


async def _of_schedule(opened: DelayQueue, namespace: str, name: str) -> tuple[PastSlot, ...]:
    view = await views.found(opened, namespace, name)
    if view is None:
        raise errors.InvalidSetting("NAME", f"the queue has no Schedule {namespace}/{name}")
    return await opened.history.of(view.known.id)


async def _of_member(
    opened: DelayQueue, namespace: str, set_name: str, name: str
) -> tuple[PastSlot, ...]:
    record = await opened.sets.find(namespace, set_name)
    if record is None:
        raise errors.InvalidSetting("--set", f"there is no ScheduleSet {namespace}/{set_name}")
    member_id = points.member_id(record.identity, name)
    return await opened.history.of(member_id, of_member=True)
