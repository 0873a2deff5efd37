"""What uv.lock pins for one use, as a requirements file with hashes, which pip reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.devcluster.errors import DevClusterError

LOCK = "uv.lock"


def exported(sources: Path, *extras: str) -> str:
    """Requirements of the product with these extras, each with who needs it."""
    command = [sys.executable, "-m", "uv", "export", "--quiet", "--frozen", "--no-header"]
    command += ["--no-emit-project", "--no-dev", *(f"--extra={extra}" for extra in extras)]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DevClusterError(f"uv export failed: {done.stderr.strip()}")
    return done.stdout
