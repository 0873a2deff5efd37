"""What a subcommand imports before it runs: a person at a terminal waits for it at each call."""

from __future__ import annotations

import json
import subprocess
import sys

#: Packages that take some tenths of a second to import: sessions with an API server and with Redis,
#: credentials outside a cluster, and what only the processes need.
_SLOW = {"aiohttp", "kopf", "kubernetes", "prometheus_client", "redis", "structlog"}
_QUICK = [
    "", "set get", "set export", "set import", "queue stats", "dlq list", "next", "validate",
]  # fmt: skip
#: Prints, for each subcommand, what was imported since the interpreter's start.
_PROGRAM = """
import contextlib, io, json, sys
from duepoint.cli import commands
imported = {}
for words in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        commands([*words.split(), "--help"])
    assert "Usage:" in said.getvalue(), words
    imported[words] = list(sys.modules)
print(json.dumps(imported))
"""


def test_a_subcommand_imports_no_slow_package_before_it_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *_QUICK],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {
        words: _SLOW.intersection(names) for words, names in json.loads(done.stdout).items()
    }

    assert imported == {words: set() for words in _QUICK}
