"""The blocking client `syncclient.py`, made from the one for asyncio by replacing words.

A word that the list below does not know stays as it is, and mypy or a test of the blocking client
finds it.
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

Do not edit: change ``asyncclient`` and run ``make generate``. A client may be used by
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


def text() -> str:
    """Return the blocking module, formatted."""
    made = _HEADER + SOURCE.read_text().split('"""\n', 1)[1]
    for word, instead in _WORDS:
        pattern = rf"(?<!\w){word}(?!\w)" if word[-1].isalnum() else rf"\b{word}"
        made = re.sub(pattern, instead, made)
    for command in (["check", "--fix", "--quiet", "--select", "I"], ["format", "--quiet"]):
        made = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"],
            input=made, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    return made
