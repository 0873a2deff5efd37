"""Tests on nodes that run containers: `make test-real`, or with `CLUSTER=current` your cluster.

Tests share one node and one installation of the chart with its defaults, and use namespaces of
their own. Those that are marked `alone` change the installation and run one at a time, on another
node or after the others.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.realcluster import Cluster, Receiver
from tools.devcluster.state import Record
from tools.realnode import installation

KIND = "DUEPOINT_TEST_CLUSTER"
HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: changes the installation that all tests share")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Elsewhere there is at most a simulated node."""
    if os.environ.get(KIND) in ("real", "current"):
        return
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.skip(reason="no containers run here: make test-real"))


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster without an installation."""
    return Cluster(os.environ["KUBECONFIG"])


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Cluster:
    """The cluster with the chart as its defaults have it, and the development Valkey."""
    # One of several test processes installs it, and tests that run alone have changed it.
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    with (Path(os.environ["DUEPOINT_TEST_STATE"]) / "installed").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if not run or run not in file.read():
            installation.install(Record(kubeconfig=cluster.kubeconfig))
            file.write(f"{run}\n")
    return cluster


@pytest.fixture
def team(installed: Cluster) -> Iterator[str]:
    """A namespace for a test."""
    with installed.namespace() as name:
        yield name


@pytest.fixture
def receiver(installed: Cluster, team: str) -> Receiver:
    return Receiver(installed, team)
