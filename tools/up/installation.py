"""The objects that the processes need before they start: CRDs, a namespace, accounts and rights.

Accounts, roles and admission policies are those of `charts/duepoint`, which `make generate` renders
into `deploy/kustomize/base`, so a start needs no Helm. The chart's Deployments are left out,
because operator and worker run on this machine. So a right that the chart forgets is missing here.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from typing import Any

import yaml

from tools.devcluster.errors import DevClusterError
from tools.release import manifests
from tools.up.kubectl import Kubectl

NAMESPACE = manifests.NAMESPACE
COMPONENT = "app.kubernetes.io/component"
KINDS = (
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
ROLES = ("operator", "worker")
ESTABLISHED_SECONDS = 30.0
POLL_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Names of the ServiceAccounts the chart made for the two processes."""

    operator: str
    worker: str


def install(kubectl: Kubectl) -> Accounts:
    """Install the CRDs, namespace, accounts and rights; wait until the CRDs are served."""
    kubectl.apply(manifests.CRDS.read_text())
    _wait_until_established(kubectl)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    kubectl.apply(yaml.safe_dump(namespace))
    objects = chart_objects()
    kubectl.apply(yaml.safe_dump_all(objects))
    return accounts(objects)


def _wait_until_established(kubectl: Kubectl) -> None:
    """Poll the CRDs: `kubectl wait` fails on one so new that it has no conditions yet."""
    deadline = time.monotonic() + ESTABLISHED_SECONDS
    while not all(map(is_established, kubectl.json("get", "-f", str(manifests.CRDS))["items"])):
        if time.monotonic() > deadline:
            raise DevClusterError(f"the CRDs are not served after {ESTABLISHED_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def is_established(crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def chart_objects() -> list[dict[str, Any]]:
    """Return accounts, roles and bindings of the chart, accounts first."""
    found = yaml.safe_load_all(manifests.BASE.read_text())
    kept = [one for one in found if one["kind"] in KINDS]
    return sorted(kept, key=lambda one: KINDS.index(one["kind"]))


def accounts(objects: Iterable[dict[str, Any]]) -> Accounts:
    """Return the accounts labelled as those of the operator and the worker."""
    names = {
        one["metadata"].get("labels", {}).get(COMPONENT): str(one["metadata"]["name"])
        for one in objects
        if one["kind"] == "ServiceAccount"
    }
    if missing := set(ROLES) - set(names):
        raise DevClusterError(
            f"charts/duepoint has no ServiceAccount labelled {COMPONENT}={', '.join(missing)}"
        )
    return Accounts(operator=names["operator"], worker=names["worker"])
