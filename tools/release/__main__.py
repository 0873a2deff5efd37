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
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    add = parser.add_argument
    add("--folder", "--out", type=Path, default=REPOSITORY / "dist", help="folder of the files")
    add("--image", default="", help="repository of the image, without a tag")
    add("--commit", default="HEAD", help="what is released")
    add("--push", action="store_true", help="push the image to that repository")
    add("--cosign-key", default="", help="sign with this key, or `keyless`")
    add("--builder", default=building.LOCAL, help="URI of who builds")
    add("--repository-url", default="", help="where the commit can be fetched")
    arguments = parser.parse_args()
    if arguments.push and not arguments.image:
        parser.error("--push needs --image: the repository to push to")
    status = ["git", "-C", str(REPOSITORY), "status", "--porcelain"]
    if subprocess.run(status, capture_output=True, check=False).stdout:
        print("what is not committed is not part of the release", file=sys.stderr)
    try:
        for line in building.release(building.Wanted(**vars(arguments)), REPOSITORY):
            print(line, flush=True)
    except DevClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
