"""kubectl as the cluster's administrator: the one client that knows every way to log in.

Only for commands that run a few times per start. Failures are reported in kubectl's own words.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tools.devcluster import external
from tools.devcluster.errors import DevClusterError


class Kubectl:
    """Runs kubectl commands in the current context of `kubeconfig`."""

    def __init__(self, kubeconfig: str) -> None:
        self._command = [external.kubectl(), "--kubeconfig", kubeconfig]

    def run(self, *arguments: str, text: str | None = None) -> str:
        """Run a command, and return its standard output; `text` is its standard input."""
        result = subprocess.run(
            [*self._command, *arguments], input=text, capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise DevClusterError(f"kubectl {arguments[0]}: {result.stderr.strip()[-2000:]}")
        return result.stdout

    def apply(self, manifests: str, *options: str) -> list[str]:
        """Apply YAML text; return a line for each object."""
        ours = ["--server-side", "--force-conflicts", "--field-manager=duepoint-tools"]
        return self.run("apply", *ours, *options, "-f", "-", text=manifests).splitlines()

    def json(self, *arguments: str) -> dict[str, Any]:
        found = json.loads(self.run(*arguments, "-o", "json"))
        assert isinstance(found, dict)
        return found
