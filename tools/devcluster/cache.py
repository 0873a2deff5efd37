"""Finished builds, kept outside the repository so that every clone and every day shares them.

An entry is a folder `NAME-VERSION-FINGERPRINT` with the programs and a manifest of their SHA-256.
The fingerprint covers everything that decides the result, so another pin is another entry.

Invariants: a folder under its final name is complete (it is filled under a temporary name and
renamed); a program whose bytes no longer match its manifest is never handed out, the entry is
thrown away instead; one builder works on an entry at a time, others wait for its result.
What to build and how is left to `binaries`.
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

MANIFEST = "manifest.json"


def directory(environment: Mapping[str, str] = os.environ) -> Path:
    """`$DUEPOINT_CACHE`, else `duepoint` in the user's cache folder (XDG)."""
    if chosen := environment.get("DUEPOINT_CACHE"):
        return Path(chosen).expanduser().absolute()
    if xdg := environment.get("XDG_CACHE_HOME"):
        return Path(xdg) / "duepoint"
    return Path.home() / ".cache" / "duepoint"


def fingerprint(parts: Mapping[str, str]) -> str:
    """Twelve hex digits over named texts; the same texts give the same digits everywhere."""
    text = json.dumps(dict(parts), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def entry(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    """The folder of `key`, built by `build(empty folder)` when it is missing or damaged."""
    with _exclusive(root, key):
        _remove_unfinished(root, key)
        final = root / key
        if final.exists():
            damaged = damaged_files(final)
            if not damaged:
                return final
            progress.say(f"{key}: {', '.join(damaged)} in the cache is damaged; building it again")
            shutil.rmtree(final)
        return _build(root, key, build)


def damaged_files(folder: Path) -> list[str]:
    """Names of files whose bytes differ from their manifest; an unreadable manifest counts."""
    try:
        sums = json.loads((folder / MANIFEST).read_text())["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return [MANIFEST]
    return [name for name, expected in sums.items() if digest(folder / name) != expected]


def _build(root: Path, key: str, build: Callable[[Path], None]) -> Path:
    unfinished = root / f".unfinished-{key}-{os.getpid()}"
    unfinished.mkdir()
    try:
        build(unfinished)
        names = sorted(path.name for path in unfinished.iterdir() if path.is_file())
        sums = {name: digest(unfinished / name) for name in names}
        (unfinished / MANIFEST).write_text(json.dumps({"sha256": sums}, indent=2) + "\n")
        unfinished.rename(root / key)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return root / key


def _remove_unfinished(root: Path, key: str) -> None:
    """What a killed builder left; its lock is gone with it, so nothing writes there."""
    for left in root.glob(f".unfinished-{key}-*"):
        shutil.rmtree(left, ignore_errors=True)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
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
