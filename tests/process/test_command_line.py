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


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (NEXT, {"kopf", "aiohttp", "redis", "kubernetes", "uvloop", "msgspec", "yaml", "asyncio"}),
        (
            ("simulate", "-f", "-", "--from", "2026-01-01", "--to", "2026-01-02"),
            {"kopf", "aiohttp", "redis", "kubernetes", "uvloop"},
        ),
        (("validate", "-f", "-"), {"kopf", "aiohttp", "redis", "kubernetes", "uvloop"}),
    ],
    ids=["next", "simulate", "validate"],
)
def test_no_library_of_the_cluster_is_loaded(arguments, unwanted):
    script = (
        "import contextlib, json, sys; from duepoint import cli\n"
        "with contextlib.suppress(SystemExit): cli.commands(sys.argv[1:])\n"
        "print(json.dumps([name.partition('.')[0] for name in sys.modules]), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        input=json.dumps(a_schedule("x")),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout
    assert unwanted.isdisjoint(json.loads(done.stderr))


def test_a_plain_kubeconfig_costs_no_heavy_import(tmp_path):
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1/"}}
    context = {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
    path = tmp_path / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [cluster],
        "users": [{"name": "u", "user": {"token": "abc"}}],
        "contexts": [context],
    }
    path.write_text(json.dumps(document))
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from duepoint.kube import api, credentials, jobs, leases, schedules\n"
        "access = credentials.found(Path(sys.argv[1]), None)\n"
        "asyncio.run(access.login())\n"
        "print([name for name in ('kubernetes', 'yaml', 'kopf', 'redis') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


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


@pytest.mark.parametrize("arguments", [("--help",), ("next", "* * * * *")], ids=["help", "rows"])
def test_without_a_reader_nothing_is_wrong(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "duepoint", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_mistake_that_is_not_read_is_still_an_exit_code():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "duepoint", "next", "61 * * * *"]
    done = subprocess.run(command, stdout=writer, stderr=writer, check=False, timeout=60)
    os.close(writer)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "closed", "code"),
    [("next '* * * * *'", ">&-", 0), ("nxt", "2>&-", 2), ("next '* * * * *'", ">&- 2>&-", 0)],
    ids=["output", "errors", "both"],
)
def test_closed_streams_crash_no_command(arguments, closed, code):
    command = f"{sys.executable} -m duepoint {arguments} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (code, b"")


def test_a_terminal_without_utf_8_gets_escapes():
    done = run("next", "\u8a18 * * * *", PYTHONIOENCODING="ascii", LC_ALL="C", PYTHONUTF8="0")
    assert done.returncode == 2
    assert b"U+8A18" in done.stderr or b"U+DCE8" in done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stderr.isascii()


def test_bytes_that_are_no_text_are_told():
    done = run("next", os.fsdecode(b"\xff\xfe * * * *"))
    assert done.returncode == 2
    assert b"has no meaning in a schedule" in done.stderr


def test_control_characters_of_the_input_stay_harmless():
    done = run("next", "\x1b[31m* * * * *\nsecond line")
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_help_names_every_command_and_needs_no_settings():
    done = run("--help")
    assert done.returncode == 0
    for name in (
        b"next",
        b"validate",
        b"simulate",
        b"operator",
        b"worker",
    ):
        assert name in done.stdout


def test_a_wrong_setting_of_a_process_is_still_one_line():
    done = run("worker", "--batch", "many")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1


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


def test_no_exporter_is_imported_while_traces_are_off():
    # The Redis client imports OpenTelemetry's SDK wherever that is installed.
    loaded = loaded_by("duepoint.app")
    assert "duepoint.app" in loaded
    assert [
        name for name in loaded if "otlp" in name or name.startswith("opentelemetry.exporter")
    ] == []


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
