"""``duepoint set``: commands for the members of a ScheduleSet, for one or for a list.

Everything goes through the HTTP API, with the rights of the token. If a member does not exist, the
exit code is 1. ``transfer`` has the commands for whole sets.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping

import click
import msgspec

from duepoint import client, errors
from duepoint.cli import apisession, grouping, instants, options, output, transfer
from duepoint.client import problems
from duepoint.expressions import durations

_PAGE = 500
#: How many coming slots ``get`` shows for a member with a schedule.
_NEXT = 3


@click.group("set", cls=grouping.CommandGroup)
def sets() -> None:
    """Look at and change the members of a ScheduleSet, through the HTTP API.

    DUEPOINT_API_URL or --server says where it is; the token is that of the kubeconfig's context
    unless another one is given.
    """


sets.add_command(transfer.export)
sets.add_command(transfer.import_rows)


# -- looking -------------------------------------------------------------------------------------


@sets.command("get")
@apisession.of_set
@click.argument("id_", metavar="[ID]", required=False)
@options.output_format
@apisession.asking
async def get(asked: client.AsyncSetClient, *, id_: str | None, form: str) -> int:
    """Show the member ID of SET; without ID the set: its members, what is due, and how late.

    Example: duepoint set get reminders order-17 -n shop
    """
    if id_ is None:
        _show_member(_row(await asked.info()), form)
        return 0
    try:
        row = _row(await asked.get(id_))
    except client.NothingThere as missing:
        if missing.code != problems.NO_MEMBER:
            raise
        output.complain(missing.detail)
        return output.FAILED
    if row["schedule"] is not None:
        row["nextTimes"] = list(await asked.next_times(id_, _NEXT))
    _show_member(row, form)
    return 0


@sets.command("list")
@apisession.of_set
@click.option("--prefix", default="", metavar="TEXT", help="Only ids that begin so.")
@click.option(
    "--within", "within_us", metavar="DURATION", type=options.DURATION_US,
    help="Only what is due within this, such as 1h, or overdue; the earliest first.",
)  # fmt: skip
@click.option(
    "--count", default="100", metavar="N", type=options.whole(10**9), show_default=True,
    help="How many at most; without --within in no certain order.",
)  # fmt: skip
@options.output_format
@apisession.asking
async def list_members(
    asked: client.AsyncSetClient, *, prefix: str, within_us: int | None, count: int, form: str
) -> int:
    """List members of SET.

    Example: duepoint set list reminders -n shop --within 1h
    """
    if within_us is None:
        members = asked.iterate(prefix, page_size=min(count + 1, _PAGE))
    elif prefix:
        raise errors.InvalidSetting("--prefix", "leave it out, or leave --within out")
    else:
        members = _due(asked, instants.utc_text(instants.now_us() + within_us), count + 1)
    rows: list[output.Row] = []
    total, has_more = 0, False
    async with contextlib.aclosing(members):
        async for member in members:
            if has_more := total == count:
                break
            total += 1
            rows.append(_bare(_row(member), form))
            if output.is_data(form):  # at once, so that any number takes little memory
                output.write([rows.pop()], form)
    output.show_rows(rows, form, _OF_MEMBER, wide=_WIDE)
    if not total:
        output.complain("there is no such member")
    elif has_more:
        output.complain(f"there are more than these {count:,}; --count shows more, export all")
    return 0


async def _due(
    asked: client.AsyncSetClient, until: str, most: int
) -> AsyncGenerator[client.MemberView, None]:
    """Yield about ``most`` members that are due before ``until``, the earliest first."""
    cursor, count = "", 0
    while count < most:
        page = await asked.due(instants.utc_text(0), until, cursor, limit=min(most - count, _PAGE))
        for member in page.items:
            yield member
        count += len(page.items)
        if not (cursor := page.next):
            return


def _row(value: msgspec.Struct) -> output.Row:
    """Return an answer of the API as a row, under the API's names."""
    made: output.Row = msgspec.to_builtins(value)
    return made


def _bare(row: output.Row, form: str) -> output.Row:
    """Return the row; for YAML without the fields that are None."""
    return {name: value for name, value in row.items() if form != "yaml" or value is not None}


def _when(row: output.Row) -> str:
    """Return a cell with the schedule or instant of a member."""
    several = row["schedule"]
    return ", ".join(several) if isinstance(several, list) else output.text(several or row["at"])


def _payload(row: output.Row) -> str:
    return "" if row["payload"] is None else msgspec.json.encode(row["payload"]).decode()


_OF_MEMBER: output.Columns = {
    "id": "id",
    "when": _when,
    "next due": lambda row: "claimed" if row["claimed"] else output.short_time(row["nextDueTime"]),
    "state": "state",
    "payload": _payload,
}
_WIDE: output.Columns = {"time zone": "timeZone", "created": "createdTime", "etag": "etag"}


def _show_member(row: output.Row, form: str) -> None:
    """Show a member, or the set, with one line for each field of the API that is not empty."""
    filled = {name: value for name, value in row.items() if value not in (None, "", False)}
    cells = {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in filled.items()
    }
    output.show_row(_bare(row, form), form, cells)


# -- changing ------------------------------------------------------------------------------------


def _whole_seconds(text: str) -> int:
    """Read a duration that the API can store; raises ValueError."""
    seconds, rest = divmod(durations.parse_duration_us(text), 1_000_000)
    if rest:
        raise ValueError(
            f"{errors.quoted(text)} is not a whole number of seconds; write {seconds + 1}s"
        )
    return seconds


@sets.command("put")
@apisession.of_set
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--schedule", metavar="EXPR", help="When, again and again.")
@click.option("--at", metavar="TIME", help="When, once.")
@click.option("--delay", metavar="DURATION", help="Once, so long from now, such as 24h.")
@click.option(
    "--payload", metavar="JSON|@FILE", type=options.PAYLOAD,
    help="In place of the set's; @- is standard input.",
)  # fmt: skip
@click.option("--time-zone", metavar="ZONE", type=options.ZONE, help="Of --schedule and --at.")
@click.option(
    "--starting-deadline", "deadline_seconds", metavar="DURATION",
    type=options.Converted(_whole_seconds),
    help="A slot that has not begun so long after its time is missed; whole seconds.",
)  # fmt: skip
@click.option("--suspend", is_flag=True, help="Hold it until it is put without this.")
@options.output_format
@apisession.asking
async def put(
    asked: client.AsyncSetClient,
    *,
    id_: str | None,
    schedule: str | None,
    at: str | None,
    delay: str | None,
    payload: object,
    time_zone: str | None,
    deadline_seconds: int | None,
    suspend: bool,
    form: str,
) -> int:
    """Make the member ID of SET as the options say; without ID a one-off with an id of its own.

    Example: duepoint set put reminders order-17 -n shop --delay 24h --payload '{"order": 17}'
    """
    if at is not None:
        at_us = instants.parse_us(at, zone=time_zone or "Etc/UTC", name="--at")
        at, time_zone = instants.utc_text(at_us), None
    spec = _spec(
        schedule=schedule, at=at, delay=delay, payload=payload, time_zone=time_zone,
        starting_deadline_seconds=deadline_seconds,
        suspend=suspend or None,
    )  # fmt: skip
    if id_ is None:
        if schedule is not None:
            raise errors.InvalidSetting("ID", "is missing: only --at and --delay go without one")
        made = await asked.create(spec)
    else:
        made = await asked.put(id_, spec)
    _show_member(_row(made), form)
    return 0


def _spec(**given: object) -> client.MemberSpec:
    try:
        return client.MemberSpec(**given)  # type: ignore[arg-type]  # each option's type fits
    except ValueError:
        written = [f"--{name}" for name in ("schedule", "at", "delay") if given[name] is not None]
        why = f"there is {' and '.join(written)}" if written else "none of them is there"
        raise errors.InvalidSetting(
            "--schedule, --at, --delay", f"write exactly one of them; {why}"
        ) from None


@sets.command("delete")
@apisession.of_set
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--prefix", metavar="TEXT", help="All whose id begins so, instead of IDs.")
@click.option("--all", "everything", is_flag=True, help="All members, instead of IDs.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before --prefix and --all.")
@options.output_format
@apisession.asking
async def delete(
    asked: client.AsyncSetClient,
    *,
    ids: tuple[str, ...],
    prefix: str | None,
    everything: bool,
    yes: bool,
    form: str,
) -> int:
    """Delete the members ID of SET.

    Example: duepoint set delete reminders -n shop --prefix order-
    """
    chosen = [bool(ids), prefix is not None, everything]
    if sum(chosen) != 1:
        raise errors.InvalidSetting("ID", "write IDs, or --prefix TEXT, or --all: one of them")
    if not ids and not yes:
        what = "all members" if everything else f"all members whose id begins with {prefix}"
        without = "write --yes to delete without a question"
        if not options.confirmed(f"Delete {what}?", option="--yes", without_terminal=without):
            output.say("nothing was deleted")
            return 0
    counts = {"Removed": 0, "Absent": 0, "Refused": 0}
    cursor, batch = "", list(ids)
    while True:  # page by page: a cursor stays valid while members are deleted
        if not ids:
            page = await asked.page(cursor, prefix=prefix or "", limit=_PAGE)
            cursor, batch = page.next, [member.id for member in page.items]
        async for answer in asked.delete_many(batch):
            if answer.error is not None:
                output.complain(f"{answer.id}: {answer.error.detail} ({answer.error.code})")
            counts["Refused" if answer.is_refused else answer.outcome] += 1
        if not cursor:
            return _print_deleted(counts, form)


def _print_deleted(counts: Mapping[str, int], form: str) -> int:
    if output.is_data(form):
        output.write([{name.lower(): count for name, count in counts.items()}], form)
    else:
        absent = f", {counts['Absent']:,} were not there" if counts["Absent"] else ""
        refused = f", {counts['Refused']:,} could not be" if counts["Refused"] else ""
        output.say(f"{counts['Removed']:,} deleted{absent}{refused}")
    return 0 if counts["Removed"] and not counts["Refused"] else output.FAILED
