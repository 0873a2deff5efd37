"""Writes ``docs/reference/failure-modes.md``; ``--check`` compares it instead.

``python -m tools.failures [--check]``. Exit code 1 where a row is wrong or the page is stale.
"""

from __future__ import annotations

import pathlib
import sys

from tools.failures import rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "failure-modes.md"
_HEAD = """\
# Failure modes and threats, one by one

`python -m tools.failures` writes this page from `tools/failures/rows.toml`. Each row names tests
that inject the failure, or make the attempt, and judge what came of it; a row without a test says
what cannot be injected. [Failures, and the tests that show what happens](failures-and-tests.md)
tells the same by subject; [deliberate bugs](mutants.md) shows that tests notice mistakes, and
[simulated histories](simulated-histories.md) and
[faults on real processes](faults-on-real-processes.md) what several of them at once did.
"""
_TABLE = """\
| | failure | what happens | shown by |
|---|---|---|---|
"""


def page() -> str:
    """The page as it should be."""
    parts = [_HEAD]
    for chapter in rows.read():
        parts.append(
            f"\n## {chapter.name}\n\n| | failure | what happens | shown by |\n|---|---|---|---|\n"
        )
        parts += [_line(row) for row in chapter.rows]
    return "".join(parts)


def _line(row: rows.FailureRow) -> str:
    tests = [f"`{test.replace('::', '` `')}`" for test in row.tests]
    shown = "<br>".join([*tests, *([f"not injected: {row.left_out}"] if row.left_out else [])])
    return f"| {row.id} | {row.failure} | {row.result} | {shown} |\n"


def main() -> None:
    """Write or check."""
    problems = [
        problem for chapter in rows.read() for row in chapter.rows for problem in row.problems(ROOT)
    ]
    wanted = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted)
    elif not PAGE.exists() or PAGE.read_text() != wanted:
        problems.append(f"{PAGE.relative_to(ROOT)} is stale: run python -m tools.failures")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
