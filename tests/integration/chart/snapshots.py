"""What the chart renders, kept: `python -m tests.integration.chart.snapshots [--write]`.

`snapshots/default.yaml` is the whole rendering of the smallest set of values, without CRDs. Of
every other case the difference from it is kept, so that a reviewer sees what a value changes and
nothing else. `--write` renews them; without it stale ones are listed and the exit code is 1.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.integration.chart import cases
from tests.integration.chart.helm import Helm
from tools import helm

FOLDER = Path(__file__).with_name("snapshots")


def wanted(renderer: Helm) -> dict[str, str]:
    """File name -> text, for every case."""
    default = renderer.text(cases.BASE)
    texts = {"default.yaml": default}
    for name, values in cases.CASES.items():
        if name != "default":
            other = renderer.text(cases.merged(cases.BASE, values))
            texts[f"{name}.diff"] = _difference(default, other)
    return texts


def _difference(default: str, other: str) -> str:
    lines = difflib.unified_diff(
        default.splitlines(), other.splitlines(), "default", "this", n=3, lineterm=""
    )
    # Positions would change in every file with the first line of the rendering.
    shown = ("@@" if line.startswith("@@") else line.rstrip() for line in lines)
    return "\n".join(shown) + "\n"


def kept() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(FOLDER.iterdir())}


def stale(texts: Mapping[str, str]) -> list[str]:
    """Names of files that are missing, too many or different."""
    known = kept()
    return sorted(name for name in {*texts, *known} if texts.get(name) != known.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew what is stale")
    arguments = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    texts = wanted(Helm(program=helm.program()))
    names = stale(texts)
    for name in names:
        if arguments.write and name in texts:
            (FOLDER / name).write_text(texts[name])
        elif arguments.write:
            (FOLDER / name).unlink()
        sys.stdout.write(f"{'wrote' if arguments.write else 'stale:'} {name}\n")
    return 1 if names and not arguments.write else 0


if __name__ == "__main__":
    sys.exit(main())
