"""``duepoint dashboard``: a kubectl that forwards, and a browser that is led to the page."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import pagereader
from tests.unit.cli.test_words import write_kubeconfig

_KUBECTL = """#!{python}
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
words = sys.argv[1:]
if "get" in words:
    print("https 443")
elif "create" in words:
    print("made-for-" + words[words.index("token") + 1])
else:
    assert words[-3:] == ["--namespace=duepoint-system", "service/duepoint-api", ":443"], words
    print("Forwarding from 127.0.0.1:40123 -> 8443", flush=True)
    time.sleep(60)
"""
_BROWSER = """#!{python}
import http.client, signal, sys, urllib.parse
signal.signal(signal.SIGINT, signal.SIG_DFL)
url = urllib.parse.urlsplit(sys.argv[1])
asked = []
for _ in range(2):
    connection = http.client.HTTPConnection(url.netloc)
    connection.request("GET", url.path)
    answer = connection.getresponse()
    asked.append(f"{{answer.status}} {{answer.headers['Location']}}")
print(*asked, sep="\\n", flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """The command as a process, whose kubectl and browser are ours."""
    for name, text in (("kubectl", _KUBECTL), ("browser", _BROWSER)):
        (tmp_path / name).write_text(text.format(python=sys.executable))
        (tmp_path / name).chmod(0o755)
    write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")

    def run(*words: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [pagereader.BIN / "duepoint", "dashboard", *words],
            env={
                "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config"),
                "PATH": str(tmp_path), "BROWSER": f"{tmp_path / 'browser'} %s",
                "PYTHONUNBUFFERED": "1", **environment,
            },
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    return run


def press_ctrl_c(process: subprocess.Popen[str]) -> None:
    """Signal the command and its kubectl, as a terminal does.

    A signal to the command alone may come just before it begins to read, and then waits for that.
    """
    os.killpg(process.pid, signal.SIGINT)


def test_the_browser_is_led_to_the_page_once_with_the_users_token(start):
    with start() as process:
        lines = [process.stdout.readline().strip() for _ in range(3)]
        press_ctrl_c(process)
        _, err = process.communicate(timeout=60)
    assert lines == [
        "https://localhost:40123/dashboard/  (Ctrl-C ends it)",
        "302 https://localhost:40123/dashboard/#token=t",
        "404",
    ]
    assert (process.returncode, err) == (0, "")


def test_a_token_is_made_for_a_service_account(start):
    with start("--account", "anna", BROWSER="/nowhere/browser") as process:
        _, said = (process.stdout.readline() for _ in range(2))
        press_ctrl_c(process)
        process.communicate(timeout=60)
    assert said.endswith("https://localhost:40123/dashboard/#token=made-for-anna\n")


def test_a_forwarding_that_ends_is_no_success(start, tmp_path: Path):
    (tmp_path / "kubectl").write_text("#!/bin/sh\necho no such service >&2\nexit 1\n")
    with start() as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (2, "no such service\n")
