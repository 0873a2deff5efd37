"""Access to this repository's sources as they were before their last change."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tools.devcluster.state import REPOSITORY


def extract_former(folder: Path, *changed: str, whole: bool = False, tags: bool = False) -> None:
    """Extract the newest commit in which these paths differ from this work tree.

    Skip the test if this clone has no such commit. DUEPOINT_UPGRADE_FROM selects another
    revision.

    Args:
        folder: the destination.
        whole: extract the whole repository instead of these paths.
        tags: prefer the newest release.
    """
    try:
        revision = os.environ.get("DUEPOINT_UPGRADE_FROM") or _former(changed, tags=tags)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"there is no history of the repository here: {error}")
    if revision is None:
        pytest.skip("the history that was fetched has no former version; fetch more of it")
    archived = _git("archive", revision, *(() if whole else changed))
    with tarfile.open(fileobj=io.BytesIO(archived)) as archive:
        archive.extractall(folder, filter="data")


def _former(changed: tuple[str, ...], *, tags: bool) -> str | None:
    releases = _git("tag", "--list", "v*", "--sort=-version:refname") if tags else b""
    commits = _git("log", "--format=%H", "--", *changed)
    for revision in (releases + commits).decode().split():
        if _git("diff", "--name-only", revision, "--", *changed):
            return revision
    return None


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, check=True)
    return done.stdout
