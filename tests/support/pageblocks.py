"""The blocks of the documentation's pages, and a function that runs commands as a reader would.

A command block is the text between two fences without a language. It runs in one shell in the
repository's folder, which stops at the first command that fails.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("[ehrt]*/*.md"))]
_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^( *)```(?:sh|bash|console)?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def blocks(page: str) -> dict[str, list[str]]:
    """Return the command blocks under each second-level heading; "" = before the first."""
    pieces = _HEADING.split((ROOT / page).read_text())
    sections = zip(["", *pieces[1::2]], pieces[::2], strict=True)
    return {heading: [block for _, block in _BLOCK.findall(text)] for heading, text in sections}


def fenced(language: str | None = None) -> Iterator[tuple[Path, str]]:
    """Yield page and text of each block in this language on all pages; None = every block."""
    for page in PAGES:
        for indent, word, text in _FENCED.findall(page.read_text()):
            if language in (None, word):
                yield page, re.sub(f"^{indent}", "", text, flags=re.MULTILINE)


def run(
    script: str,
    *,
    variables: Mapping[str, str] | None = None,
    folder: Path = ROOT,
    seconds: float = 120.0,
) -> str:
    """Return the standard output; a failed command raises an AssertionError with all output."""
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
