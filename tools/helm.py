"""helm as this repository uses it: from the pinned Go module, on charts in a folder.

Only what `run` is given talks to a cluster. A refusal of helm is an error with helm's own words.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tools.devcluster import binaries
from tools.devcluster.errors import DevClusterError

#: A helm built from its module has no recent default.
KUBE_VERSION = "v1.36.0"


def program() -> Path:
    """The one that the environment names, or else the one in the cache, built if missing."""
    ready = os.environ.get("DUEPOINT_TOOL_HELM")
    return Path(ready) if ready else binaries.ensure(["helm"])["helm"]


def template(chart: Path, *, release: str, namespace: str, options: tuple[str, ...]) -> str:
    """What a chart renders, as YAML text of many documents."""
    return run(
        "template",
        release,
        str(chart),
        f"--namespace={namespace}",
        f"--kube-version={KUBE_VERSION}",
        *options,
    )


def run(*arguments: str) -> str:
    """Standard output of one command."""
    result = subprocess.run(
        [str(program()), *arguments], capture_output=True, text=True, check=False
    )
    if result.returncode:
        said = (result.stderr or result.stdout).strip()
        raise DevClusterError(f"helm {arguments[0]} failed: {said}")
    return result.stdout
