"""CLUSTER=current and REDIS_URL: what the user has is used, and left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.controlplane import ControlPlane
from tools.devcluster import cluster, external
from tools.devcluster.state import CURRENT, State


@pytest.fixture
def state(tmp_path: Path):
    state = State(tmp_path / "state")
    yield state
    cluster.down(state)


@pytest.fixture
def own_context(control_plane: ControlPlane, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    return control_plane


def test_the_current_context_is_used_with_a_valkey_beside_it(own_context, state):
    record = external.up(state, "")

    assert record.kind == CURRENT
    assert record.kubeconfig == str(own_context.kubeconfig)
    assert [one.name for one in record.processes] == ["valkey"]
    assert external.up(state, "") == record


def test_a_given_redis_is_used_and_nothing_is_started(own_context, state):
    external.up(state, "")

    record = external.up(state, own_context.redis_url)

    assert record.redis_url == own_context.redis_url
    assert record.processes == ()


def test_down_leaves_the_users_own_cluster_alone(own_context, state):
    external.up(state, "")

    cluster.down(state)

    assert own_context.admin().is_ready()
    assert own_context.kubeconfig.exists()
