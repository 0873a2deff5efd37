"""Records the checksums of official releases in ``tools/controlplane/releases.json``.

For a maintainer whose network has the releases: each file is fetched from its project once, by
TLS, and its SHA-256 recorded. What is recorded is what the project served on that day; compare it
with the project's published checksums before you commit it. From then on every machine gets the
same bytes, or builds from source.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.devcluster import binaries, progress, releases

PLATFORMS = ("linux-amd64", "linux-arm64")
#: Module -> address of each of its programs, and the program's name in an archive.
ADDRESSES: Mapping[str, tuple[str, str]] = {
    "kubernetes": ("https://dl.k8s.io/release/{version}/bin/{os}/{arch}/{name}", ""),
    "etcd": (
        "https://github.com/etcd-io/etcd/releases/download/{version}/etcd-{version}-{os}-{arch}.tar.gz",
        "etcd-{version}-{os}-{arch}/{name}",
    ),
    "kwok": (
        "https://github.com/kubernetes-sigs/kwok/releases/download/{version}/{name}-{os}-{arch}",
        "",
    ),
}
#: Where each project publishes its checksums.
PUBLISHED: Mapping[str, str] = {
    "kubernetes": "the address of each file with .sha256 after it",
    "etcd": "SHA256SUMS beside the archive",
    "kwok": "the list of files on the page of the release",
}


def pin(modules: Iterable[str], environment: Mapping[str, str], path: Path = releases.PINS) -> None:
    """Fetch and record; raises releases.NotFetched, and then nothing is recorded."""
    recorded = json.loads(path.read_text())
    source = environment.get(releases.SETTING, "").strip()
    for recipe in binaries.RECIPES:
        if recipe.module not in modules:
            continue
        recorded[f"{recipe.module} {recipe.version}"] = {
            platform: {name: _pin_of(recipe, name, platform, source) for name in recipe.commands}
            for platform in PLATFORMS
        }
        progress.say(f"{recipe.module} {recipe.version}: compare {PUBLISHED[recipe.module]}")
    path.write_text(json.dumps(recorded, indent=2) + "\n")


def _pin_of(recipe: binaries.Recipe, name: str, platform: str, source: str) -> dict[str, str]:
    url, member = (
        text.format(
            version=recipe.version,
            name=name,
            os=platform.partition("-")[0],
            arch=platform.partition("-")[2],
        )
        for text in ADDRESSES[recipe.module]
    )
    digest = hashlib.sha256()
    with releases.opened(releases.address(url, source)) as download:
        for chunk in download.chunks:
            digest.update(chunk)
    progress.say(f"{digest.hexdigest()}  {url}")
    return {"url": url, "sha256": digest.hexdigest()} | ({"member": member} if member else {})
