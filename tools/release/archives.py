"""Archives whose bytes depend on nothing but their contents.

The program that makes a tar.gz records its time, user and permissions in it. `normalised` packs the
same files again: sorted by name, without owners, with one time for all of them, and only the
execution bit of their permissions.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path


def normalised(path: Path, *, epoch: int) -> None:
    """Rewrite a tar.gz in place; `epoch` is the time of every file in it, in seconds."""
    packed = io.BytesIO()
    with (
        tarfile.open(path, "r:gz") as old,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            content = old.extractfile(member) if member.isfile() else None
            new.addfile(_plain(member, epoch), content)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as zipped:
        zipped.write(packed.getvalue())


def _plain(member: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    is_program = member.isdir() or bool(member.mode & 0o100)
    plain = member.replace(
        mtime=epoch,
        mode=0o755 if is_program else 0o644,
        uid=0,
        gid=0,
        uname="",
        gname="",
        deep=False,
    )
    # They would win over what was just set: setuptools keeps fractions of seconds there.
    plain.pax_headers = {}
    return plain


def unpack(archive: bytes, folder: Path, *, epoch: int) -> None:
    """Unpack a tar into `folder`, with the same permissions and times on every machine."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar.getmembers():
            tar.extract(_plain(member, epoch), folder, filter="fully_trusted")
