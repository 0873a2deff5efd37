"""Processes as a container starts them: a user without a name or a home, and nearly no environment.

A user namespace makes us such a user, who owns what we own; where none is allowed, tests of it are
skipped, and those on a real node remain.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

#: As OpenShift chooses them: no passwd file has an entry for it.
_UID = "1000740000"
_UNSHARE = ("unshare", "--user", f"--map-user={_UID}", "--map-group=0")


def _is_allowed() -> bool:
    command = (*_UNSHARE, "true")
    return bool(
        shutil.which("unshare")
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


#: On a test that needs such a user.
needed = pytest.mark.skipif(not _is_allowed(), reason="this machine allows us no user namespace")


def prefix(*kept: str) -> tuple[str, ...]:
    """What becomes the command behind it, as another user whose only variables are PATH and these.

    Variables that are set for the command itself stay.
    """
    ours = [name for name in os.environ if name not in {"PATH", *kept}]
    return (*_UNSHARE, "env", *(f"--unset={name}" for name in ours))
