"""A wrapper of helm, built from the pinned Go module, for charts in a folder.

Only commands given to `run` talk to a cluster. If helm fails, the error has helm's own message.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tools.devcluster import binaries
from tools.devcluster.errors import DevClusterError

#: The version given to helm, because one built from its module has no recent default.
KUBE_VERSION = "v1.36.0"


def program() -> Path:
    """Return the helm that the environment names, else the cached one, built if missing."""
    ready = os.environ.get("DUEPOINT_TOOL_HELM")
    return Path(ready) if ready else binaries.ensure(["helm"])["helm"]


def template(chart: Path, *, release: str, namespace: str, options: tuple[str, ...]) -> str:
    """Render a chart, and return YAML text of many documents."""
    return run(
        "template",
        release,
        str(chart),
        f"--namespace={namespace}",
        f"--kube-version={KUBE_VERSION}",
        *options,
    )


def run(*arguments: str) -> str:
    """Run a helm command and return its standard output."""
    result = subprocess.run(
        [str(program()), *arguments], capture_output=True, text=True, check=False
    )
    if result.returncode:
        said = (result.stderr or result.stdout).strip()
        raise DevClusterError(f"helm {arguments[0]} failed: {said}")
    return result.stdout
