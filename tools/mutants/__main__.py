"""Tries every mutant on a copy of the project and writes the table of what caught it.

``python -m tools.mutants [NAME ...]``: each argument is an area or a whole name; without any, all
are tried. The page is written after each mutant, so that a run may be cut short, or done in pieces.
Exit code 1 where a mutant survives.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from tools.mutants import catalogue, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: A mutant may make a test wait for ever.
_MOST_SECONDS = 420
#: Tests that pass without any mutant.
_sound: set[str] = set()
#: How pytest ends where a test that it is asked for does not exist any more.
_NO_SUCH_TEST = 4
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?: \S+)*?)(?: - .*)?$", re.MULTILINE)


def main() -> None:
    """Try them, and write what was found to ``docs/reference``."""
    wanted = sys.argv[1:]
    chosen = [
        mutant
        for mutant in catalogue.MUTANTS
        if not wanted or any(word in (mutant.area, mutant.name) for word in wanted)
    ]
    if not chosen:
        sys.exit(f"no mutant is named {wanted}; write an area or a whole name")
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = pathlib.Path(folder) / "project"
        _copy(copy)
        for number, mutant in enumerate(chosen, 1):
            began = time.monotonic()
            caught = _try(copy, mutant)
            seconds = time.monotonic() - began
            print(
                f"{number}/{len(chosen)} {mutant.area}: {mutant.name}: {caught or 'SURVIVED'}"
                f" ({seconds:.0f} s)",
                flush=True,
            )
            table.record(ROOT, mutant.name, caught)
            if not caught:
                survivors.append(mutant.name)
    print(f"{len(chosen) - len(survivors)} caught, {len(survivors)} survived")
    if survivors:
        sys.exit(1)


def _copy(copy: pathlib.Path) -> None:
    """All files of the project that are under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)


def _try(copy: pathlib.Path, mutant: catalogue.Mutant) -> str:
    """The first test that fails, last time's before others; empty where none does."""
    path = copy / "operator" / "duepoint" / mutant.path
    whole = path.read_text()
    if whole.count(mutant.before) != 1:
        sys.exit(
            f"{mutant.name}: its text stands {whole.count(mutant.before)} times in {path.name}"
        )
    path.write_text(whole.replace(mutant.before, mutant.after))
    former = table.read(ROOT).get(mutant.name, "")
    suites = [catalogue.SUITES[suite] for suite in mutant.suites]
    try:
        for tests in [(former,)] * bool(former) + suites:
            caught = _run(copy, tests).partition("@")[0]
            if caught and (caught in _sound or _bites(copy, path, whole, caught)):
                _sound.add(caught)
                return caught
        return ""
    finally:
        path.write_text(whole)


def _bites(copy: pathlib.Path, path: pathlib.Path, whole: str, test: str) -> bool:
    """Whether the test passes without the mutant; else it failed for another reason."""
    mutated = path.read_text()
    path.write_text(whole)
    has_failed_again = _run(copy, (test,)) if "::" in test else ""
    path.write_text(mutated)
    if has_failed_again:
        print(f"{test} fails without the mutant too", flush=True)
    return not has_failed_again


def _run(copy: pathlib.Path, tests: tuple[str, ...]) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    if not all("::" in test for test in tests):
        command += ["-n", "2", "--dist", "loadgroup"]
    command += ["--no-header", "-rfE", "--tb=no", *tests]
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'operator'}:{copy}"}
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{tests[0]}: no end within {_MOST_SECONDS} s"
    if done.returncode == 0 or (done.returncode == _NO_SUCH_TEST and len(tests) == 1):
        return ""
    if done.returncode not in (1, 2):
        sys.exit(
            f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    found = _FAILED.search(done.stdout)
    return found[1] if found else f"{tests[0]}: {json.dumps(done.stdout[-200:])}"


if __name__ == "__main__":
    main()
