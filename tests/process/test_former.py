"""The package of a revision, for rolling upgrades."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.chaos import former


@pytest.fixture
def unpack(tmp_path):
    def made(revision):
        found = former.unpacked(revision, tmp_path)
        if found is None:
            pytest.skip(former.NO_GIT)
        return found

    return made


def test_a_process_with_it_on_its_path_is_of_that_version(unpack, tmp_path):
    code = unpack("HEAD")
    shown = subprocess.run(
        [sys.executable, "-m", "duepoint", "--version"],
        env={**os.environ, "PYTHONPATH": str(code)},
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout.startswith(former.label_of("HEAD"))


def test_a_revision_that_is_none_is_refused(unpack):
    with pytest.raises(ValueError, match="--former no-such-revision: "):
        unpack("no-such-revision")
