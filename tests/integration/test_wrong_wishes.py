"""What nobody can carry out, told by real processes: one clear line and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LONGEST_SECONDS = 120
_MAIN = "import duepoint.cli; duepoint.cli.main()"


def a_process(*arguments: str, redis_url: str, out: int = subprocess.PIPE):
    settings = {key: value for key, value in os.environ.items() if not key.startswith("DUEPOINT_")}
    return subprocess.run(
        [sys.executable, "-c", _MAIN, *arguments],
        env={**settings, "DUEPOINT_REDIS_URL": redis_url},
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("role", ["operator", "worker"])
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:6379", "is not a Redis URL"),
        ("redis://", "names no host"),
        ("redis://:a-secret@host:port/0", "DUEPOINT_REDIS_URL"),
    ],
    ids=["no scheme", "no host", "a port that is no number"],
)
def test_a_malformed_address_of_redis_ends_the_process_with_one_line(role, url, why):
    ended = a_process(role, redis_url=url)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "DUEPOINT_REDIS_URL" in line
    assert why in line
    assert "a-secret" not in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_a_full_disk_is_told_in_one_line():
    with Path("/dev/full").open("w") as full:
        ended = a_process("--version", redis_url="redis://localhost", out=full.fileno())
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "could not write the output" in line
