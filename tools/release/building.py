"""Makes a release from a commit: a folder of files, the same again byte for byte.

Everything is made from `git archive` of the commit: what is not committed is not part of a release.
Times in archives are the commit's, permissions and order are fixed. The tools that build are those
of uv.lock and of `tools/controlplane`, so their versions are part of the commit too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import helm
from tools.devcluster.errors import DevClusterError
from tools.release import (
    archives,
    images,
    krew,
    manifests,
    provenance,
    sbom,
    versions,
)

CHECKSUMS = "SHA256SUMS"
LOCAL = "https://duepoint.dev/builders/local"
_BASE = re.compile(r"^ARG BASE=\S+@sha256:[0-9a-f]{64}$", re.MULTILINE)
_IMAGE_VALUES = re.compile(r'^image:\n  repository: duepoint\n(?s:.*?)^  digest: ""$', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The request for a release: what to make, and where.

    `image` is a repository without a tag; "" = the chart's own, which has no registry. `builder`
    is a URI. `repository_url` is where the commit can be fetched; "" = unknown.
    """

    folder: Path
    image: str = ""
    push: bool = False
    cosign_key: str = ""
    builder: str = LOCAL
    repository_url: str = ""
    commit: str = "HEAD"


def release(wanted: Wanted, repository: Path) -> Iterator[str]:
    """Make the files; yield a line for each step. DevClusterError names what is missing."""
    commit = _git(repository, "rev-parse", wanted.commit).decode().strip()
    epoch = int(_git(repository, "log", "-1", "--format=%ct", commit))
    folder = wanted.folder.resolve()
    _empty(folder)
    with tempfile.TemporaryDirectory(prefix="duepoint-release-") as temporary:
        sources = Path(temporary) / "sources"
        archives.unpack(_git(repository, "archive", commit), sources, epoch=epoch)
        version = versions.version(sources)
        if wrong := versions.differing(sources):
            raise DevClusterError(
                f"{'; '.join(wrong)}; write {version} with tools.release.versions"
            )
        yield f"Duepoint {version} from {commit}"
        image = f"{wanted.image or 'duepoint'}:{version}"
        digest, said = images.build(
            sources, image=image, folder=folder, push=wanted.push, epoch=epoch
        )
        yield said
        if not _BASE.search((sources / "Dockerfile").read_text()):
            yield "image: its base is named by a tag, which may be another image tomorrow"
        _package(sources, folder, epoch)
        _chart(sources, folder, wanted.image, digest, epoch)
        krew.write(
            folder, sources, version=version, repository_url=wanted.repository_url, epoch=epoch
        )
        chart = sources / "charts" / "duepoint"
        (folder / "install.yaml").write_text(manifests.install_text(chart))
        crds = chart / manifests.CRDS.relative_to(manifests.CHART)
        (folder / "crds.yaml").write_text(crds.read_text())
        (folder / "duepoint.schema.json").write_bytes(_schema(sources))
        bill = sbom.document(sources, "cli", version=version, epoch=epoch)
        (folder / f"duepoint-{version}.cdx.json").write_text(json.dumps(bill, indent=2) + "\n")
        statement = provenance.statement(
            files=sums(folder),
            commit=commit,
            repository=wanted.repository_url,
            locks={sbom.LOCK: _sum(sources / sbom.LOCK)},
            parameters={"version": version, "image": image},
            builder=wanted.builder,
        )
    (folder / "provenance.intoto.json").write_text(statement)
    listed = sums(folder)
    checksums = folder / CHECKSUMS
    checksums.write_text("".join(f"{digest}  {name}\n" for name, digest in listed.items()))
    yield from (f"{digest}  {name}" for name, digest in listed.items())
    pushed = f"{wanted.image or 'duepoint'}@{digest}" if digest else ""
    yield images.sign([checksums], key=wanted.cosign_key, image=pushed)


def _empty(folder: Path) -> None:
    """Empty the folder of an earlier release; refuse to delete anything else."""
    folder.mkdir(parents=True, exist_ok=True)
    there = list(folder.iterdir())
    if there and not (folder / CHECKSUMS).exists():
        raise DevClusterError(f"{folder} has files that are not of a release; name an empty folder")
    for each in there:
        each.unlink()


def _package(sources: Path, folder: Path, epoch: int) -> None:
    """Build the source archive and the wheel."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--outdir={folder}", str(sources)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, umask=0o022
    )
    if done.returncode:
        raise DevClusterError(f"the package cannot be built: {done.stdout[-2000:]}{done.stderr}")
    [archive] = folder.glob("*.tar.gz")
    archives.normalised(archive, epoch=epoch)


def _schema(sources: Path) -> bytes:
    """Return the JSON Schema for editors."""
    command = [sys.executable, "-m", "tools.jobschema.editors"]
    environment = os.environ | {"PYTHONPATH": "operator"}
    return subprocess.run(command, cwd=sources, env=environment, stdout=-1, check=True).stdout


def _chart(sources: Path, folder: Path, image: str, digest: str, epoch: int) -> None:
    """Make the chart's archive; if an image is given, its values name that."""
    chart = sources / "charts" / "duepoint"
    if image:
        values = chart / "values.yaml"
        text, count = _IMAGE_VALUES.subn(
            lambda found: (
                found[0]
                .replace("repository: duepoint", f"repository: {image}")
                .replace('digest: ""', f'digest: "{digest}"')
            ),
            values.read_text(),
        )
        if count != 1:
            raise DevClusterError("charts/duepoint/values.yaml has no image to name; see building")
        values.write_text(text)
    helm.run("package", str(chart), f"--destination={folder}")
    [archive] = folder.glob("*.tgz")
    archives.normalised(archive, epoch=epoch)


def sums(folder: Path) -> dict[str, str]:
    """Return file name -> SHA-256 in hex."""
    return {path.name: _sum(path) for path in sorted(folder.iterdir())}


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(repository: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True, check=False)
    if done.returncode:
        raise DevClusterError(f"git {words[0]}: {done.stderr.decode().strip()}")
    return done.stdout
