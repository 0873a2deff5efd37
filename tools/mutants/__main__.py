"""Tries every mutant on a copy of the project and writes the table of what caught it.

``python -m tools.mutants [NAME ...]``: each argument is an area or a whole name; without any, all
are tried. The page is written after each mutant, so that a run may be cut short, or done in pieces,
several of them side by side. Exit code 1 where a mutant survives. A mutant is caught by a test that
fails and has a name: tests that do not end, or break off without naming one, let it survive.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from tools.mutants import catalogue, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: A mutant may make a test wait for ever.
_MOST_SECONDS = 420
#: Tests that pass without any mutant.
_sound: set[str] = set()
#: How pytest ends where a test that it is asked for does not exist any more.
_NO_SUCH_TEST = 4
#: The group that pytest-xdist adds to a test's name; a parameter may have an ``@``, too.
_GROUP = re.compile(r"@[^\]@]+$")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?: \S+)*?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    """What tests said of a mutant.

    Attributes:
        test: the first one that failed; empty where none did.
        trouble: why the tests that were run name none.
    """

    test: str = ""
    trouble: str = ""

    def __str__(self) -> str:
        return self.test or "SURVIVED" + (f" ({self.trouble})" if self.trouble else "")


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
        commit = _commit()
        _copy(copy)
        for number, mutant in enumerate(chosen, 1):
            began = time.monotonic()
            result = _try(copy, mutant)
            seconds = time.monotonic() - began
            print(
                f"{number}/{len(chosen)} {mutant.area}: {mutant.name}: {result} ({seconds:.0f} s)",
                flush=True,
            )
            caught = table.Caught(result.test, commit) if result.test else None
            table.record(ROOT, mutant.name, caught)
            if not result.test:
                survivors.append(mutant.name)
    print(f"{len(chosen) - len(survivors)} caught, {len(survivors)} survived")
    if survivors:
        sys.exit(1)


def _commit() -> str:
    """What is copied; a + where files differ from the commit, our page apart."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run(
        [*git, "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True, text=True
    )
    others = ["--", ".", f":!{table.PAGE}"]
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", *others], check=False)
    return head.stdout.strip() + "+" * changed.returncode


def _copy(copy: pathlib.Path) -> None:
    """All files of the project that are under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)


def _try(copy: pathlib.Path, mutant: catalogue.Mutant) -> Result:
    """The first test that fails, last time's before others."""
    path = copy / "operator" / "duepoint" / mutant.path
    whole = path.read_text()
    if whole.count(mutant.before) != 1:
        sys.exit(
            f"{mutant.name}: its text stands {whole.count(mutant.before)} times in {path.name}"
        )
    path.write_text(whole.replace(mutant.before, mutant.after))
    known = table.read(ROOT).get(mutant.name)
    former = known.test if known else ""
    suites = [catalogue.SUITES[suite] for suite in mutant.suites]
    troubles = []
    try:
        for tests in [(former,)] * bool(former) + suites:
            result = _run(copy, tests)
            if result.trouble:
                troubles.append(result.trouble)
            elif result.test and (result.test in _sound or _bites(copy, path, whole, result.test)):
                _sound.add(result.test)
                return result
        return Result(trouble="; ".join(troubles))
    finally:
        path.write_text(whole)


def _bites(copy: pathlib.Path, path: pathlib.Path, whole: str, test: str) -> bool:
    """Whether the test passes without the mutant; else it failed for another reason."""
    mutated = path.read_text()
    path.write_text(whole)
    without = _run(copy, (test,))
    path.write_text(mutated)
    if without != Result():
        print(f"{test} fails without the mutant too", flush=True)
    return without == Result()


def _run(copy: pathlib.Path, tests: tuple[str, ...]) -> Result:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    if not all("::" in test for test in tests):
        command += ["-n", "2", "--dist", "loadgroup"]
    command += ["--no-header", "-rfE", "--tb=no", *tests]
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'operator'}:{copy}"}
    with subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # its workers and servers end with it
    ) as process:
        try:
            output, _ = process.communicate(timeout=_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return Result(trouble=f"{tests[0]}: no end within {_MOST_SECONDS} s")
    return _result(tests, process.returncode, output)


def _result(tests: tuple[str, ...], code: int, output: str) -> Result:
    """What pytest said by its exit code and its last lines."""
    if code == 0 or (code == _NO_SUCH_TEST and len(tests) == 1):
        return Result()
    if code not in (1, 2):
        sys.exit(f"pytest ended with {code}:\n{output[-4000:]}")
    found = _FAILED.search(output)
    if found is None or "::" not in found[1]:
        return Result(trouble=f"{tests[0]}: no test is named: {json.dumps(output[-200:])}")
    return Result(test=_GROUP.sub("", found[1]))


if __name__ == "__main__":
    main()
