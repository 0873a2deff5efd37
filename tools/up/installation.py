"""What must be in the cluster before the processes start: CRDs, a namespace, accounts and rights.

Accounts, roles and admission policies are those of `charts/duepoint`, rendered by Helm; its
Deployments are left out, because operator and worker run on this machine. So a right that the chart
forgets is missing here.
"""

from __future__ import annotations

import dataclasses
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import REPOSITORY
from tools.up.kubectl import Kubectl

NAMESPACE = "duepoint-system"
CHART = REPOSITORY / "charts" / "duepoint"
CRDS = REPOSITORY / "crds"
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
#: Objects of these kinds stand in no namespace.
WIDE = ("Cluster", "ValidatingAdmission")
ROLES = ("operator", "worker")
ESTABLISHED_SECONDS = 30.0
POLL_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Names of the ServiceAccounts the chart made for the two processes."""

    operator: str
    worker: str


def install(kubectl: Kubectl, helm: Path) -> Accounts:
    """Everything in place, and the CRDs served."""
    for path in sorted(CRDS.glob("*.yaml")):
        kubectl.apply(path.read_text())
    _wait_until_established(kubectl)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    kubectl.apply(yaml.safe_dump(namespace))
    objects = accounts_and_roles(rendered(helm))
    kubectl.apply(yaml.safe_dump_all(objects))
    return accounts(objects)


def _wait_until_established(kubectl: Kubectl) -> None:
    """`kubectl wait` fails on a CRD so new that it has no conditions yet, so this asks itself."""
    deadline = time.monotonic() + ESTABLISHED_SECONDS
    while not all(map(is_established, kubectl.json("get", "-f", str(CRDS))["items"])):
        if time.monotonic() > deadline:
            raise DevClusterError(f"the CRDs are not served after {ESTABLISHED_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def is_established(crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def rendered(helm: Path) -> str:
    """The chart as text. The Redis it wants named is of no consequence to accounts and roles."""
    command = [str(helm), "template", "duepoint", str(CHART), "--namespace", NAMESPACE]
    command += ["--set", "redis.url=redis://development.invalid:6379/0"]
    command += ["--set", "blobKey.existingSecret=not-rendered"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise DevClusterError(f"the chart cannot be rendered: {result.stderr.strip()}")
    return result.stdout


def accounts_and_roles(manifests: str) -> list[dict[str, Any]]:
    """Accounts, roles and bindings among `manifests`, namespaces written out, accounts first."""
    found = [one for one in yaml.safe_load_all(manifests) if one and one["kind"] in KINDS]
    for one in found:
        if not one["kind"].startswith(WIDE):
            one["metadata"].setdefault("namespace", NAMESPACE)
    return sorted(found, key=lambda one: KINDS.index(one["kind"]))


def accounts(objects: Iterable[dict[str, Any]]) -> Accounts:
    """The accounts labelled as those of the operator and the worker."""
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
