"""``duepoint set import``: rows of NDJSON become members.

The file is read and sent a batch at a time, a few batches at once, so its size does not matter. Up
to which byte all is done stands in the checkpoint; the same command again goes on from there. Every
row may be written again without harm (the API answers ``Unchanged``), so an import can also be
repeated from the start. A row that is refused stops none of the others: it is counted, and written
with its reason to ``--refused``.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from duepoint import client, errors
from duepoint.cli import apisession, options, output, progress
from duepoint.cli.sets import checkpoints
from duepoint.client import batches

#: Requests under way at once: enough that the API never waits for us.
_AT_ONCE = 4
_EVERY_SECONDS = 1.0
#: A row may have so many bytes; the API takes no larger ones.
_LONGEST_ROW = 64 * 1024
#: Refused rows that are shown when there is no file for them.
_SHOWN = 5
#: How long the API may be away before the import gives up.
_PATIENCE = client.Retries(attempts=10_000, longest_seconds=5.0, total_seconds=300.0)
_OUTCOMES = ("Created", "Replaced", "Unchanged")


@click.command("import")
@apisession.of_set
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@checkpoints.option
@click.option("--restart", is_flag=True, help="Begin anew where there is a checkpoint.")
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
async def command(
    asked: client.AsyncSetClient,
    *,
    file: Path,
    checkpoint: Path | None,
    restart: bool,
    refused: Path | None,
    ignored: tuple[str, ...],
    form: str,
) -> int:
    """Write the rows of FILE, as export gives them, to SET; - is standard input.

    Interrupted, the same command goes on where it was.
    """
    patient = asked.with_retries(_PATIENCE)
    with contextlib.ExitStack() as files:
        source = files.enter_context(_opened(file))
        place = checkpoints.beside(file, checkpoint, restart=restart)
        run = _Import(patient, source, place, restart=restart)
        run.refusals = _Refusals(refused, files, known=run.known_codes)
        await run.run()
    return run.report(form, ignored)


def _opened(file: Path) -> BinaryIO:
    if str(file) == "-":
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as error:
        raise errors.InvalidSetting("FILE", f"{file}: {error.strerror}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Some rows of the file, each with its line number, and where what follows them begins."""

    lines: list[bytes]
    numbers: list[int]
    end: int
    end_line: int
    answers: list[client.RowAnswer] = field(default_factory=list)


class _Refusals:
    """Refused rows; ``known`` counts those of the command that this one continues."""

    def __init__(
        self, path: Path | None, files: contextlib.ExitStack, *, known: dict[str, int]
    ) -> None:
        self.codes = collections.Counter(known)
        self._shown = 0
        self._file: BinaryIO | None = None
        if path is None:
            return
        try:
            self._file = files.enter_context(path.open("ab" if known else "wb"))
        except OSError as error:
            raise errors.InvalidSetting("--refused", f"{path}: {error.strerror}") from None

    def add(self, number: int, line: bytes, answer: client.RowAnswer) -> None:
        """Note one."""
        error = answer.error
        assert error is not None  # noqa: S101 - only refused rows come here
        self.codes[error.code] += 1
        if self._file is not None:
            row = {"line": number, "error": error, "row": line.decode("utf-8", "replace")}
            self._file.write(msgspec.json.encode(row) + b"\n")
        elif self._shown < _SHOWN:
            self._shown += 1
            who = f" ({answer.id})" if answer.id else ""
            where = f"{error.field}: " if error.field else ""
            output.complain(f"line {number}{who}: {where}{error.detail} ({error.code})")
            if self._shown == _SHOWN:
                output.complain("further refused rows are counted; --refused FILE takes them all")


class _Import:
    """One import of a file.

    Parts are sent a few at once and finish in any order; the checkpoint moves over those that are
    done from the beginning without a gap.
    """

    refusals: _Refusals

    def __init__(
        self,
        asked: client.AsyncSetClient,
        source: BinaryIO,
        checkpoint: Path | None,
        *,
        restart: bool,
    ) -> None:
        self._asked = asked
        self._source = source
        self._checkpoint = checkpoint
        self._began = time.monotonic()
        self._saved_at = self._began
        self._at = checkpoints.Checkpoint(work=())
        self._line = 0
        self._size: int | None = None
        if checkpoint is not None:
            about = os.fstat(source.fileno())
            self._size = about.st_size
            # Another content under the same name must not be continued in the middle.
            data = f"{about.st_size} bytes of {about.st_mtime_ns}"
            work = ("import", *apisession.identity(asked), data)
            found = None if restart else checkpoints.read(checkpoint, work)
            self._at = found or checkpoints.Checkpoint(work=work)
            source.seek(self._at.offset)
        self._line, self._offset = self._at.line, self._at.offset
        self.continued = self._at.rows
        self.known_codes = dict(self._at.codes)

    async def run(self) -> None:
        """Send what is left, and remove the checkpoint."""
        under_way: collections.deque[asyncio.Task[_Part]] = collections.deque()
        with progress.bar("import", self._size) as advance:
            try:
                while part := await asyncio.to_thread(self._next_part):
                    under_way.append(asyncio.create_task(self._send(part)))
                    if len(under_way) == _AT_ONCE:
                        self._note(await under_way.popleft(), advance)
                while under_way:
                    self._note(await under_way.popleft(), advance)
            finally:
                for task in under_way:
                    task.cancel()
                await asyncio.gather(*under_way, return_exceptions=True)
                self._save()
        if self._checkpoint is not None:
            self._checkpoint.unlink(missing_ok=True)

    def _next_part(self) -> _Part | None:
        """The rows of the next request; None at the end of the file."""
        lines: list[bytes] = []
        numbers: list[int] = []
        size = 0
        while len(lines) < batches.ROWS and size < batches.BYTES:
            line = self._source.readline(_LONGEST_ROW + 1)
            if not line:
                break
            self._line += 1
            self._offset += len(line)
            if len(line) > _LONGEST_ROW:
                raise errors.InvalidSetting(
                    "FILE", f"line {self._line} is longer than {_LONGEST_ROW} bytes"
                )
            if row := line.strip():
                lines.append(row)
                numbers.append(self._line)
                size += len(row) + 1
        if not lines:
            return None
        return _Part(lines=lines, numbers=numbers, end=self._offset, end_line=self._line)

    async def _send(self, part: _Part) -> _Part:
        part.answers.extend(await self._asked.send_rows(part.lines))
        return part

    def _note(self, part: _Part, advance: progress.Advance) -> None:
        """Count what became of rows, in the order of the file."""
        counts = self._at.counts
        for number, line, answer in zip(part.numbers, part.lines, part.answers, strict=True):
            outcome = "Refused" if answer.is_refused else answer.outcome
            counts[outcome] = counts.get(outcome, 0) + 1
            if answer.is_refused:
                self.refusals.add(number, line, answer)
        self._at.offset, self._at.line = part.end, part.end_line
        self._at.rows += len(part.lines)
        refused = f", {counts['Refused']:,} refused" if counts.get("Refused") else ""
        advance(self._at.offset, f"{self._at.rows:,} rows{refused}")
        if time.monotonic() - self._saved_at >= _EVERY_SECONDS:
            self._save()

    def _save(self) -> None:
        """Of what has come to nothing there is no checkpoint: the next command may be another."""
        if self._checkpoint is not None and not self._at.offset:
            self._checkpoint.unlink(missing_ok=True)
        elif self._checkpoint is not None:
            self._at.codes = dict(self.refusals.codes)
            checkpoints.write(self._checkpoint, self._at)
        self._saved_at = time.monotonic()

    def report(self, form: str, ignored: tuple[str, ...]) -> int:
        """Say what became of the rows; the exit code."""
        seconds = time.monotonic() - self._began
        counts = {name: self._at.counts.get(name, 0) for name in (*_OUTCOMES, "Refused")}
        codes = dict(self.refusals.codes.most_common())
        if output.is_data(form):
            row = {
                "rows": self._at.rows,
                **{name.lower(): count for name, count in counts.items()},
                "refusedCodes": codes,
                "continuedFrom": self.continued,
                "seconds": round(seconds, 3),
            }
            output.write([row], form)
        else:
            parts = ", ".join(f"{count:,} {name.lower()}" for name, count in counts.items())
            why = f" ({', '.join(f'{code} {count:,}' for code, count in codes.items())})"
            before = f", {self.continued:,} of them before" if self.continued else ""
            rate = (self._at.rows - self.continued) / seconds
            output.say(
                f"{self._at.rows:,} rows{before}: {parts}{why if codes else ''};"
                f" {output.span(seconds)}, {rate:,.0f} rows/s"
            )
        return output.FAILED if set(codes) - set(ignored) else 0
