"""A real control plane for tests: etcd, API server, controllers, scheduler, a simulated node.

The whole run shares `control_plane`, all xdist workers included: the first test that asks starts
it, the last worker that used it ends it. `make test` has one ready (DUEPOINT_TEST_STATE). Each test
gets a namespace of its own from `kube_namespace`, which deletes its active objects afterwards.
No container runs: annotations of a Pod choose its fate (tools/devcluster/stages.yaml).
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from tools.devcluster import apiserver, binaries, cluster, credentials, processes, session
from tools.devcluster import state as states

OUTCOME = "simulate.duepoint.dev/outcome"
DURATION = "simulate.duepoint.dev/duration"
TOKEN_SECONDS = 7200
#: Resources that a test leaves active, owners first.
_LIVELY = (
    "/apis/duepoint.dev/v1alpha1/namespaces/{}/schedules?propagationPolicy=Background",
    "/apis/duepoint.dev/v1alpha1/namespaces/{}/scheduleruns",
    "/apis/duepoint.dev/v1alpha1/namespaces/{}/schedulesets",
    "/apis/batch/v1/namespaces/{}/cronjobs?propagationPolicy=Background",
    "/apis/batch/v1/namespaces/{}/jobs?propagationPolicy=Background",
    "/apis/apps/v1/namespaces/{}/deployments?propagationPolicy=Background",
    "/api/v1/namespaces/{}/pods",
)
_TRIES = 40


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """The addresses and credentials of the servers; `redis_url` is the Valkey beside them."""

    server: str
    ca_file: Path
    admin_token: str
    kubeconfig: Path
    etcd: str
    redis_url: str
    folder: Path

    def admin(self) -> apiserver.Client:
        return apiserver.Client(self.server, self.ca_file, self.admin_token)

    def create_namespace(self, prefix: str = "test") -> str:
        """Create a namespace in which Pods can be created at once, and return its name."""
        name = f"{prefix}-{uuid.uuid4().hex[:10]}"
        admin = self.admin()
        admin.post("/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(lambda: _exists(admin, account), f"the default account of {name} exists")
        return name

    def discard_namespace(self, name: str) -> None:
        """Delete its objects that stay active by themselves, or show up in cluster-wide lists.

        The rest goes with the cluster at the end of the run. To delete a namespace, the controllers
        list every kind of object again and again until none is left: 300 requests for each of a
        run's 600 namespaces were two thirds of the API server's work.
        """
        admin = self.admin()
        for collection in _LIVELY:
            for _ in range(_TRIES):
                with contextlib.suppress(apiserver.ApiError):
                    try:
                        admin.delete(collection.format(name))
                    except TimeoutError:
                        continue  # one request deletes only a part of 100,000 objects
                break

    def service_account_token(self, namespace: str, name: str) -> str:
        """Return a token of the account; create it, without any rights, if it is missing."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        admin = self.admin()
        if not _exists(admin, f"{accounts}/{name}"):
            admin.post(accounts, {"metadata": {"name": name}})
        wish = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
        answer = admin.post(f"{accounts}/{name}/token", wish)
        return str(answer["status"]["token"])

    def service_account_kubeconfig(self, namespace: str, name: str, folder: Path) -> Path:
        """Write a kubeconfig into `folder` that logs in as the ServiceAccount."""
        token = self.service_account_token(namespace, name)
        path = folder / f"{namespace}-{name}.kubeconfig"
        text = credentials.kubeconfig(self.server, self.ca_file, token, namespace)
        credentials.private(path, text)
        return path


def of(state: states.State, record: states.Record) -> ControlPlane:
    return ControlPlane(
        server=record.server,
        ca_file=credentials.authority(state),
        admin_token=credentials.admin_token(state),
        kubeconfig=state.kubeconfig,
        etcd=record.etcd,
        redis_url=record.redis_url,
        folder=state.folder,
    )


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    running = os.environ.get("DUEPOINT_TEST_STATE")
    if running:
        yield _existing(states.State(Path(running)))
        return
    if missing := binaries.not_cached(binaries.CLUSTER):
        pytest.fail(
            f"{', '.join(missing)} must be built first, which takes minutes: run `make test`, or "
            "`make up ONLY=cluster` once and then pytest again",
            pytrace=False,
        )
    session.sweep(states.default().folder)
    with _shared() as state:
        yield of(state, cluster.up(state))


@pytest.fixture
def kube_namespace(control_plane: ControlPlane) -> Iterator[str]:
    name = control_plane.create_namespace()
    yield name
    control_plane.discard_namespace(name)


def _existing(state: states.State) -> ControlPlane:
    record = state.read()
    if record is None or not cluster.is_healthy(state, record):
        pytest.fail(f"DUEPOINT_TEST_STATE={state.folder}: no healthy cluster there", pytrace=False)
    return of(state, record)


@contextlib.contextmanager
def _shared() -> Iterator[states.State]:
    """Yield the state of this run; the last process to leave removes it and ends its cluster.

    The folder is named after the process that leads the run (the xdist controller, else ourselves),
    so that a later `make test` removes it if that process was killed.
    """
    leader = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    born = processes.started_at(leader) or "0"
    parent = states.default().folder
    state = states.State(parent / f"{session.PREFIX}{leader}-{born}")
    state.folder.mkdir(parents=True, exist_ok=True)
    users = state.folder / "users"
    me = str(os.getpid())
    with _locked(state.folder):
        users.mkdir(exist_ok=True)
        (users / me).touch()
    try:
        yield state
    finally:
        with _locked(state.folder):
            (users / me).unlink(missing_ok=True)
            if not any(users.iterdir()):
                session.remove(state)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock other than that of `cluster`, which `session.remove` takes meanwhile."""
    with (folder / "users.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _exists(client: apiserver.Client, path: str) -> bool:
    try:
        client.get(path)
    except apiserver.ApiError as refusal:
        if refusal.code != 404:
            raise
        return False
    return True
