"""Runs helm on the chart: lint, template, install. The program comes from the development cluster.

`rendered` gives objects as dictionaries, to be read only; `run` is any other command and fails the
test with what helm said, unless the test wants to see a refusal.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "duepoint"
VARIANTS = ("development", "production", "namespaced")
# A helm built from its module knows no default that is recent enough.
KUBE_VERSION = "v1.36.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """The helm binary and, for commands that talk to a server, its kubeconfig."""

    program: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, refused: bool = False, given: str = "") -> str:
        """Standard output; of a refusal, what was said."""
        done = subprocess.run(
            [str(self.program), *arguments],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig or "")},
            capture_output=True,
            text=True,
            check=False,
            input=given,
        )
        assert (done.returncode != 0) == refused, done.stdout + done.stderr
        return done.stderr if refused else done.stdout

    @functools.cache  # noqa: B019  (one instance for the session)
    def rendered(
        self, variant: str, *arguments: str, namespace: str = "duepoint-system"
    ) -> list[dict[str, Any]]:
        text = self.run(
            "template",
            "duepoint",
            str(CHART),
            f"--namespace={namespace}",
            f"--kube-version={KUBE_VERSION}",
            f"--values={values(variant)}",
            "--set=blobKey.existingSecret=duepoint-blob-key",
            *arguments,
        )
        return objects(text)

    def text(
        self,
        values: Mapping[str, Any],
        *,
        namespace: str = "duepoint-system",
        refused: bool = False,
    ) -> str:
        """What exactly these values render, with every object of the release and its tests."""
        return self.run(
            "template",
            "duepoint",
            str(CHART),
            f"--namespace={namespace}",
            f"--kube-version={KUBE_VERSION}",
            "--values=-",
            given=json.dumps(values),
            refused=refused,
        )


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of a rendering."""
    return [thing for thing in yaml.load_all(text, Loader=yaml.CSafeLoader) if thing]


def values(variant: str) -> Path:
    return CHART / "ci" / f"{variant}-values.yaml"


def of_kind(things: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [thing for thing in things if thing["kind"] in kinds]
