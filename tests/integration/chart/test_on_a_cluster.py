"""The chart on a real API server: all is accepted, restricted Pods start, rights are right."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.chart.helm import CHART, Helm, values
from tests.integration.crds import kubeapi
from tests.support.controlplane import wait_until

# One worker: the set-up takes seconds.
pytestmark = pytest.mark.xdist_group("chart")

PLURALS = {
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "Ingress": "ingresses",
    "NetworkPolicy": "networkpolicies",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}
CLUSTER_KINDS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def path_of(thing: dict[str, Any]) -> str:
    version = thing["apiVersion"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = PLURALS.get(thing["kind"], thing["kind"].lower() + "s")
    name = thing["metadata"]["name"]
    if thing["kind"] in CLUSTER_KINDS:
        return f"{prefix}/{plural}/{name}"
    return f"{prefix}/namespaces/{thing['metadata']['namespace']}/{plural}/{name}"


def assert_accepted(api: kubeapi.KubeApi, thing: dict[str, Any]) -> None:
    """By a dry run; accounts are created, because a Pod is refused whose account is missing."""
    is_account = thing["kind"] == "ServiceAccount"

    def apply() -> kubeapi.Answer:
        return api.request(
            "PATCH",
            path_of(thing),
            thing,
            content_type="application/apply-patch+yaml",
            force="true",
            fieldManager=kubeapi.MANAGER,
            fieldValidation="Strict",
            **({} if is_account else {"dryRun": "All"}),
        )

    answer = apply()
    if not answer.ok and "error looking up service account" in str(answer.body):
        wait_until(lambda: apply().ok, "the account of the Pod is known")
        return
    assert answer.ok, f"{thing['kind']} {thing['metadata']['name']}: {answer.body}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An installed release."""

    name: str
    namespace: str
    helm: Helm

    def command(self, verb: str, *words: str) -> str:
        return self.helm.run(verb, self.name, *words, f"--namespace={self.namespace}")

    def put(self, verb: str, *words: str) -> str:
        # The CRDs are there already, by `kubectl apply` or another test's release.
        options = ["--take-ownership", f"--values={values('development')}"]
        return self.command(verb, str(CHART), *options, *words)


@pytest.fixture
def release(cluster_helm: Helm, restricted_namespace: str) -> Iterator[Release]:
    name = f"r{uuid.uuid4().hex[:6]}"
    one = Release(name=name, namespace=restricted_namespace, helm=cluster_helm)
    one.put("install")
    yield one
    one.command("uninstall", "--ignore-not-found")


def _things(api: kubeapi.KubeApi, namespace: str, plural: str, group: str = "") -> list[Any]:
    prefix = f"/apis/{group}" if group else "/api/v1"
    return list(api.get(f"{prefix}/namespaces/{namespace}/{plural}")["items"])


def _may(api: kubeapi.KubeApi, user: str, namespace: str, verb: str, resource: str) -> bool:
    """What the authorizer says; a resource is written group/resource[/subresource][=name]."""
    whole, _, name = resource.partition("=")
    group, kind, *sub = whole.split("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "namespace": namespace,
                "verb": verb,
                "group": group,
                "resource": kind,
                "subresource": "".join(sub),
                "name": name,
            },
        },
    }
    answer = api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer.body["status"]["allowed"])


def test_a_release_starts_its_pods_under_pod_security(
    api: kubeapi.KubeApi, release: Release
) -> None:
    """The Pods are admitted, which a Deployment alone does not show."""
    wait_until(
        lambda: len(_things(api, release.namespace, "pods")) == 5,
        "two operators, two workers and a Valkey have Pods",
    )
    sets = _things(api, release.namespace, "replicasets", "apps/v1")
    failures = [c for one in sets for c in one["status"].get("conditions", [])]
    assert failures == []


def test_an_upgrade_keeps_the_blob_key_and_uninstalling_leaves_it_and_the_crds(
    api: kubeapi.KubeApi, release: Release
) -> None:
    secret = f"/api/v1/namespaces/{release.namespace}/secrets/{release.name}-duepoint-blob-key"
    before = api.get(secret)["data"]["blob-key"]
    assert len(before) == 44, "32 bytes in base64"
    deployments = _things(api, release.namespace, "deployments", "apps/v1")
    release.put("upgrade")
    after = _things(api, release.namespace, "deployments", "apps/v1")
    assert [each["spec"] for each in after] == [each["spec"] for each in deployments]
    assert {each["metadata"]["generation"] for each in after} == {1}, "nothing is restarted"
    told = release.put("upgrade", "--set=worker.replicas=3")
    assert "NOT FOR PRODUCTION" in told
    assert api.get(secret)["data"]["blob-key"] == before
    release.command("uninstall")
    assert api.get(secret)["data"]["blob-key"] == before
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/schedules.duepoint.dev"
    assert "deletionTimestamp" not in api.get(crd)["metadata"]


@pytest.mark.usefixtures("release")
def test_who_has_a_role_of_the_cluster_does_with_schedules_what_it_says(
    api: kubeapi.KubeApi, team_namespace: str
) -> None:
    path = f"/apis/duepoint.dev/v1alpha1/namespaces/{team_namespace}"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{team_namespace}/rolebindings"
    for role in ("view", "edit"):
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": role},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": f"who-may-{role}"}],
        }
        assert api.request("POST", rbac, binding).ok

    def asks(role: str, method: str, plural: str, body: Any = None) -> int:
        return api.request(method, f"{path}/{plural}", body, as_user=f"who-may-{role}").code

    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}
    job = {"spec": {"template": {"spec": pod}}}
    schedule = _made("Schedule", "nightly", {"schedule": "@daily", "jobTemplate": job})
    run = _made("ScheduleRun", "now", {"scheduleName": "nightly", "trigger": {}})
    wait_until(lambda: asks("edit", "POST", "schedules", schedule) in (201, 409), "edit creates")
    wait_until(lambda: asks("view", "GET", "schedules/nightly") == 200, "view reads")
    # While other releases come and go, the cluster's roles are without our rules for moments.
    wait_until(lambda: asks("edit", "POST", "scheduleruns", run) in (201, 409), "edit runs")
    assert asks("view", "POST", "schedules", schedule) == 403
    assert asks("view", "POST", "scheduleruns", {**run, "metadata": {"name": "again"}}) == 403
    assert asks("view", "DELETE", "schedules/nightly") == 403
    members = _made("ScheduleSet", "customers", {"stream": {"name": "ticks"}})
    wait_until(lambda: asks("edit", "POST", "schedulesets", members) in (201, 409), "edit creates")
    assert asks("view", "GET", "schedulesets/customers") == 200
    assert asks("view", "PATCH", "schedulesets/customers", {}) == 403
    # Members are no objects: the HTTP API asks by a review whether its caller may have them.
    things = "duepoint.dev/schedulesets/schedules=customers"
    for verb in ("get", "list", "create", "update", "patch", "delete", "trigger", "replay"):
        assert _may(api, "who-may-edit", team_namespace, verb, things), verb
        is_reading = verb in ("get", "list")
        assert _may(api, "who-may-view", team_namespace, verb, things) is is_reading, verb
    told = {"status": {"target": "Job"}}
    for role in ("view", "edit"):  # what is told is the operator's alone
        answer = api.request(
            "PATCH", f"{path}/schedules/nightly/status", told, as_user=f"who-may-{role}",
            content_type="application/merge-patch+json",
        )  # fmt: skip
        assert answer.code == 403


def test_no_role_of_the_cluster_for_people_writes_endpoint_slices(
    api: kubeapi.KubeApi, team_namespace: str
) -> None:
    """Who writes them leads a Service of their namespace where they like."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{team_namespace}/rolebindings"
    group = "rbac.authorization.k8s.io"
    for role in ("view", "edit", "admin"):
        user = f"{role}-of-{team_namespace}"
        binding = {
            "metadata": {"name": role},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
        assert api.request("POST", rbac, binding).ok

        def may(verb: str, resource: str, user: str = user) -> bool:
            return _may(api, user, team_namespace, verb, resource)

        wait_until(lambda may=may: may("list", "/services"), "the role is bound")
        for verb in ("create", "update", "patch", "delete"):
            assert not may(verb, "discovery.k8s.io/endpointslices"), (role, verb)


def _made(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
