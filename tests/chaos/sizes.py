"""The sizes of a run: its length, its load, and its control plane."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from tests.chaos.load import Amounts
from tests.chaos.plan import FaultKind, Rhythm
from tests.chaos.playing import RECOVERY_SECONDS, Wanted
from tests.integration.crds import kubeapi
from tests.integration.crds.conftest import definitions, install
from tests.support import controlplane
from tests.support.controlplane import ControlPlane
from tools.devcluster import state as states

_CALM_SECONDS = RECOVERY_SECONDS + 12

_CALM = {"calm_seconds": _CALM_SECONDS, "every_seconds": 1.0, "costly_every_seconds": 2.0}
RHYTHMS = {
    "small": Rhythm(
        rounds=1,
        faults_seconds=16,
        calm_seconds=RECOVERY_SECONDS,
        every_seconds=1.5,
        costly_every_seconds=1.5,
    ),
    "usual": Rhythm(rounds=5, faults_seconds=45, **_CALM),
    # An hour, with one fault every three minutes.
    "soak": Rhythm(
        rounds=20, faults_seconds=1, calm_seconds=179, every_seconds=2, costly_every_seconds=2
    ),
}
AMOUNTS = {
    "small": Amounts(webhooks=10, streams=8, jobs=1, edited=3, members=5),
    "usual": Amounts(webhooks=50, streams=40, jobs=2, edited=6, members=40),
    "soak": Amounts(webhooks=20, streams=10, jobs=2, edited=6, members=10),
}


def wanted(
    size: str,
    seed: int,
    kind: str,
    kinds: Collection[FaultKind],
    stopped: dict[FaultKind, int],
) -> Wanted:
    """Return the parameters of a run of this size."""
    return Wanted(
        seed=seed,
        kind=kind,
        rhythm=RHYTHMS[size],
        amounts=AMOUNTS[size],
        kinds=kinds,
        stopped=stopped,
    )


def own_plane() -> tuple[ControlPlane, dict[FaultKind, int]]:
    """Return this run's control plane with our CRDs, and its servers that may be stopped."""
    state = states.State(Path(os.environ["DUEPOINT_TEST_STATE"]))
    record = state.read()
    if record is None:
        raise SystemExit(f"DUEPOINT_TEST_STATE={state.folder}: no cluster is there")
    plane = controlplane.of(state, record)
    client = kubeapi.KubeApi(plane.kubeconfig)
    for crd in definitions():
        install(client, crd)
    client.close()
    pids = {one.name: one.pid for one in record.processes}
    return plane, {
        FaultKind.API_STOPPED: pids["kube-apiserver"],
        FaultKind.ETCD_STOPPED: pids["etcd"],
    }
