"""The plugin for krew: an archive with `kubectl-duepoint`, and the manifest that krew finds it by.

The command is a Python package. So the archive has the wheel, the lock file with the hash of every
library, and a program of a few lines that makes an environment of them at its first use: in the
user's cache, by the Python that is there. The manifest names the archive's address and checksum.
"""

from __future__ import annotations

import hashlib
import io
import string
import tarfile
from pathlib import Path

from tools.release import archives, sbom

HERE = Path(__file__).parent
MANIFEST = "duepoint.krew.yaml"
PROGRAM = "kubectl-duepoint"
LOCK = "requirements.lock"
LICENCE = "LICENSE"
#: Stands for the releases' page where a release is made without `--repository-url`.
_NOWHERE = "https://duepoint.dev"


def write(folder: Path, sources: Path, *, version: str, repository_url: str, epoch: int) -> Path:
    """Make archive and manifest of the wheel in the folder; return the archive."""
    [wheel] = folder.glob("*.whl")
    words = {"@VERSION@": version, "@WHEEL@": wheel.name, "@LOCK@": LOCK}
    launcher = (HERE / "kubectl-duepoint.sh").read_text()
    for word, instead in words.items():
        launcher = launcher.replace(word, instead)
    files = {
        PROGRAM: launcher.encode(),
        wheel.name: wheel.read_bytes(),
        LOCK: sbom.exported(sources, "cli", "login").encode(),
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
    base = (repository_url or _NOWHERE).removesuffix(".git").rstrip("/")
    manifest = string.Template((HERE / "krew.yaml").read_text()).substitute(
        version=version,
        homepage=base,
        uri=f"{base}/releases/download/v{version}/{archive.name}",
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        program=PROGRAM,
    )
    (folder / MANIFEST).write_text(manifest)
    return archive
