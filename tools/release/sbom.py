"""The software bill of materials, from uv.lock: CycloneDX with licences.

Licences come from the metadata of the same versions in the environment; a package for another
system has none. The text depends on the lock, the version and the time of the release only.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.devcluster.errors import DevClusterError

LOCK = "uv.lock"
#: The root of the ids; any constant does.
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "sbom.duepoint.dev")


def exported(sources: Path, *extras: str, options: Sequence[str] = ("--no-emit-project",)) -> str:
    """Return the locked requirements of the product with these extras, by `uv export`."""
    command = [sys.executable, "-m", "uv", "export", "--quiet", "--frozen", "--no-header"]
    command += ["--no-dev", *options, *(f"--extra={extra}" for extra in extras)]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DevClusterError(f"uv export failed: {done.stderr.strip()}")
    return done.stdout


def document(sources: Path, *extras: str, version: str, epoch: int) -> dict[str, Any]:
    """Return the bill of the product with these extras; `epoch` is its time in seconds."""
    bill: dict[str, Any] = json.loads(exported(sources, *extras, options=["--format=cyclonedx1.5"]))
    for each in bill["components"]:
        if licence := _licence_of(each["name"], each["version"]):
            each["licenses"] = [licence]
    metadata = bill["metadata"]
    metadata["component"] |= {
        "type": "application", "version": version, "licenses": [{"expression": "Apache-2.0"}]
    }  # fmt: skip
    metadata["timestamp"] = dt.datetime.fromtimestamp(epoch, dt.UTC).isoformat()
    content = json.dumps(bill["components"], sort_keys=True)
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(_NAMESPACE, version + content)}"
    return bill


def _licence_of(name: str, version: str) -> dict[str, Any] | None:
    """Return a package's licence from its metadata, in CycloneDX's form; None = unknown."""
    try:
        about = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    if about["Version"] != version:
        return None
    if "License-Expression" in about:
        return {"expression": about["License-Expression"]}
    classifiers = about.get_all("Classifier") or []
    named = [each.split(" :: ")[-1] for each in classifiers if each.startswith("License ::")]
    # Some packages put the whole text into the field License; its first line is the name.
    named += [line for text in about.get_all("License") or [] for line in text.splitlines()[:1]]
    return {"license": {"name": named[0]}} if named else None
