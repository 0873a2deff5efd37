"""The plugin for krew: an archive with `kubectl-duepoint`, and the manifest by which krew finds it.

The command is a Python package. So the archive has the wheel, the lock file with the hash of every
library, and a program of a few lines that makes an environment of them at its first use: in the
user's cache, by the Python that is there. The manifest names the archive's address and checksum.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import yaml

from tools.release import archives

MANIFEST = "duepoint.krew.yaml"
PROGRAM = "kubectl-duepoint"
LOCK = "requirements-cli.lock"
LICENCE = "LICENSE"
#: Stands for the releases' page where a release is made without `--repository-url`.
_NOWHERE = "https://duepoint.dev"
_LAUNCHER = """\
#!/bin/sh
# kubectl-duepoint @VERSION@: makes its environment at the first use, from the files beside it.
set -eu
here=$(dirname "$(readlink -f "$0" 2>/dev/null || python3 -c \\
  'import os, sys; print(os.path.realpath(sys.argv[1]))' "$0")")
home=${XDG_CACHE_HOME:-$HOME/.cache}/duepoint/kubectl-@VERSION@
if [ ! -e "$home/complete" ]; then
  python=${DUEPOINT_PYTHON:-python3}
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "kubectl duepoint needs Python 3.11 or later; set DUEPOINT_PYTHON to it" >&2
    exit 2
  fi
  echo "kubectl duepoint: making its environment in $home, once" >&2
  rm -rf "$home"
  "$python" -m venv "$home"
  "$home/bin/pip" install --quiet --disable-pip-version-check --require-hashes \\
    -r "$here/@LOCK@"
  "$home/bin/pip" install --quiet --disable-pip-version-check --no-deps "$here/@WHEEL@"
  touch "$home/complete"
fi
exec "$home/bin/kubectl-duepoint" "$@"
"""


def write(folder: Path, sources: Path, *, version: str, repository_url: str, epoch: int) -> Path:
    """Make archive and manifest of the wheel in the folder; return the archive."""
    [wheel] = folder.glob("*.whl")
    words = {"@VERSION@": version, "@WHEEL@": wheel.name, "@LOCK@": LOCK}
    launcher = _LAUNCHER
    for word, instead in words.items():
        launcher = launcher.replace(word, instead)
    files = {
        PROGRAM: launcher.encode(),
        wheel.name: wheel.read_bytes(),
        LOCK: (sources / LOCK).read_bytes(),
        LICENCE: (sources / LICENCE).read_bytes(),
    }
    archive = folder / f"{PROGRAM}-{version}.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o755 if name == PROGRAM else 0o644
            made.addfile(member, io.BytesIO(content))
    archives.normalised(archive, epoch=epoch)
    found = _manifest(version, archive, repository_url or _NOWHERE)
    (folder / MANIFEST).write_text(yaml.safe_dump(found, sort_keys=False, width=100))
    return archive


def _manifest(version: str, archive: Path, repository_url: str) -> dict[str, Any]:
    """What krew reads."""
    base = repository_url.removesuffix(".git").rstrip("/")
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "duepoint"},
        "spec": {
            "version": f"v{version}",
            "homepage": base,
            "shortDescription": "Explain, forecast and handle Duepoint Schedules",
            "description": (
                "Says why a Schedule does not run and what to do next, lists and describes"
                " Schedules, suspends, resumes and triggers them, forecasts the load of the coming"
                " days, and checks manifests and installations of Duepoint.\n"
            ),
            "caveats": (
                "Needs Python 3.11 or later. The first use makes an environment in"
                " ~/.cache/duepoint from the Python package index; every library is checked by its"
                " hash.\n"
            ),
            "platforms": [
                {
                    "selector": {
                        "matchExpressions": [
                            {"key": "os", "operator": "In", "values": ["darwin", "linux"]}
                        ]
                    },
                    "uri": f"{base}/releases/download/v{version}/{archive.name}",
                    "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                    "bin": PROGRAM,
                }
            ],
        },
    }
