"""`python -m tools.release.versions [VERSION]`: the version, and where else it has to stand.

`operator/duepoint/__init__.py` has the version; the package's metadata is made of it. The chart
cannot be: Chart.yaml has to name its version and the one of the image. With VERSION all three are
written; the files that are made of them are renewed by `make generate`.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tools.devcluster.state import REPOSITORY

SOURCE = Path("operator/duepoint/__init__.py")
CHART = Path("charts/duepoint/Chart.yaml")
#: A version as both Python's and Helm's rules accept it.
VERSION = re.compile(r"\d+\.\d+\.\d+")
_IN_SOURCE = re.compile(r'(?<=^__version__ = ")[^"]+(?="$)', re.MULTILINE)
_IN_CHART = re.compile(r"(?<=^version: ).+$|(?<=^appVersion: ).+$", re.MULTILINE)


def version(repository: Path = REPOSITORY) -> str:
    """The version of the sources in a folder."""
    [found] = _IN_SOURCE.findall((repository / SOURCE).read_text())
    return str(found)


def differing(repository: Path = REPOSITORY) -> list[str]:
    """What says another version than the sources, each as "file: version"."""
    right = version(repository)
    stated = _IN_CHART.findall((repository / CHART).read_text())
    return [f"{CHART}: {each}" for each in stated if each != right]


def write(wanted: str, repository: Path = REPOSITORY) -> None:
    """Make `wanted` the version everywhere."""
    for path, pattern in ((SOURCE, _IN_SOURCE), (CHART, _IN_CHART)):
        file = repository / path
        file.write_text(pattern.sub(wanted, file.read_text()))


def main() -> int:
    """Print or write the version; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="?", help="the version from now on, such as 1.2.3")
    wanted = parser.parse_args().version
    if wanted and not VERSION.fullmatch(wanted):
        sys.stderr.write(f"{wanted} is no version; write three numbers, such as 1.2.3\n")
        return 2
    if wanted:
        write(wanted)
    sys.stdout.write(f"{version()}\n")
    wrong = differing()
    sys.stderr.writelines(f"{each}, but {SOURCE} says {version()}\n" for each in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
