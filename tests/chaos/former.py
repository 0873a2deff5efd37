"""The version before this one, for rolling upgrades: the package of a revision, with a label.

It is unpacked into a folder that stands before ours on the path of a process, and runs with the
libraries of this version, as far as those suit it. ``HEAD`` is this version under another label:
processes leave and come as in an upgrade, and formats are the same.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.support.stack import ROOT

NO_GIT = "git, or the repository of this version, is not here"
_PACKAGE = "operator/duepoint"


def unpacked(revision: str, folder: Path) -> Path | None:
    """What to put on the path; None where there is no repository.

    Raises:
        ValueError: there is no such revision.
    """
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return None
    done = subprocess.run(
        ["git", "archive", "--format=tar", revision, _PACKAGE],
        check=False, cwd=ROOT, capture_output=True,
    )  # fmt: skip
    if done.returncode:
        raise ValueError(f"--former {revision}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    package = folder / _PACKAGE / "__init__.py"
    text = package.read_text()
    label = label_of(revision)
    package.write_text(text.replace('__version__ = "', f'__version__ = "{label}+', 1))
    return folder / "operator"


def label_of(revision: str) -> str:
    """What its versions begin with."""
    return f"former.{revision}"
