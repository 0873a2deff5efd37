"""``duepoint set export`` and ``set import``: every member of a set as NDJSON, one row a line.

A line is what ``import`` and the API's bulk requests take. Pages of an export are read one after
the other, each consistent in itself; members that are written meanwhile may or may not be among
them, and one that stays as it is the whole time is there exactly once. An import sends a few
batches at once. Every row may be written again without harm (the API answers ``Unchanged``), so an
import that was interrupted is repeated. A row that is refused stops none of the others: it is
counted, and written with its reason to ``--refused``.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from duepoint import client, errors
from duepoint.cli import apisession, options, output
from duepoint.client import calls

_PAGE = 1_000
#: Requests under way at once: enough that the API never waits for us.
_AT_ONCE = 4
#: A row may have so many bytes; the API takes no larger ones.
_LONGEST_ROW = 64 * 1024
#: Refused rows that are shown when there is no file for them.
_SHOWN = 5
#: How long the API may be away before the import gives up.
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
    """Write all members; return how many they were, and how many bytes."""
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
    with contextlib.ExitStack() as files:
        source = sys.stdin.buffer if str(file) == "-" else _opened(files, "FILE", file, "rb")
        refusals = None if refused is None else _opened(files, "--refused", refused, "wb")
        run = _Import(asked.with_retries(_PATIENCE), source, refusals)
        await run.run()
    return run.report(form, ignored)


def _opened(files: contextlib.ExitStack, name: str, path: Path, mode: str) -> BinaryIO:
    try:
        return files.enter_context(path.open(mode))  # type: ignore[return-value]  # it is binary
    except OSError as error:
        raise errors.InvalidSetting(name, f"{path}: {error.strerror}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Some rows of the file, each with its line number."""

    lines: list[bytes]
    numbers: list[int]


class _Import:
    """One import of a file: parts are sent a few at once, and counted in the file's order."""

    def __init__(
        self, asked: client.AsyncSetClient, source: BinaryIO, refusals: BinaryIO | None
    ) -> None:
        self._asked = asked
        self._source = source
        self._refusals = refusals
        self._began = time.monotonic()
        self._line = 0
        self._counts = dict.fromkeys(_OUTCOMES, 0)
        self._codes: collections.Counter[str] = collections.Counter()

    async def run(self) -> None:
        """Send all rows."""
        under_way: collections.deque[tuple[_Part, asyncio.Task[list[client.RowAnswer]]]]
        under_way = collections.deque()
        with output.bar("import", None) as advance:
            try:
                while part := await asyncio.to_thread(self._next_part):
                    sending = self._asked.send_rows(part.lines)
                    under_way.append((part, asyncio.create_task(sending)))
                    if len(under_way) == _AT_ONCE:
                        await self._note(*under_way.popleft(), advance)
                while under_way:
                    await self._note(*under_way.popleft(), advance)
            finally:
                for _, task in under_way:
                    task.cancel()
                await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)

    def _next_part(self) -> _Part | None:
        """The rows of the next request; None at the end of the file."""
        lines: list[bytes] = []
        numbers: list[int] = []
        size = 0
        while len(lines) < calls.ROWS and size < calls.BYTES:
            line = self._source.readline(_LONGEST_ROW + 1)
            if not line:
                break
            self._line += 1
            if len(line) > _LONGEST_ROW:
                raise errors.InvalidSetting(
                    "FILE", f"line {self._line} is longer than {_LONGEST_ROW} bytes"
                )
            if row := line.strip():
                lines.append(row)
                numbers.append(self._line)
                size += len(row) + 1
        return _Part(lines=lines, numbers=numbers) if lines else None

    async def _note(
        self, part: _Part, sent: asyncio.Task[list[client.RowAnswer]], advance: output.Advance
    ) -> None:
        """Count what became of rows."""
        for number, line, answer in zip(part.numbers, part.lines, await sent, strict=True):
            self._counts["Refused" if answer.is_refused else answer.outcome] += 1
            if answer.is_refused:
                self._note_refusal(number, line, answer)
        done = sum(self._counts.values())
        refused = f", {self._counts['Refused']:,} refused" if self._counts["Refused"] else ""
        advance(done, f"{done:,} rows{refused}")

    def _note_refusal(self, number: int, line: bytes, answer: client.RowAnswer) -> None:
        error = answer.error
        assert error is not None  # noqa: S101 - only refused rows come here
        self._codes[error.code] += 1
        if self._refusals is not None:
            row = {"line": number, "error": error, "row": line.decode("utf-8", "replace")}
            self._refusals.write(msgspec.json.encode(row) + b"\n")
        elif self._codes.total() <= _SHOWN:
            who = f" ({answer.id})" if answer.id else ""
            where = f"{error.field}: " if error.field else ""
            output.complain(f"line {number}{who}: {where}{error.detail} ({error.code})")
            if self._codes.total() == _SHOWN:
                output.complain("further refused rows are counted; --refused FILE takes them all")

    def report(self, form: str, ignored: tuple[str, ...]) -> int:
        """Say what became of the rows; return the exit code."""
        seconds = time.monotonic() - self._began
        rows, codes = sum(self._counts.values()), dict(self._codes.most_common())
        if output.is_data(form):
            row = {
                "rows": rows,
                **{name.lower(): count for name, count in self._counts.items()},
                "refusedCodes": codes,
                "seconds": round(seconds, 3),
            }
            output.write([row], form)
        else:
            parts = ", ".join(f"{count:,} {name.lower()}" for name, count in self._counts.items())
            why = f" ({', '.join(f'{code} {count:,}' for code, count in codes.items())})"
            rate = f"{rows / seconds:,.0f} rows/s"
            output.say(
                f"{rows:,} rows: {parts}{why if codes else ''}; {output.span(seconds)}, {rate}"
            )
        return output.FAILED if set(codes) - set(ignored) else 0
