"""The development cluster behaves as far as our tests and examples rely on it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import redis

from tests.support.controlplane import DURATION
from tests.support.waiting import wait_until
from tools.devcluster import apiserver, cluster, processes
from tools.devcluster.state import State

pytestmark = pytest.mark.xdist_group("development-cluster")


def a_job(name: str = "job", **annotations: str) -> dict[str, object]:
    pod = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]},
    }
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": pod}}


def conditions(client: apiserver.Client, path: str) -> set[str]:
    status = client.get(path).get("status", {})
    return {one["type"] for one in status.get("conditions", []) if one["status"] == "True"}


def jobs(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


def test_a_job_completes_on_the_simulated_node(control_plane, kube_namespace):
    admin = control_plane.admin()
    admin.post(jobs(kube_namespace), a_job(**{DURATION: "50ms"}))

    path = f"{jobs(kube_namespace)}/job"
    wait_until(lambda: "Complete" in conditions(admin, path), "the Job is complete")


@pytest.fixture
def second_state(tmp_path: Path):
    state = State(tmp_path / "second")
    yield state
    cluster.down(state)


def test_a_cluster_with_a_dead_server_is_replaced_and_nothing_of_it_stays(second_state: State):

    former = cluster.up(second_state)
    victim = next(one for one in former.processes if one.name == "etcd")
    os.kill(victim.pid, signal.SIGKILL)
    wait_until(lambda: not processes.is_alive(victim), "etcd is dead")

    record = cluster.up(second_state)

    assert cluster.is_healthy(second_state, record)
    assert not [one for one in former.processes if processes.is_alive(one)]


def test_what_is_stopped_keeps_its_objects_and_its_redis(second_state: State):
    former = cluster.up(second_state)
    made = {"metadata": {"name": "mine"}, "data": {"a": "b"}}
    path = "/api/v1/namespaces/default/configmaps"
    cluster.client(second_state, former).post(path, made)
    with redis.Redis.from_url(former.redis_url) as server:
        server.set("mine", "b")

    assert cluster.down(second_state) is True
    assert not [one for one in former.processes if processes.is_alive(one)]
    record = cluster.up(second_state)

    kept = cluster.client(second_state, record).get(f"{path}/mine")
    assert kept["data"] == {"a": "b"}
    with redis.Redis.from_url(record.redis_url) as server:
        assert server.get("mine") == b"b"
