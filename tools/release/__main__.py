"""`make release`: every file of a release in one folder, from a commit."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import REPOSITORY
from tools.release import building


def main() -> int:
    """Make the release; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "dist", help="folder of the files")
    parser.add_argument("--image", default="", help="repository of the image, without a tag")
    parser.add_argument("--commit", default="HEAD", help="what is released")
    parser.add_argument("--push", action="store_true", help="push the image to that repository")
    parser.add_argument("--cosign-key", default="", help="sign with this key, or `keyless`")
    parser.add_argument("--builder", default=building.LOCAL, help="URI of who builds")
    parser.add_argument("--repository-url", default="", help="where the commit can be fetched")
    arguments = parser.parse_args()
    if arguments.push and not arguments.image:
        parser.error("--push needs --image: the repository to push to")
    changed = subprocess.run(
        ["git", "-C", str(REPOSITORY), "status", "--porcelain"], capture_output=True, check=False
    ).stdout
    if changed:
        sys.stderr.write("what is not committed is not part of the release\n")
    wanted = building.Wanted(
        folder=arguments.out,
        image=arguments.image,
        push=arguments.push,
        cosign_key=arguments.cosign_key,
        builder=arguments.builder,
        commit=arguments.commit,
        repository_url=arguments.repository_url,
    )
    try:
        for line in building.release(wanted, REPOSITORY):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    except DevClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
