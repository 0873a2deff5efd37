"""Run processes as a container does: a user without a name or a home, and a minimal environment.

A user namespace makes us such a user, who owns our files. If the machine allows none, these tests
are skipped, and those on a real node remain.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

#: A uid as OpenShift chooses them: no passwd file has an entry for it.
_UID = "1000740000"
_UNSHARE = ("unshare", "--user", f"--map-user={_UID}", "--map-group=0")


def _is_allowed() -> bool:
    command = (*_UNSHARE, "true")
    return bool(
        shutil.which("unshare")
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


#: The mark of a test that needs such a user.
needed = pytest.mark.skipif(not _is_allowed(), reason="this machine allows us no user namespace")


def prefix(*kept: str) -> tuple[str, ...]:
    """Return a command prefix that switches user and drops all variables but PATH and these.

    The variables that a test sets for the command itself stay.
    """
    ours = [name for name in os.environ if name not in {"PATH", *kept}]
    return (*_UNSHARE, "env", *(f"--unset={name}" for name in ours))
