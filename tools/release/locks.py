"""What uv.lock pins for one use, as a requirements file with hashes, or in another form of uv's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.devcluster.errors import DevClusterError

LOCK = "uv.lock"


def exported(sources: Path, *extras: str, options: Sequence[str] = ("--no-emit-project",)) -> str:
    """What `uv export` prints of the product with these extras."""
    command = [sys.executable, "-m", "uv", "export", "--quiet", "--frozen", "--no-header"]
    command += ["--no-dev", *options, *(f"--extra={extra}" for extra in extras)]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DevClusterError(f"uv export failed: {done.stderr.strip()}")
    return done.stdout
