"""The Makefile explains itself, and continuous integration runs what the readme tells."""

from __future__ import annotations

import os
import re
import subprocess

from tools.devcluster.state import REPOSITORY

MAKEFILE = (REPOSITORY / "Makefile").read_text()


def make(*arguments: str) -> str:
    # An outer make hands its own flags and variables down; this one is asked from outside.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", *arguments], cwd=REPOSITORY, env=clean, capture_output=True, text=True, check=True
    ).stdout


def test_help_lists_every_target():
    targets = re.findall(r"^([a-z][a-z-]*|bench-%):(?!=)", MAKEFILE, re.MULTILINE)

    listed = re.findall(r"^  make (\S+) ", make("help"), re.MULTILINE)

    assert sorted(listed) == sorted(target.replace("%", "NAME") for target in targets)


def test_help_begins_with_what_runs():
    heads = [line for line in make("help").splitlines() if line and not line.startswith(" ")]

    assert heads[0] == "Running"


def test_continuous_integration_ends_with_the_tests():
    ci = re.search(r"^ci: .*\n\t(.*)\n\t(.*)\n\t(.*)\n\t(.*)\n\n", MAKEFILE, re.MULTILINE)
    checks = re.search(r"^checks: (.*?) ##", MAKEFILE, re.MULTILINE)

    assert ci is not None
    assert checks is not None
    assert ci[1].endswith(" checks")
    assert checks[1].split() == [
        "servers",
        "real-parts",
        "lint",
        "types",
        "contract",
        "docs",
        "test-pythons",
    ]
    assert ci[2].endswith("$(MAKE) test-redis-server")
    assert ci[3].endswith("$(MAKE) test-real")
    assert ci[4].endswith("-- $(MAKE) test")
    assert (REPOSITORY / ".ci" / "run").read_text().rstrip().endswith("exec make ci")


def test_the_first_commands_of_the_readme_exist():
    readme = (REPOSITORY / "README.md").read_text()

    for target in ("demo", "up", "test"):
        assert re.search(rf"^make {target}\b", readme, re.MULTILINE)
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)


def test_a_broken_link_of_the_site_is_an_error():
    """With --quiet MkDocs counts no warnings, so --strict would mean nothing."""
    [command] = re.findall(r"mkdocs build(.*)", MAKEFILE)

    assert command.split() == ["--strict"]
    assert re.search(r"^checks: .*\bdocs\b", MAKEFILE, re.MULTILINE)
