"""What must be in the cluster before the processes start: CRDs, a namespace, accounts and rights.

Accounts, roles and admission policies are those of `charts/duepoint`; its Deployments are left out,
because operator and worker run on this machine. So a right that the chart forgets is missing here.
They are in `rendered.yaml` as Helm renders them, so that a start needs no Helm, which takes
minutes to build. Once the chart is another one than that file was made of, Helm renders it;
`make generate` writes the file anew, and a test refuses a stale one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tools import helm
from tools.devcluster.errors import DevClusterError
from tools.devcluster.state import REPOSITORY
from tools.up.kubectl import Kubectl

NAMESPACE = "duepoint-system"
CHART = REPOSITORY / "charts" / "duepoint"
CRDS = REPOSITORY / "crds"
RENDERED = Path(__file__).with_name("rendered.yaml")
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


def install(kubectl: Kubectl) -> Accounts:
    """Everything in place, and the CRDs served."""
    for path in sorted(CRDS.glob("*.yaml")):
        kubectl.apply(path.read_text())
    _wait_until_established(kubectl)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    kubectl.apply(yaml.safe_dump(namespace))
    objects = chart_objects()
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


def chart_objects() -> list[dict[str, Any]]:
    """Accounts and roles of the chart as it is."""
    mark, _, text = RENDERED.read_text().partition("\n")
    return accounts_and_roles(text if mark == mark_of_today() else rendered())


def write_rendered() -> None:
    """Write the file anew."""
    text = yaml.safe_dump_all(accounts_and_roles(rendered()), sort_keys=True)
    RENDERED.write_text(f"{mark_of_today()}\n{text}")


def mark_of_today() -> str:
    """The first line of the file if it were written now: which chart it is made of."""
    digest = hashlib.sha256()
    files = (CHART / "Chart.yaml", CHART / "values.yaml", *CHART.rglob("templates/**/*"))
    for path in sorted(each for each in files if each.is_file() and "crds" not in each.parts):
        digest.update(f"{path.relative_to(CHART)}\0".encode() + path.read_bytes() + b"\0")
    return f"# Written by make generate; do not edit. Chart {digest.hexdigest()}"


def rendered() -> str:
    """The chart as text. The Redis it wants named is of no consequence to accounts and roles."""
    options = (
        "--set=redis.url=redis://development.invalid:6379/0",
        "--set=blobKey.existingSecret=not-rendered",
    )
    return helm.template(CHART, release="duepoint", namespace=NAMESPACE, options=options)


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


if __name__ == "__main__":
    write_rendered()
