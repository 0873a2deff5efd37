"""How far an export or import has come, in a file beside the data, so that it can go on from there.

The file is replaced as a whole, after the data that it speaks of is on the disk; it is removed when
all is done. It says of which set and which file it is, so that it never continues another one.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from duepoint import errors

option = click.option(
    "--checkpoint",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Unset: FILE.checkpoint.",
)


class Checkpoint(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """Where to go on.

    Attributes:
        work: ``export`` or ``import``, then the server, the set, and what else must be the same.
        cursor: of an export, the page that is next.
        offset: bytes of the data file that are done.
        line: of an import, the last line in these bytes.
        rows: in these bytes.
        counts: of an import, rows by what became of them.
        codes: of an import, refused rows by their code.
    """

    work: tuple[str, ...]
    cursor: str = ""
    offset: int = 0
    line: int = 0
    rows: int = 0
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    codes: dict[str, int] = msgspec.field(default_factory=dict)


def beside(file: Path, wanted: Path | None, *, restart: bool) -> Path | None:
    """Where the checkpoint of a data file is; None where the data is a standard stream.

    Raises:
        errors.InvalidSetting: a standard stream cannot be continued.
    """
    if str(file) != "-":
        return wanted or file.with_name(f"{file.name}.checkpoint")
    if wanted is not None or restart:
        raise errors.InvalidSetting("--checkpoint", "needs a FILE that can be continued")
    return None


def read(path: Path, work: tuple[str, ...]) -> Checkpoint | None:
    """Where an earlier command for the same work stopped; None where there was none.

    Raises:
        errors.InvalidSetting: the file is of other work, or no checkpoint.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.InvalidSetting("--checkpoint", f"{path}: {error.strerror}") from None
    try:
        found = msgspec.json.decode(text, type=Checkpoint)
    except msgspec.DecodeError as error:
        message = f"{path} is no checkpoint ({error}); write --restart, or name another file"
        raise errors.InvalidSetting("--checkpoint", message) from None
    if found.work != work:
        message = (
            f"{path} belongs to another command ({' '.join(found.work)}); write --restart to begin"
            " this one anew, or name another file"
        )
        raise errors.InvalidSetting("--checkpoint", message)
    return found


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the file; raises OSError."""
    newer = path.with_name(f"{path.name}.tmp")
    with newer.open("wb") as opened:
        opened.write(msgspec.json.encode(checkpoint))
        opened.flush()
        os.fsync(opened.fileno())
    newer.replace(path)
