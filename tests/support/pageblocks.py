"""The command blocks of a page of the documentation, and running them as a reader would.

A block is what stands between two fences without a language. It runs in one shell that stops at the
first command that fails, in the repository's folder.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^( *)```(?:sh|bash|console)?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def blocks(page: str) -> dict[str, list[str]]:
    """Heading of the second level -> its command blocks in their order; "" = before the first."""
    pieces = _HEADING.split((ROOT / page).read_text())
    sections = zip(["", *pieces[1::2]], pieces[::2], strict=True)
    return {heading: [block for _, block in _BLOCK.findall(text)] for heading, text in sections}


def run(
    script: str,
    *,
    variables: Mapping[str, str] | None = None,
    folder: Path = ROOT,
    seconds: float = 120.0,
) -> str:
    """Standard output; a command that fails is an assertion error with all that was said."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout
