"""Runs the command as a user would, without a process of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from duepoint import cli
from tests.fakes.memoryapi import MemoryApi

#: Of somebody who uses kubectl with a token, in the namespace ``shop``.
KUBECONFIG = {
    "current-context": "here",
    "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "good"}}],
}


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def column(self, name: str) -> list[str]:
        return [row[name] for row in self.rows]


@pytest.fixture
def duepoint():
    """Arguments -> Answer; anything but an exit is a bug and passes through."""

    def run(*arguments: str, given: str | bytes | None = None) -> Answer:
        of_rows = arguments[:1] in (("next",), ("simulate",)) or (
            arguments[:1] == ("set",) and arguments[1:2] in (("get",), ("list",), ("put",))
        )
        if of_rows and not {"-o", "--output", "-h"} & set(arguments):
            arguments = (*arguments, "-o", "json")  # tests read the rows of these
            if arguments[0] == "next" and "--count" not in arguments:
                arguments = (*arguments, "--count", "1")
        result = CliRunner().invoke(cli.commands, arguments, input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def refused(duepoint):
    """Arguments -> the one line that says what is wrong."""

    def run(*arguments: str, given: str | bytes | None = None) -> str:
        answer = duepoint(*arguments, given=given)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.count("\n") == 1
        return answer.err

    return run


@pytest.fixture
def api():
    """The HTTP API with one set, ``shop/reminders``."""
    memory = MemoryApi()
    with memory.serving():
        yield memory


@pytest.fixture
def environment(monkeypatch, tmp_path, api):
    """A kubeconfig whose user has a token, and the API's URL in the variable."""
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(KUBECONFIG))
    for name in ("DUEPOINT_API_TOKEN", "DUEPOINT_API_TOKEN_FILE", "DUEPOINT_API_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setenv("DUEPOINT_API_URL", api.url)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return path
