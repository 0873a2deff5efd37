"""``duepoint set export``: every member of a set as NDJSON, one row a line.

A line is what ``import`` and the API's bulk requests take. Pages are read one after the other, each
consistent in itself; members that are written meanwhile may or may not be among them, and one that
stays as it is the whole time is there exactly once. Rows go to ``FILE.part``, and a checkpoint says
up to where they are on the disk; the same command again goes on from there. At the end the part
becomes FILE, so a FILE is always whole, and an export that fails leaves the former one as it was.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import click

from duepoint import client, errors
from duepoint.cli import apisession, options, output, progress
from duepoint.cli.sets import checkpoints

_PAGE = 1_000
#: No more often than this is a checkpoint written: each waits for the disk.
_EVERY_SECONDS = 1.0


@click.command("export")
@apisession.of_set
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@checkpoints.option
@click.option("--restart", is_flag=True, help="Begin anew where FILE or its checkpoint is there.")
@options.output_format
@apisession.asking
async def command(
    asked: client.AsyncSetClient,
    *,
    file: Path,
    checkpoint: Path | None,
    restart: bool,
    form: str,
) -> int:
    """Write all members of SET to FILE, a row of JSON a line; - is standard output.

    Interrupted, the same command goes on where it was.
    """
    place = checkpoints.beside(file, checkpoint, restart=restart)
    if place is None:
        rows = await _to_stdout(asked)
        output.complain(f"{rows:,} members exported")
        return 0
    export = _Export(asked, file, place)
    with export.opened(restart=restart) as data:
        await export.run(data)
    export.report(form)
    return 0


class _Export:
    """One export to a file."""

    def __init__(self, asked: client.AsyncSetClient, file: Path, checkpoint: Path) -> None:
        self._asked = asked
        self._file = file
        self._part = file.with_name(f"{file.name}.part")
        self._checkpoint = checkpoint
        self._began = time.monotonic()
        self._continued = 0
        self._saved_at = self._began
        work = ("export", *apisession.identity(asked))
        self._at = checkpoints.Checkpoint(work=work)

    def opened(self, *, restart: bool) -> BinaryIO:
        """The part that is there so far, at the place where it goes on.

        Raises:
            errors.InvalidSetting: the file is there, or the part is none that can be continued.
        """
        try:
            if restart:
                self._checkpoint.unlink(missing_ok=True)
                return self._part.open("wb")
            known = checkpoints.read(self._checkpoint, self._at.work)
            if known is None:
                if self._file.exists():
                    message = f"{self._file} is there already; write --restart to replace it"
                    raise errors.InvalidSetting("FILE", message)
                return self._part.open("wb")
            data = self._part.open("r+b")
            if data.seek(0, os.SEEK_END) < known.offset:
                data.close()
                message = f"{self._part} is shorter than its checkpoint says; write --restart"
                raise errors.InvalidSetting("FILE", message)
            data.truncate(known.offset)
            data.seek(known.offset)
        except OSError as error:
            raise errors.InvalidSetting("FILE", f"{self._part}: {error.strerror}") from None
        self._at, self._continued = known, known.rows
        return data

    async def run(self, data: BinaryIO) -> None:
        """Write what is left of the set; the part becomes the file, and the checkpoint goes."""
        try:
            members = (await self._asked.info()).members
        except client.ClientError:
            if not self._at.offset:  # the next command may be of another set
                self._part.unlink(missing_ok=True)
            raise
        if not self._continued:
            self._save(data)
        with progress.bar("export", max(members, self._at.rows)) as advance:
            try:
                while await self._page(data):
                    advance(self._at.rows, f"{self._at.rows:,} members")
            except BaseException:
                self._save(data)
                raise
        data.flush()
        os.fsync(data.fileno())
        self._checkpoint.unlink(missing_ok=True)
        self._part.replace(self._file)

    async def _page(self, data: BinaryIO) -> bool:
        """Write one page; whether there are more."""
        page = await self._asked.export(self._at.cursor, limit=_PAGE)
        lines = b"".join(client.row_of(member) + b"\n" for member in page.items)
        data.write(lines)
        self._at.offset += len(lines)
        self._at.rows += len(page.items)
        self._at.cursor = page.next
        if page.next and time.monotonic() - self._saved_at >= _EVERY_SECONDS:
            self._save(data)
        return bool(page.next)

    def _save(self, data: BinaryIO) -> None:
        """The checkpoint never speaks of bytes that are not on the disk."""
        data.flush()
        os.fsync(data.fileno())
        checkpoints.write(self._checkpoint, self._at)
        self._saved_at = time.monotonic()

    def report(self, form: str) -> None:
        seconds = time.monotonic() - self._began
        if output.is_data(form):
            row = {"members": self._at.rows, "bytes": self._at.offset,
                   "continuedFrom": self._continued, "seconds": round(seconds, 3)}  # fmt: skip
            output.write([row], form)
            return
        before = f" ({self._continued:,} of them before)" if self._continued else ""
        output.say(
            f"{self._at.rows:,} members exported to {self._file}{before},"
            f" {output.size(self._at.offset)} in {output.span(seconds)}"
        )


async def _to_stdout(asked: client.AsyncSetClient) -> int:
    rows, cursor = 0, ""
    write: Callable[[bytes], int] = sys.stdout.buffer.write
    while True:
        page = await asked.export(cursor, limit=_PAGE)
        for member in page.items:
            write(client.row_of(member) + b"\n")
        rows += len(page.items)
        if not (cursor := page.next):
            return rows
