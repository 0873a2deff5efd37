"""The chart's cluster-wide roles of the HTTP API and of people, for one installation of a test.

They get names of their own, so that several installations fit into one cluster, and aggregate into
nothing. ``remove`` deletes them; namespaced objects go with their namespace.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.controlplane import ControlPlane
from tests.support.waiting import wait_until
from tools.devcluster import apiserver

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_GROUP = "rbac.authorization.k8s.io"
_COMPONENT = "app.kubernetes.io/component"


def wait_until_may(plane: ControlPlane, of: str, account: str, verb: str, **asked: str) -> None:
    """Wait until the API server's authorizer, which watches roles and bindings, grants the right.

    Args:
        of: the account's namespace.
        asked: further attributes of the access; the group is ours unless given.
    """
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{of}:{account}",
            "resourceAttributes": {"verb": verb, "group": "duepoint.dev", **asked},
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    wait_until(
        lambda: plane.admin().post(path, review)["status"]["allowed"], f"{account} may {verb}"
    )


class ChartRoles:
    """The ClusterRoles ``api``, ``view``, ``edit`` and ``admin`` of the chart."""

    def __init__(self, plane: ControlPlane, system: str) -> None:
        """``system``: the namespace of the installation."""
        self._plane = plane
        self._system = system
        self._paths: list[str] = []
        #: The name of the HTTP API's ServiceAccount.
        self.account = ""

    def install(self, objects: Iterable[dict[str, Any]]) -> None:
        """Create or update the roles among the objects that the chart renders."""
        for found in objects:
            kind, labels = found["kind"], found["metadata"].get("labels", {})
            is_of_api = labels.get(_COMPONENT) == "api"
            if kind == "ServiceAccount" and is_of_api:
                self.account = found["metadata"]["name"]
            elif kind == "ClusterRole" and (is_of_api or labels.get(_COMPONENT) is None):
                self._apply("clusterroles", found)
            elif kind == "ClusterRoleBinding" and is_of_api:
                own = copy.deepcopy(found)
                own["roleRef"]["name"] = self.name_of(own["roleRef"]["name"])
                self._apply("clusterrolebindings", own)

    def bind(self, namespace: str, account: str, role: str) -> None:
        """Give the account the chart's role ``view``, ``edit`` or ``admin`` in the namespace."""
        self.give(
            namespace, account, {"kind": "ClusterRole", "name": self.name_of(f"duepoint-{role}")}
        )
        wait_until_may(
            self._plane, namespace, account, "get", namespace=namespace, resource="schedules"
        )

    def grant(self, namespace: str, account: str, verbs: Sequence[str], *sets: str) -> None:
        """Give the account these verbs on the members of these sets, or of all sets."""
        rule = {
            "apiGroups": ["duepoint.dev"],
            "resources": ["schedulesets/schedules"],
            "verbs": list(verbs),
            **({"resourceNames": list(sets)} if sets else {}),
        }
        path = f"{_RBAC}/namespaces/{namespace}/roles"
        role = {"metadata": {"name": f"members-{account}"}, "rules": [rule]}
        self._plane.admin().post(path, role)
        self.give(namespace, account, {"kind": "Role", "name": f"members-{account}"})
        asked = {"resource": "schedulesets", "subresource": "schedules", "name": "".join(sets[:1])}
        wait_until_may(self._plane, namespace, account, verbs[0], namespace=namespace, **asked)

    def give(self, namespace: str, account: str, role: dict[str, str]) -> None:
        """Bind a role; the binding has the account's name."""
        subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        binding = {
            "metadata": {"name": account}, "roleRef": {"apiGroup": _GROUP, **role},
            "subjects": [subject],
        }  # fmt: skip
        self._plane.admin().post(f"{_RBAC}/namespaces/{namespace}/rolebindings", binding)

    def revoke(self, namespace: str, account: str) -> None:
        """Take away what ``bind``, ``grant`` or ``give`` gave."""
        self._plane.admin().delete(f"{_RBAC}/namespaces/{namespace}/rolebindings/{account}")

    def remove(self) -> None:
        for path in self._paths:
            with contextlib.suppress(apiserver.ApiError):
                self._plane.admin().delete(path)

    def _apply(self, plural: str, found: dict[str, Any]) -> None:
        own = copy.deepcopy(found)
        own["metadata"] = {"name": self.name_of(found["metadata"]["name"])}
        path = f"{_RBAC}/{plural}/{own['metadata']['name']}"
        if path not in self._paths:
            self._paths.append(path)
        self._plane.admin().apply(path, own)

    def name_of(self, name: str) -> str:
        """Return the name in this cluster of a ClusterRole of the chart."""
        return f"{name}.{self._system}"
