"""Peers installed in isolation, each from its own registry, into a cache folder outside of here.

One module for the Go ones, one package for Node. Done once; removing the folder undoes it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks import report

_HERE = Path(__file__).parent


def folder() -> Path:
    """Where they are."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "duepoint" / "peers"


def go() -> str:
    """The program with the Go peers; built again when its source is newer."""
    home = folder() / "go"
    program, sources = home / "peers", _HERE / "go"
    newest = max(each.stat().st_mtime for each in sources.iterdir())
    if not program.exists() or program.stat().st_mtime < newest:
        report.say("building the Go peers")
        shutil.copytree(sources, home, dirs_exist_ok=True)
        _run(["go", "mod", "tidy"], home)
        _run(["go", "build", "-o", str(program), "."], home)
    return str(program)


def node() -> str:
    """The script of the Node peer, beside its packages."""
    home = folder() / "node"
    shutil.copytree(_HERE / "node", home, dirs_exist_ok=True)
    if not (home / "node_modules" / "bullmq").exists():
        report.say("installing BullMQ")
        _run(["npm", "install", "--silent", "--ignore-scripts", "--no-audit"], home)
    return str(home / "bullmq.js")


def _run(command: list[str], where: Path | None = None) -> None:
    subprocess.run(command, cwd=where, check=True, stdout=sys.stderr)
