"""A wrong wall clock for a server, by libfaketime; its monotonic clock stays true.

Debian's package ``libfaketime`` has the library; ``LIBFAKETIME`` names it where it is elsewhere.
A file says how far the clock is off, and is read again each second.
"""

from __future__ import annotations

import os
from pathlib import Path

MISSING = "libfaketime is not installed (Debian's package libfaketime, or LIBFAKETIME=FILE)"
_PLACES = "*/faketime/libfaketimeMT.so.1"
#: The file is read again after a second, on a machine that has time for it.
NOTICED_SECONDS = 6.0


def library() -> Path | None:
    """The library, where there is one."""
    named = os.environ.get("LIBFAKETIME")
    if named:
        return Path(named) if Path(named).is_file() else None
    return next(iter(sorted(Path("/usr/lib").glob(_PLACES))), None)


class FakedClock:
    """The clock of one server.

    Args:
        file: says how far it is off; made here.
        by: the library.
    """

    def __init__(self, file: Path, by: Path) -> None:
        self._file = file
        self._by = by
        self.set_off(0)

    @property
    def prefix(self) -> tuple[str, ...]:
        """A command that becomes the one behind it, with this clock."""
        return (
            "env", f"LD_PRELOAD={self._by}", f"FAKETIME_TIMESTAMP_FILE={self._file}",
            "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
        )  # fmt: skip

    def set_off(self, seconds: int) -> None:
        """So far from the true time."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self._file)
