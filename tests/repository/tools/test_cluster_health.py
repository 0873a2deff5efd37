"""A development cluster whose API server is unready for a moment is not a broken one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.devcluster import cluster
from tools.devcluster.state import SIMULATED, Record, State


class Answers:
    """An API server that says these in turn, and the last of them for ever."""

    def __init__(self, *ready: bool) -> None:
        self.left = list(ready)

    def is_ready(self) -> bool:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def healthy(*ready: bool) -> bool:
        answers = Answers(*ready)
        monkeypatch.setattr(cluster, "client", lambda state, record: answers)
        return cluster.is_healthy(State(tmp_path), Record(complete=True))

    return healthy


def test_a_moment_without_an_answer_is_waited_for(asked):
    assert asked(False, False, True)


def test_an_api_server_that_stays_unready_is_not_healthy(asked, monkeypatch):
    monkeypatch.setattr(cluster, "UNREADY_SECONDS", 0.1)

    assert not asked(False)


def test_an_incomplete_cluster_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "UNREADY_SECONDS", 3_600.0)

    assert not cluster.is_healthy(State(tmp_path), Record())


def test_a_cluster_of_another_kubernetes_is_not_the_one_that_is_asked_for(asked, monkeypatch):
    asked(True)
    redis = "redis://127.0.0.1:7/0"
    record = Record(complete=True, kubernetes="1.35", redis_url=redis)

    def suits() -> bool:
        return cluster.suits(State(Path("unused")), record, SIMULATED, redis)

    monkeypatch.setenv("DUEPOINT_KUBERNETES", "1.35")
    assert suits()
    monkeypatch.delenv("DUEPOINT_KUBERNETES")
    assert not suits()
