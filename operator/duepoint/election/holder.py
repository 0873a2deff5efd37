"""The name on the Lease, kept for the process that follows in the same place.

A leader that is killed leaves its name on the Lease, and others wait until it can no longer trust
in that. A container that is started again in the same Pod need not: the name stands in a file that
its process keeps locked, and the kernel takes a lock away only when the process has ended. So the
one that gets the lock goes on under the name in the file. One that does not get it, such as a
second process that was started by hand, has another name and waits like everybody.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import structlog

_log = structlog.get_logger(__name__)

#: Longest name that is read from the file.
_MOST_BYTES = 512


def unique(name: str) -> str:
    """An identity that no other process has, from the name of a replica."""
    return f"{name}_{secrets.token_hex(5)}"


def kept(name: str, file: Path) -> str:
    """The identity in this file, where its former process has ended; else a new one.

    The lock is held until this process ends. A file that cannot be used costs the quick takeover.
    """
    fresh = unique(name)
    import fcntl  # noqa: PLC0415 - there is none outside Unix

    try:
        opened = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)  # and never closed
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.pread(opened, _MOST_BYTES, 0).decode(errors="replace")
        if found.startswith(f"{name}_") and found.isprintable():
            return found
        os.ftruncate(opened, 0)
        os.pwrite(opened, fresh.encode(), 0)
    except OSError as error:
        _log.warning("the name on the Lease is not kept", file=str(file), error=error.strerror)
    return fresh
