"""``duepoint set``: the members of a ScheduleSet, one at a time or a list of them.

Everything goes through the HTTP API, with the rights of the token that asks. A member that is not
there is nothing to show (exit code 1), with the id that was probably meant. ``transfer`` has the
commands for whole sets.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
from collections.abc import Mapping

import click
from msgspec import UNSET

from duepoint import client, errors
from duepoint.cli import apisession, grouping, instants, options, output
from duepoint.cli.sets import shown
from duepoint.client import calls
from duepoint.expressions import durations

_MOST = 10_000
_PAGE = 500
#: Members of another id that are looked through for the one that was meant.
_LOOKED_THROUGH = 1_000

_TRANSFERS = {"export": "exporting", "import": "importing"}


class SetCommands(grouping.CommandGroup):
    """The subcommands; two of them are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *_TRANSFERS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if module := _TRANSFERS.get(cmd_name):
            found = importlib.import_module(f"duepoint.cli.sets.{module}").command
            assert isinstance(found, click.Command)  # noqa: S101 - the table above is ours
            return found
        return super().get_command(ctx, cmd_name)


@click.group("set", cls=SetCommands)
def sets() -> None:
    """Look at and change the members of a ScheduleSet, through the HTTP API.

    DUEPOINT_API_URL or --server says where it is; the token is that of the kubeconfig's context
    unless another one is given.
    """


# -- looking -------------------------------------------------------------------------------------


@sets.command("get")
@apisession.of_set
@click.argument("id_", metavar="ID")
@click.option(
    "--next", "next_", metavar="N", type=options.whole(100), help="Also its next N slots."
)
@options.output_format
@apisession.asking
async def get(asked: client.AsyncSetClient, *, id_: str, next_: int | None, form: str) -> int:
    """Show the member ID of SET."""
    try:
        row = shown.row(await asked.get(id_))
    except client.NothingThere as missing:
        return await _no_member(asked, id_, missing)
    times = await asked.next_times(id_, next_) if next_ else ()
    if next_:
        row["nextTimes"] = list(times)
    cells = shown.cells_of_member(row) | ({"next": ", ".join(times)} if times else {})
    shown.single(row, form, lambda _: cells)
    return 0


@sets.command("list")
@apisession.of_set
@click.option("--prefix", default="", metavar="TEXT", help="Only ids that begin so.")
@click.option(
    "--count", default="100", metavar="N", type=options.whole(10**9), show_default=True,
    help="How many at most, in no certain order.",
)  # fmt: skip
@options.output_format
@apisession.asking
async def list_members(asked: client.AsyncSetClient, *, prefix: str, count: int, form: str) -> int:
    """List members of SET."""
    rows: list[output.Row] = []
    total, has_more = 0, False
    page_size = min(count + 1, _PAGE)  # one more says whether there are more
    async with contextlib.aclosing(asked.iterate(prefix, page_size=page_size)) as members:
        async for member in members:
            if has_more := total == count:
                break
            rows.append(shown.row(member))
            total += 1
            # JSON and YAML are written page by page, so that any number takes little memory.
            if output.is_data(form) and len(rows) == _PAGE:
                _write(rows, form)
                rows.clear()
    _write(rows, form)
    if not total:
        output.complain("there is no such member")
    elif has_more:
        output.complain(f"there are more than these {count:,}; --count shows more, export all")
    return 0


@sets.command("due")
@apisession.of_set
@click.option(
    "--within", "within_us", metavar="DURATION", type=options.DURATION_US,
    help="Due from now on for so long, such as 1h. Unset: 1h.",
)  # fmt: skip
@click.option("--from", "from_", metavar="TIME", help="Due from then on; unset: now.")
@click.option("--to", metavar="TIME", help="Due before then; instead of --within.")
@click.option("--overdue", is_flag=True, help="Only what should have fired already.")
@options.count(_MOST)
@options.output_format
@apisession.asking
async def due(
    asked: client.AsyncSetClient,
    *,
    within_us: int | None,
    from_: str | None,
    to: str | None,
    overdue: bool,
    count: int,
    form: str,
) -> int:
    """List members of SET that are due in a time, the earliest first."""
    since, until = _window(within_us, from_, to, overdue=overdue)
    rows: list[output.Row] = []
    cursor = ""
    while len(rows) < count:
        page = await asked.due(since, until, cursor, limit=min(count - len(rows), _PAGE))
        rows += [shown.row(member) for member in page.items]
        if not (cursor := page.next):
            break
    _write(rows, form)
    if not rows:
        output.complain(f"no member is due from {since} to {until}")
    elif cursor:
        output.complain(f"more are due than these {count:,}; --count shows more")
    return 0


def _window(
    within_us: int | None, from_: str | None, to: str | None, *, overdue: bool
) -> tuple[str, str]:
    """Both ends as RFC 3339."""
    if overdue:
        if within_us is not None or from_ is not None or to is not None:
            raise errors.InvalidSetting("--overdue", "ends now: leave the other times out")
        return instants.utc_text(0), instants.utc_text(instants.now_us())
    if within_us is not None and to is not None:
        raise errors.InvalidSetting("--to", "says the end, and so does --within: leave one out")
    since_us = instants.parse_us(from_ or "now", zone="Etc/UTC", name="--from")
    if to is None:
        until_us = since_us + (within_us or 3_600_000_000)
    else:
        until_us = instants.parse_us(to, zone="Etc/UTC", name="--to")
    if until_us <= since_us:
        raise errors.InvalidSetting("--to" if to else "--within", "ends before it begins")
    return instants.utc_text(since_us), instants.utc_text(until_us)


def _write(rows: list[output.Row], form: str) -> None:
    shown.rows(rows, form, _OF_MEMBER, wide=_WIDE, spare=("state", "payload"), may_cut="payload")


_OF_MEMBER: output.Columns = {
    "id": "id",
    "when": shown.when,
    "next due": shown.due,
    "state": "state",
    "payload": shown.payload,
}
_WIDE: output.Columns = {"time zone": "timeZone", "created": "createdTime", "etag": "etag"}


@sets.command("stats")
@apisession.of_set
@options.output_format
@apisession.asking
async def stats(asked: client.AsyncSetClient, *, form: str) -> int:
    """Show how many members SET has, what is due, and how late it is."""
    shown.single(shown.row(await asked.info()), form, _of_set)
    return 0


def _of_set(row: output.Row) -> output.Cells:
    return {
        "set": f"{row['namespace']}/{row['name']}",
        "state": row["state"],
        "members": f"{row['members']:,} of at most {row['limits']['members']:,}",
        "armed": f"{row['armed']:,}",
        "claimed": f"{row['inFlight']:,}",
        "next due": output.text(row["nextDueTime"]) or "none",
        "lag": output.span(row["lagSeconds"]) if row["lagSeconds"] else "none is overdue",
        "managed": "by its rows" if row["managedByRows"] else "through the API",
        "can be lost": row["durability"]["lossWindow"] or "unknown",
    }


# -- changing ------------------------------------------------------------------------------------


def _whole_seconds(text: str) -> int:
    """A duration that the API can store; raises ValueError."""
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
@click.option("--if-absent", is_flag=True, help="Only if there is none of this id.")
@click.option("--if-match", metavar="ETAG", default="", help="Only if its etag is this.")
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
    if_absent: bool,
    if_match: str,
    form: str,
) -> int:
    """Make the member ID of SET as the options say; without ID a one-off with an id of its own."""
    if at is not None:
        at_us = instants.parse_us(at, zone=time_zone or "Etc/UTC", name="--at")
        at, time_zone = instants.utc_text(at_us), None
    spec = _spec(
        schedule=schedule, at=at, delay=delay, payload=payload, time_zone=time_zone,
        starting_deadline_seconds=deadline_seconds,
        suspend=suspend or None,
    )  # fmt: skip
    options_of_change = calls.ChangeOptions(if_absent=if_absent, if_match=if_match)
    if id_ is None:
        if schedule is not None:
            raise errors.InvalidSetting("ID", "is missing: only --at and --delay go without one")
        made = await asked.create(spec, options=options_of_change)
    else:
        made = await asked.put(id_, spec, options=options_of_change)
    shown.single(shown.row(made), form, shown.cells_of_member)
    return 0


def _spec(**given: object) -> client.MemberSpec:
    try:
        return client.MemberSpec(
            **{name: UNSET if value is None else value for name, value in given.items()}  # type: ignore[arg-type]  # each option's type fits its field
        )
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
@click.option("--if-match", metavar="ETAG", default="", help="Only if the etag of ID is this.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before --prefix and --all.")
@options.output_format
@apisession.asking
async def delete(
    asked: client.AsyncSetClient,
    *,
    ids: tuple[str, ...],
    prefix: str | None,
    everything: bool,
    if_match: str,
    yes: bool,
    form: str,
) -> int:
    """Delete the members ID of SET."""
    chosen = [bool(ids), prefix is not None, everything]
    if sum(chosen) != 1:
        raise errors.InvalidSetting("ID", "write IDs, or --prefix TEXT, or --all: one of them")
    if if_match:
        return await _delete_version(asked, ids, if_match, form)
    if not ids and not yes:
        what = "all members" if everything else f"all members whose id begins with {prefix}"
        without = "write --yes to delete without a question"
        if not options.confirmed(f"Delete {what}?", option="--yes", without_terminal=without):
            output.say("nothing was deleted")
            return 0
    counts = {"Removed": 0, "Absent": 0, "Refused": 0}
    if ids:
        await _count(asked, counts, ids)
    else:
        await _delete_pages(asked, counts, prefix or "")
    return _say_deleted(counts, form)


async def _delete_version(
    asked: client.AsyncSetClient, ids: tuple[str, ...], if_match: str, form: str
) -> int:
    if len(ids) != 1:
        raise errors.InvalidSetting("--if-match", "is about one member: write one ID")
    removed = await asked.delete(ids[0], options=calls.ChangeOptions(if_match=if_match))
    return _say_deleted({"Removed": int(removed), "Absent": int(not removed), "Refused": 0}, form)


async def _delete_pages(asked: client.AsyncSetClient, counts: dict[str, int], prefix: str) -> None:
    """Page by page: a cursor stays good while members go."""
    cursor = ""
    while True:
        page = await asked.page(cursor, prefix=prefix, limit=_PAGE)
        await _count(asked, counts, [member.id for member in page.items])
        if not (cursor := page.next):
            return


async def _count(
    asked: client.AsyncSetClient, counts: dict[str, int], ids: list[str] | tuple[str, ...]
) -> None:
    async for answer in asked.delete_many(ids):
        if answer.error is not None:
            output.complain(f"{answer.id}: {answer.error.detail} ({answer.error.code})")
        counts["Refused" if answer.is_refused else answer.outcome] += 1


def _say_deleted(counts: Mapping[str, int], form: str) -> int:
    if output.is_data(form):
        output.write([{name.lower(): count for name, count in counts.items()}], form)
    else:
        absent = f", {counts['Absent']:,} were not there" if counts["Absent"] else ""
        refused = f", {counts['Refused']:,} could not be" if counts["Refused"] else ""
        output.say(f"{counts['Removed']:,} deleted{absent}{refused}")
    return 0 if counts["Removed"] and not counts["Refused"] else output.FAILED


@sets.command("trigger")
@apisession.of_set
@click.argument("id_", metavar="ID")
@click.option(
    "--payload", metavar="JSON|@FILE", type=options.PAYLOAD,
    help="In place of the member's, this once.",
)  # fmt: skip
@options.output_format
@apisession.asking
async def trigger(asked: client.AsyncSetClient, *, id_: str, payload: object, form: str) -> int:
    """Fire the member ID of SET once, now; its slots stay as they are."""
    try:
        run = await asked.trigger(id_, UNSET if payload is None else payload)
    except client.NothingThere as missing:
        return await _no_member(asked, id_, missing)
    if output.is_data(form):
        output.write([{"id": id_, "run": run}], form)
    else:
        output.say(f"{id_} fires now, as run {run}")
    return 0


async def _no_member(asked: client.AsyncSetClient, id_: str, missing: client.NothingThere) -> int:
    """Say so, with the id that was probably meant; only of a member."""
    if missing.code != calls.NO_MEMBER:
        raise missing
    near: list[str] = []
    with contextlib.suppress(client.ClientError):
        for length in (len(id_) - 1, len(id_) // 2, 1):
            page = await asked.page(prefix=id_[:length], limit=_LOOKED_THROUGH)
            near = difflib.get_close_matches(id_, [member.id for member in page.items], n=1)
            if near:
                break
    hint = f'; did you mean "{near[0]}"?' if near else ""
    output.complain(f"{missing.detail}{hint}")
    return output.FAILED
