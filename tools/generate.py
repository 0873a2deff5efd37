"""`python -m tools.generate [--check]`: write every file that is made from sources.

With --check nothing is written; a file that is not current is named, and the exit code is 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tools import chartdoc, fieldsdoc, httpapidoc, settingsdoc
from tools.jobschema import __main__ as jobschema
from tools.release import manifests


def wanted() -> Iterator[tuple[Path, str]]:
    """Yield each file that needs no Helm, with the text that it should have."""
    yield from jobschema.crds().items()
    yield chartdoc.PAGE, chartdoc.page()
    yield from ((page, fieldsdoc.page(page)) for page in fieldsdoc.PAGES)
    yield settingsdoc.PAGE, settingsdoc.page()
    yield httpapidoc.PAGE, httpapidoc.page()


def main(arguments: list[str]) -> int:
    is_check = "--check" in arguments
    stale = 0
    # Helm makes the last one.
    for path, text in (*wanted(), (manifests.BASE, manifests.install_text())):
        if path.is_file() and path.read_text() == text:
            continue
        stale += 1
        print(f"{path.name} is stale: make generate" if is_check else f"wrote {path.name}")
        if not is_check:
            path.write_text(text)
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
