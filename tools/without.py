"""Run a command as on a machine that lacks some programs.

    python -m tools.without redis-server openssl -- make test

Tests must bring the programs that they need: continuous integration hides those that happen to be
installed. Each folder of PATH that holds one of the programs is replaced by a copy of links to
everything else in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path


def reduced(path: str, hidden: Collection[str], folder: Path) -> str:
    """Return the PATH without these programs; make copies of links in ``folder``."""
    parts = path.split(os.pathsep)
    return os.pathsep.join(
        _without(Path(part), hidden, folder / str(number)) or part
        for number, part in enumerate(parts)
    )


def _without(directory: Path, hidden: Collection[str], copy: Path) -> str | None:
    """Copy a directory that contains one of the programs, without them; None for any other."""
    if not any((directory / name).exists() for name in hidden):
        return None
    copy.mkdir()
    for program in directory.iterdir():
        if program.name not in hidden:
            (copy / program.name).symlink_to(program.absolute())
    return str(copy)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code, or 2 without a command."""
    if "--" not in arguments or arguments[-1] == "--":
        print("usage: python -m tools.without PROGRAM... -- COMMAND...", file=sys.stderr)
        return 2
    at = arguments.index("--")
    hidden, command = frozenset(arguments[:at]), arguments[at + 1 :]
    with tempfile.TemporaryDirectory(prefix="without-") as folder:
        path = reduced(os.environ.get("PATH", os.defpath), hidden, Path(folder))
        # `env` looks for the command on the new PATH; subprocess would take the old one.
        done = subprocess.run(["/usr/bin/env", f"PATH={path}", *command], check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
