"""Duepoint as a process: what it loads, and how it takes its leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.integration.crds.manifests import a_schedule
from tests.support import anyuser

NEXT = ("next", "* * * * *", "--from", "2026-01-01T00:00:00Z")


def run(*arguments, given=None, **environ):
    return subprocess.run(
        [sys.executable, "-m", "duepoint", *arguments],
        input=given,
        capture_output=True,
        check=False,
        env={**os.environ, **environ},
        timeout=60,
    )


def test_a_reader_that_leaves_ends_it_quietly():
    endless = (*NEXT, "-o", "json", "--count", "999999999")
    with subprocess.Popen(
        [sys.executable, "-m", "duepoint", *endless],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["scheduledTime"] == "2026-01-01T00:01:00Z"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


@pytest.mark.parametrize("command", ["operator", "worker"])
def test_the_command_ends_with_code_2_and_one_line(command, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    done = run(command, DUEPOINT_REDIS_URL="nonsense", DUEPOINT_BLOB_KEY_FILE=str(key))
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"duepoint: DUEPOINT_REDIS_URL: ")


def test_a_program_with_the_client_pays_for_no_library_of_the_processes():
    assert loaded_by("duepoint.client") & {
        "kopf", "kubernetes", "redis", "aiohttp", "uvloop", "click", "rich"
    } == set()  # fmt: skip


def loaded_by(module: str) -> set[str]:
    """Names of all modules that a process has when it has imported this one."""
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_ctrl_c_while_modules_are_read_shows_no_traceback():
    script = """
import sys
class Interrupted:
    def find_spec(self, name, path, target=None):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
import duepoint.cli
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@anyuser.needed
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (NEXT, 0, "2026-01-01"),
        (("validate", "-f", "-"), 0, ""),
        (("list",), 2, "no API server"),
        (("doctor",), 2, "no API server"),
        (("operator",), 2, "DUEPOINT_REDIS_URL"),
    ],
    ids=["next", "validate", "list", "doctor", "operator"],
)
def test_a_user_without_a_name_and_a_home_may_use_it(arguments, code, said):
    done = subprocess.run(
        [*anyuser.prefix(), sys.executable, "-m", "duepoint", *arguments],
        input=json.dumps(a_schedule("nightly")).encode(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert said in (done.stdout + done.stderr).decode()
    assert b"Traceback" not in done.stderr
