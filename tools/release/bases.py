"""`python -m tools.release.bases [--write]`: the base images of the Dockerfile, by digest.

A tag may be another image tomorrow; a digest may not. Lists every base that the Dockerfile names
without a digest, and is exit code 1 if there is one. With --write the container engine asks
the registry for the digest of each tag, that of the list of images for all architectures, and the
Dockerfile keeps it beside the tag. Without an engine or a registry nothing is written: a digest is
looked up or it is missing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import REPOSITORY

DOCKERFILE = REPOSITORY / "Dockerfile"
_BASE = re.compile(r"^ARG BASE=(\S+)$", re.MULTILINE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def bases(dockerfile: str) -> list[str]:
    """The references of the base images."""
    return _BASE.findall(dockerfile)


def without_digest(dockerfile: str) -> list[str]:
    """Those that name a tag only."""
    return [each for each in bases(dockerfile) if not _DIGEST.fullmatch(each.partition("@")[2])]


def digest_of(reference: str) -> str:
    """What the registry says today of `name:tag`; DevClusterError if it cannot be asked."""
    command = ["docker", "buildx", "imagetools", "inspect", reference]
    command += ["--format", "{{.Manifest.Digest}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise DevClusterError(f"the digest of {reference} cannot be asked for: {error}") from error
    digest = done.stdout.strip()
    if done.returncode or not _DIGEST.fullmatch(digest):
        said = (done.stderr or done.stdout).strip()
        raise DevClusterError(f"the digest of {reference} cannot be asked for: {said}")
    return digest


def pinned(dockerfile: str) -> str:
    """The Dockerfile with today's digest beside each tag, an older digest replaced."""
    for each in set(bases(dockerfile)):
        tag = each.partition("@")[0]
        dockerfile = dockerfile.replace(f"ARG BASE={each}\n", f"ARG BASE={tag}@{digest_of(tag)}\n")
    return dockerfile


def main() -> int:
    """List or write; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="look the digests up and keep them")
    if parser.parse_args().write:
        try:
            DOCKERFILE.write_text(pinned(DOCKERFILE.read_text()))
        except DevClusterError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    missing = without_digest(DOCKERFILE.read_text())
    sys.stderr.writelines(
        f"the Dockerfile names {each} without a digest; `python -m tools.release.bases --write`,"
        " where the registry can be reached, writes it\n"
        for each in missing
    )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
