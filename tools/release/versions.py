"""`python -m tools.release.versions [VERSION]`: print or change the version in all files.

`operator/duepoint/__init__.py` has the version; the package's metadata is made of it. The chart
cannot be: Chart.yaml has to name its version and the one of the image. With VERSION all three are
written; the files that are made of them are renewed by `make generate`.
"""

from __future__ import annotations

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
    """Return the version of the sources in a folder."""
    [found] = _IN_SOURCE.findall((repository / SOURCE).read_text())
    return str(found)


def differing(repository: Path = REPOSITORY) -> list[str]:
    """Return each place that differs from the version of the sources, as "file: version"."""
    right = version(repository)
    stated = _IN_CHART.findall((repository / CHART).read_text())
    return [f"{CHART}: {each}" for each in stated if each != right]


def main(arguments: list[str]) -> int:
    """Print the version, or write another one; return 1 if the files differ."""
    for wanted in arguments:
        if not VERSION.fullmatch(wanted):
            print(f"{wanted} is not a version; use three numbers, such as 1.2.3", file=sys.stderr)
            return 2
        for path, pattern in ((SOURCE, _IN_SOURCE), (CHART, _IN_CHART)):
            file = REPOSITORY / path
            file.write_text(pattern.sub(wanted, file.read_text()))
    print(version())
    wrong = differing()
    for each in wrong:
        print(f"{each}, but {SOURCE} says {version()}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
