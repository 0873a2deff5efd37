"""`python -m tools.release.bases [--write]`: the base image of the Dockerfile, by digest.

A tag may be another image tomorrow; a digest may not. A base without a digest is exit code 1. With
--write the container engine asks the registry for the digest of the list of images for all
architectures, and the Dockerfile keeps it beside the tag.
"""

from __future__ import annotations

import re
import subprocess
import sys

from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import REPOSITORY

DOCKERFILE = REPOSITORY / "Dockerfile"
_BASE = re.compile(r"(?<=^ARG BASE=)\S+$", re.MULTILINE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def without_digest(dockerfile: str) -> str:
    """What to do about bases that only have a tag; empty if there is none."""
    found = [one for one in _BASE.findall(dockerfile) if not _DIGEST.search(one)]
    advice = "`python -m tools.release.bases --write` looks it up"
    return f"the base {', '.join(found)} has no digest; {advice}" if found else ""


def digest_of(reference: str) -> str:
    """Return what the registry says today of `name:tag`."""
    command = ["docker", "buildx", "imagetools", "inspect", reference]
    command += ["--format", "{{.Manifest.Digest}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = (done.stdout or done.stderr).strip()
    except OSError as error:
        said = str(error)
    if not _DIGEST.fullmatch(said):
        raise DevClusterError(f"the digest of {reference} cannot be asked for: {said}")
    return said


def main(arguments: list[str]) -> int:
    text = DOCKERFILE.read_text()
    try:
        if "--write" in arguments:
            tags = {one.group().partition("@")[0] for one in _BASE.finditer(text)}
            digests = {tag: digest_of(tag) for tag in tags}
            text = _BASE.sub(lambda one: _pinned(one.group(), digests), text)
            DOCKERFILE.write_text(text)
    except DevClusterError as error:
        print(error, file=sys.stderr)
        return 1
    if missing := without_digest(text):
        print(missing, file=sys.stderr)
    return 1 if missing else 0


def _pinned(base: str, digests: dict[str, str]) -> str:
    tag = base.partition("@")[0]
    return f"{tag}@{digests[tag]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
