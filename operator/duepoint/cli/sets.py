"""``duepoint set``: commands for the members of a ScheduleSet, for one or for a list.

Everything goes through the HTTP API, with the rights of the token. If a member does not exist, the
exit code is 1.

``export`` and ``import`` take whole sets as NDJSON, one row per line, which the API's bulk requests
accept as well. Each page of an export is consistent in itself; members that are written meanwhile
may or may not be included, and a member that does not change is included exactly once. A row may be
written again without harm (the API answers ``Unchanged``), so an interrupted import can be
repeated. A refused row does not stop the others: it is counted, and written with its reason to
``--refused``.
"""

from __future__ import annotations

import collections
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from duepoint import client, errors
from duepoint.cli import apisession, instants, options, output
from duepoint.client import problems
from duepoint.expressions import durations

_PAGE = 500
#: How many coming slots ``get`` shows for a member with a schedule.
_NEXT = 3


@click.group("set", cls=options.CommandGroup)
def sets() -> None:
    """Look at and change the members of a ScheduleSet, through the HTTP API.

    DUEPOINT_API_URL or --server says where it is; the token is that of the kubeconfig's context
    unless another one is given.
    """


# -- looking -------------------------------------------------------------------------------------


@sets.command("get")
@apisession.of_set
@click.argument("id_", metavar="[ID]", required=False)
@options.output_format
@apisession.asking
async def get(asked: client.AsyncSetClient, *, id_: str | None, form: str) -> None:
    """Show the member ID of SET; without ID the set: its members, what is due, and how late.

    Example: duepoint set get reminders order-17 -n shop
    """
    if id_ is None:
        _show_member(msgspec.to_builtins(await asked.info()), form)
        return
    try:
        row = msgspec.to_builtins(await asked.get(id_))
    except client.NothingThere as missing:
        if missing.code != problems.NO_MEMBER:
            raise
        output.complain(missing.detail)
        raise click.exceptions.Exit(output.FAILED) from None
    if row["schedule"] is not None:
        row["nextTimes"] = list(await asked.next_times(id_, _NEXT))
    _show_member(row, form)


@sets.command("list")
@apisession.of_set
@click.option("--prefix", default="", metavar="TEXT", help="Only ids that begin so.")
@click.option(
    "--within", "within_us", metavar="DURATION", type=options.DURATION_US,
    help="Only what is due within this, such as 1h, or overdue; the earliest first.",
)  # fmt: skip
@click.option(
    "--count", default="100", metavar="N", type=click.IntRange(1, 10**9), show_default=True,
    help="How many at most; without --within in no certain order.",
)  # fmt: skip
@options.output_format
@apisession.asking
async def list_members(
    asked: client.AsyncSetClient, *, prefix: str, within_us: int | None, count: int, form: str
) -> None:
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
            rows.append(msgspec.to_builtins(member))
            if output.is_data(form):  # at once, so that any number takes little memory
                output.write([rows.pop()], form)
    output.show_rows(rows, form, _OF_MEMBER, wide=_WIDE)
    if not total:
        output.complain("there is no such member")
    elif has_more:
        output.complain(f"there are more than these {count:,}; --count shows more, export all")


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


_OF_MEMBER: output.Columns = {
    "id": "id",
    "when": lambda row: output.text(row["schedule"] or row["at"]),
    "next due": lambda row: "claimed" if row["claimed"] else output.short_time(row["nextDueTime"]),
    "state": "state",
    "payload": lambda row: "" if row["payload"] is None else _json(row["payload"]),
}
_WIDE: output.Columns = {"time zone": "timeZone", "created": "createdTime", "etag": "etag"}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _show_member(row: output.Row, form: str) -> None:
    """Show a member, or the set, with one line for each field of the API that is not empty."""
    cells = {
        name: value if isinstance(value, str) else _json(value)
        for name, value in row.items()
        if value not in (None, "", False)
    }
    output.show_row(row, form, cells)


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
@click.option("--suspend", is_flag=True, help="Suspend it until it is put without this.")
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
) -> None:
    """Create or replace the member ID of SET; without ID, create a one-off with a new id.

    Example: duepoint set put reminders order-17 -n shop --delay 24h --payload '{"order": 17}'
    """
    if at is not None:
        at_us = instants.parse_us(at, zone=time_zone or "Etc/UTC", name="--at")
        at, time_zone = instants.utc_text(at_us), None
    given = {"--schedule": schedule, "--at": at, "--delay": delay}
    written = [name for name, value in given.items() if value is not None]
    if len(written) != 1:
        why = f"there is {' and '.join(written)}" if written else "none of them is there"
        raise errors.InvalidSetting(", ".join(given), f"write exactly one of them; {why}")
    spec = client.MemberSpec(
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
    _show_member(msgspec.to_builtins(made), form)


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
) -> None:
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
            return
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
            break
    if output.is_data(form):
        output.write([{name.lower(): count for name, count in counts.items()}], form)
    else:
        absent = f", {counts['Absent']:,} were not there" if counts["Absent"] else ""
        refused = f", {counts['Refused']:,} could not be" if counts["Refused"] else ""
        output.say(f"{counts['Removed']:,} deleted{absent}{refused}")
    if counts["Refused"] or not counts["Removed"]:
        raise click.exceptions.Exit(output.FAILED)


#: The most bytes in a row, which is the API's limit.
_LONGEST_ROW = 64 * 1024
#: How many refused rows to show if there is no file for them.
_SHOWN = 5
#: How long the API may be unavailable before the import gives up.
_PATIENCE = client.Retries(attempts=10_000, longest_seconds=5.0, total_seconds=300.0)
_OUTCOMES = ("Created", "Replaced", "Unchanged", "Refused")


# -- export --------------------------------------------------------------------------------------


@sets.command("export")
@apisession.of_set
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@options.output_format
@apisession.asking
async def export(asked: client.AsyncSetClient, *, file: Path, form: str) -> None:
    """Write all members of SET to FILE, a row of JSON a line; - is standard output.

    FILE is always whole: an export that fails leaves the former one as it was.

    Example: duepoint set export reminders -n shop reminders.ndjson
    """
    if str(file) == "-":
        rows, _ = await _write_rows(asked, sys.stdout.buffer)
        output.complain(f"{rows:,} members exported")
        return
    began = time.monotonic()
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("wb") as data:
            rows, size = await _write_rows(asked, data)
        part.replace(file)
    except OSError as error:
        raise errors.InvalidSetting("FILE", f"{file}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    seconds = time.monotonic() - began
    if output.is_data(form):
        output.write([{"members": rows, "bytes": size, "seconds": round(seconds, 3)}], form)
    else:
        took = f"{output.size(size)} in {output.span(seconds)}"
        output.say(f"{rows:,} members exported to {file}, {took}")


async def _write_rows(asked: client.AsyncSetClient, data: BinaryIO) -> tuple[int, int]:
    """Write all members; return the numbers of members and of bytes."""
    rows, size, cursor = 0, 0, ""
    with output.bar("export", (await asked.info()).members) as advance:
        while True:
            page = await asked.export(cursor, limit=_PAGE)
            lines = b"".join(client.row_of(member) + b"\n" for member in page.items)
            data.write(lines)
            rows, size = rows + len(page.items), size + len(lines)
            advance(rows, f"{rows:,} members")
            if not (cursor := page.next):
                return rows, size


# -- import --------------------------------------------------------------------------------------


@sets.command("import")
@apisession.of_set
@click.argument("file", metavar="FILE", type=click.File("rb"))
@click.option(
    "--refused", metavar="FILE", type=click.File("wb", lazy=False),
    help="Write refused rows there, a line each, with their reason.",
)  # fmt: skip
@click.option(
    "--ignore", "ignored", metavar="CODE", multiple=True,
    help="Rows refused with this code are no failure, such as TooLate. May be repeated.",
)  # fmt: skip
@options.output_format
@apisession.asking
async def import_rows(
    asked: client.AsyncSetClient,
    *,
    file: BinaryIO,
    refused: BinaryIO | None,
    ignored: tuple[str, ...],
    form: str,
) -> None:
    """Write the rows of FILE, as export gives them, to SET; - is standard input.

    Interrupted, it can be repeated: rows that are there already stay as they are.

    Example: duepoint set import reminders -n shop reminders.ndjson
    """
    began = time.monotonic()
    counts, codes = dict.fromkeys(_OUTCOMES, 0), collections.Counter[str]()
    sent: collections.deque[tuple[int, bytes]] = collections.deque()  # without an answer yet

    asked.retries = _PATIENCE
    with output.bar("import", None) as advance:
        async for answer in asked.upsert(_rows(file, sent)):
            number, line = sent.popleft()
            counts["Refused" if answer.is_refused else answer.outcome] += 1
            if (error := answer.error) is not None:
                codes[error.code] += 1
                if refused is not None:
                    row = {"line": number, "error": error, "row": line.decode("utf-8", "replace")}
                    refused.write(msgspec.json.encode(row) + b"\n")
                elif codes.total() <= _SHOWN:
                    who = f" ({answer.id})" if answer.id else ""
                    where = f"{error.field}: " if error.field else ""
                    output.complain(f"line {number}{who}: {where}{error.detail} ({error.code})")
                    if codes.total() == _SHOWN:
                        output.complain(
                            "further refused rows are counted; --refused FILE takes them all"
                        )
            done = sum(counts.values())
            if done % _PAGE == 0:
                advance(done, f"{done:,} rows{f', {codes.total():,} refused' if codes else ''}")
    seconds, rows = time.monotonic() - began, sum(counts.values())
    if output.is_data(form):
        row = {"rows": rows, **{name.lower(): count for name, count in counts.items()}}
        more = {"refusedCodes": dict(codes.most_common()), "seconds": round(seconds, 3)}
        output.write([row | more], form)
    else:
        said = ", ".join(f"{count:,} {name.lower()}" for name, count in counts.items())
        why = ", ".join(f"{code} {count:,}" for code, count in codes.most_common())
        said += f" ({why})" if why else ""
        output.say(f"{rows:,} rows: {said}; {output.span(seconds)}, {rows / seconds:,.0f} rows/s")
    if set(codes) - set(ignored):
        raise click.exceptions.Exit(output.FAILED)


def _rows(source: BinaryIO, sent: collections.deque[tuple[int, bytes]]) -> Iterator[bytes]:
    """Yield the rows of a file; each also goes to ``sent``, with its line number."""
    for number, line in enumerate(iter(lambda: source.readline(_LONGEST_ROW + 1), b""), 1):
        if len(line) > _LONGEST_ROW:
            message = f"line {number} is longer than {_LONGEST_ROW} bytes"
            raise errors.InvalidSetting("FILE", message)
        if row := line.strip():
            sent.append((number, row))
            yield row
