"""The cache of finished builds, outside the repository so that all clones share it.

An entry is a folder `NAME-VERSION-FINGERPRINT`. The fingerprint covers everything that affects the
result, so another pin makes another entry. A folder under its final name is complete: the builder
fills it under a temporary name and renames it. One builder works on an entry at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tools.devcluster import progress


def directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return `$DUEPOINT_CACHE`, else `duepoint` in the user's cache folder (XDG)."""
    if chosen := environment.get("DUEPOINT_CACHE"):
        return Path(chosen).expanduser().absolute()
    if xdg := environment.get("XDG_CACHE_HOME"):
        return Path(xdg) / "duepoint"
    return Path.home() / ".cache" / "duepoint"


def fingerprint(parts: Mapping[str, str]) -> str:
    """Return twelve hex digits of named texts, the same everywhere for the same texts."""
    text = json.dumps(dict(parts), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def entry(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of `key`; if it is missing, build it with `build(empty folder)`."""
    with _exclusive(root, key):
        final, unfinished = root / key, root / f".unfinished-{key}"
        shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed builder
        if not final.exists():
            unfinished.mkdir()
            try:
                build(unfinished)
                unfinished.rename(final)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        return final


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"


@contextlib.contextmanager
def _exclusive(root: Path, key: str) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    with (root / f".{key}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"{key}: another process checks or builds it; waiting for its result")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
