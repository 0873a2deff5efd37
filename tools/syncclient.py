"""The blocking client, made out of the one for asyncio: one source for both.

    python -m tools.syncclient            # write operator/duepoint/client/syncclient.py
    python -m tools.syncclient --check    # exit 1 where it is not what its source gives

Words are replaced and nothing else, so the two differ exactly in what is asynchronous. A word that
the list below does not know stays as it is, and mypy or a test of the blocking client finds it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[1] / "operator" / "duepoint" / "client"
SOURCE = CLIENT / "asyncclient.py"
TARGET = CLIENT / "syncclient.py"

_HEADER = '''"""The client for programs without asyncio, made of ``asyncclient``.

Do not edit: change ``asyncclient`` and run ``python -m tools.syncclient``. A client may be used by
many threads at once, and is made after a fork.
"""
'''
#: In this order; a word ends where its name ends.
_WORDS = (
    (r"async def", "def"),
    (r"async with", "with"),
    (r"async for", "for"),
    (r"await ", ""),
    (r"import asyncio", "import time"),
    (r"asyncio\.sleep", "time.sleep"),
    (r"httpx2\.AsyncClient", "httpx2.Client"),
    (r"AsyncSetClient", "SetClient"),
    (r"AsyncClient", "Client"),
    (r"AsyncGenerator\[([\w.]+), None\]", r"Generator[\1, None, None]"),
    (r"AsyncGenerator", "Generator"),
    (r"AsyncIterator", "Iterator"),
    (r"AsyncRows", "Rows"),
    (r"async_in_batches", "in_batches"),
    (r"aiter_bytes", "iter_bytes"),
    (r"self\._http\.aclose", "self._http.close"),
    (r"contextlib\.aclosing", "contextlib.closing"),
    (r"aclose", "close"),
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
)


def generated(source: str) -> str:
    """The blocking module, formatted."""
    text = _HEADER + source.split('"""\n', 1)[1]
    for word, instead in _WORDS:
        text = re.sub(
            rf"(?<!\w){word}(?!\w)" if word[-1].isalnum() else rf"\b{word}", instead, text
        )
    for command in (["check", "--fix", "--quiet", "--select", "I"], ["format", "--quiet"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"],
            input=text, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    return text


def main(arguments: list[str]) -> int:
    text = generated(SOURCE.read_text())
    if "--check" in arguments:
        if TARGET.exists() and TARGET.read_text() == text:
            return 0
        print(f"{TARGET.name} is not what {SOURCE.name} gives: run python -m tools.syncclient")
        return 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
