"""``duepoint set export`` and ``set import``: all members of a set as NDJSON, one row per line.

``import`` and the API's bulk requests accept these lines. An export reads page after page, and each
page is consistent in itself. Members that are written meanwhile may or may not be included; a
member that does not change is included exactly once. A row of an import may be written again
without harm (the API answers ``Unchanged``), so an interrupted import can be repeated. A refused
row does not stop the others: it is counted, and written with its reason to ``--refused``.
"""

from __future__ import annotations

import collections
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from duepoint import client, errors
from duepoint.cli import apisession, options, output

_PAGE = 1_000
#: The most bytes in a row, which is the API's limit.
_LONGEST_ROW = 64 * 1024
#: How many refused rows to show if there is no file for them.
_SHOWN = 5
#: How long the API may be unavailable before the import gives up.
_PATIENCE = client.Retries(attempts=10_000, longest_seconds=5.0, total_seconds=300.0)
_OUTCOMES = ("Created", "Replaced", "Unchanged", "Refused")

_file = click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))


# -- export --------------------------------------------------------------------------------------


@click.command("export")
@apisession.of_set
@_file
@options.output_format
@apisession.asking
async def export(asked: client.AsyncSetClient, *, file: Path, form: str) -> int:
    """Write all members of SET to FILE, a row of JSON a line; - is standard output.

    FILE is always whole: an export that fails leaves the former one as it was.

    Example: duepoint set export reminders -n shop reminders.ndjson
    """
    if str(file) == "-":
        rows, _ = await _write_rows(asked, sys.stdout.buffer)
        output.complain(f"{rows:,} members exported")
        return 0
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
        return 0
    took = f"{output.size(size)} in {output.span(seconds)}"
    output.say(f"{rows:,} members exported to {file}, {took}")
    return 0


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


@click.command("import")
@apisession.of_set
@_file
@click.option(
    "--refused", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
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
    file: Path,
    refused: Path | None,
    ignored: tuple[str, ...],
    form: str,
) -> int:
    """Write the rows of FILE, as export gives them, to SET; - is standard input.

    Interrupted, it can be repeated: rows that are there already stay as they are.

    Example: duepoint set import reminders -n shop reminders.ndjson
    """
    began = time.monotonic()
    counts, codes = dict.fromkeys(_OUTCOMES, 0), collections.Counter[str]()
    sent: collections.deque[tuple[int, bytes]] = collections.deque()  # without an answer yet

    def read(source: BinaryIO) -> Iterator[bytes]:
        for number, line in enumerate(iter(lambda: source.readline(_LONGEST_ROW + 1), b""), 1):
            if len(line) > _LONGEST_ROW:
                message = f"line {number} is longer than {_LONGEST_ROW} bytes"
                raise errors.InvalidSetting("FILE", message)
            if row := line.strip():
                sent.append((number, row))
                yield row

    with contextlib.ExitStack() as files:
        source = sys.stdin.buffer if str(file) == "-" else _opened(files, "FILE", file, "rb")
        refusals = None if refused is None else _opened(files, "--refused", refused, "wb")
        advance = files.enter_context(output.bar("import", None))
        async for answer in asked.with_retries(_PATIENCE).upsert(read(source)):
            number, line = sent.popleft()
            counts["Refused" if answer.is_refused else answer.outcome] += 1
            if answer.error is not None:
                codes[answer.error.code] += 1
                _note_refusal(number, line, answer, refusals, codes.total())
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
    return output.FAILED if set(codes) - set(ignored) else 0


def _opened(files: contextlib.ExitStack, name: str, path: Path, mode: str) -> BinaryIO:
    try:
        return files.enter_context(path.open(mode))  # type: ignore[return-value]  # it is binary
    except OSError as error:
        raise errors.InvalidSetting(name, f"{path}: {error.strerror}") from None


def _note_refusal(
    number: int, line: bytes, answer: client.RowAnswer, refusals: BinaryIO | None, count: int
) -> None:
    """Write a refused row to the file for refused rows, or show it if it is one of the first."""
    error = answer.error
    if refusals is not None:
        row = {"line": number, "error": error, "row": line.decode("utf-8", "replace")}
        refusals.write(msgspec.json.encode(row) + b"\n")
    elif error is not None and count <= _SHOWN:
        who = f" ({answer.id})" if answer.id else ""
        where = f"{error.field}: " if error.field else ""
        output.complain(f"line {number}{who}: {where}{error.detail} ({error.code})")
        if count == _SHOWN:
            output.complain("further refused rows are counted; --refused FILE takes them all")
