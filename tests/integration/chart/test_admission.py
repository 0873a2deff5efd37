"""The chart's admission policies on a real API server, by impersonated users."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.integration.chart.helm import VARIANTS, Helm
from tests.integration.crds import kubeapi
from tests.support.controlplane import ControlPlane, wait_until

pytestmark = pytest.mark.xdist_group("chart")

POLICIES = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
DUEPOINT = "/apis/duepoint.dev/v1alpha1"

JOB = {
    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}
}
TO_JOB = {"schedule": "@daily", "jobTemplate": {"spec": JOB}}
TO_WEBHOOK = {"schedule": "@daily", "webhook": {"url": "https://a.example/"}}
TOKEN = {"serviceAccountToken": {"serviceAccountName": "deployer", "audience": "billing"}}
WITH_TOKEN = {
    "schedule": "@daily",
    "webhook": {"url": "https://a.example/", "auth": TOKEN},
}

SET_OF_JOBS = {"jobTemplate": {"spec": {**JOB, "ttlSecondsAfterFinished": 600}}}
SET_OF_HOOKS = {"webhook": {"url": "https://a.example/"}}
SET_WITH_TOKEN = {"webhook": {"url": "https://a.example/", "auth": TOKEN}}
SET_OF_ROWS = {**SET_OF_HOOKS, "rows": {"configMapRef": {"name": "customers"}}}

#: What the installation lets a set ask for; above what a set has that says nothing.
MOST_MEMBERS = 2_000_000

#: Written by somebody without the right to create Jobs, before there were policies.
FROM_BEFORE = "from-before"

#: What each person may do beside reading: (API group, resource, verbs, name).
PEOPLE: dict[str, list[tuple[str, str, list[str], str]]] = {
    "scheduler": [
        ("duepoint.dev", "schedules", ["*"], ""),
        ("duepoint.dev", "schedules/status", ["*"], ""),
        ("duepoint.dev", "schedulesets", ["*"], ""),
        ("duepoint.dev", "scheduleruns", ["*"], ""),
    ],
    "developer": [
        ("duepoint.dev", "schedules", ["*"], ""),
        ("duepoint.dev", "scheduleruns", ["*"], ""),
        ("duepoint.dev", "schedulesets", ["*"], ""),
        ("batch", "jobs", ["create"], ""),
        ("", "configmaps", ["get"], "customers"),
        ("", "serviceaccounts/token", ["create"], "deployer"),
    ],
    "runner": [
        ("duepoint.dev", "scheduleruns", ["create"], ""),
        ("duepoint.dev", "schedules", ["run"], "nightly"),
    ],
}


@dataclass(slots=True, kw_only=True)
class World:
    """An installation's policies, a namespace it looks after, and people with rights there."""

    api: kubeapi.KubeApi
    release: str
    team: str
    made: list[str] = field(default_factory=list)

    def put(self, path: str, thing: dict[str, Any]) -> None:
        named = {**thing.get("metadata", {}), "name": path.rpartition("/")[2]}
        thing = {**thing, "metadata": named}
        answer = self.api.request(
            "PATCH", path, thing, content_type="application/apply-patch+yaml",
            force="true", fieldManager=kubeapi.MANAGER,
        )  # fmt: skip
        assert answer.ok, answer.body

    def user(self, person: str) -> str:
        return f"{person}-{self.team}"

    def ask(
        self, user: str, method: str, path: str, body: object = None, **query: str
    ) -> kubeapi.Answer:
        return self.api.request(method, path, body, as_user=user, **query)

    def create(
        self,
        person: str,
        spec: dict[str, Any],
        *,
        namespace: str = "",
        name: str = "",
        kind: str = "Schedule",
    ) -> kubeapi.Answer:
        space = namespace or self.team
        thing = {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name or f"s{uuid.uuid4().hex[:8]}", "namespace": space},
            "spec": spec,
        }
        plural = kubeapi.PLURALS[kind]
        return self.ask(self.user(person), "POST", f"{DUEPOINT}/namespaces/{space}/{plural}", thing)

    def run(self, person: str, schedule: str, **trigger: str) -> kubeapi.Answer:
        thing = {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": "ScheduleRun",
            "metadata": {"generateName": "r-", "namespace": self.team},
            "spec": {"scheduleName": schedule, "trigger": trigger},
        }
        return self.ask(
            self.user(person), "POST", f"{DUEPOINT}/namespaces/{self.team}/scheduleruns", thing
        )

    def schedule(self, name: str) -> str:
        return f"{DUEPOINT}/namespaces/{self.team}/schedules/{name}"


@pytest.fixture(scope="module")
def world(
    helm: Helm,
    api: kubeapi.KubeApi,
    duepoint_plane: ControlPlane,
) -> Iterator[World]:
    release, team = (f"{kind}-{uuid.uuid4().hex[:6]}" for kind in ("release", "team"))
    one = World(api=api, release=release, team=team)
    for name in (release, team):
        one.put(f"/api/v1/namespaces/{name}", {"apiVersion": "v1", "kind": "Namespace"})
        for person, rights in PEOPLE.items():
            give(one, name, person, rights)
    # The policies of a release that another test has just removed are in force for a moment.
    wait_until(lambda: one.create("scheduler", TO_JOB, name=FROM_BEFORE).ok, "no policy is left")
    policies = []
    bound = f"--set=admission.setMembers={MOST_MEMBERS}"
    for thing in helm.rendered("development", bound, namespace=release):
        if thing["kind"].startswith("ValidatingAdmissionPolicy"):
            plural = {"ValidatingAdmissionPolicy": "validatingadmissionpolicies"}.get(
                thing["kind"], "validatingadmissionpolicybindings"
            )
            policies.append(f"{POLICIES}/{plural}/{thing['metadata']['name']}")
            one.put(policies[-1], thing)
    assert len(policies) == 10
    try:
        wait_until(lambda: one.create("scheduler", TO_JOB).code == 403, "the policy is in force")
        wait_until(lambda: one.run("runner", "weekly").code == 403, "the policy is in force")
        wait_until(
            lambda: one.create("scheduler", SET_OF_JOBS, kind="ScheduleSet").code == 403,
            "the policy is in force",
        )
        yield one
    finally:
        for path in policies:
            api.request("DELETE", path)
        for name in (release, team):
            api.request("DELETE", f"/api/v1/namespaces/{name}")


def give(
    world: World, namespace: str, person: str, rights: list[tuple[str, str, list[str], str]]
) -> None:
    version = "rbac.authorization.k8s.io/v1"
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs}
        | ({"resourceNames": [name]} if name else {})
        for group, resource, verbs, name in rights
    ]
    role = {"apiVersion": version, "kind": "Role", "rules": rules}
    world.put(f"{RBAC}/namespaces/{namespace}/roles/{person}", role)
    binding = {
        "apiVersion": version,
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": person},
        "subjects": [
            {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "User",
                "name": world.user(person),
            }
        ],
    }
    world.put(f"{RBAC}/namespaces/{namespace}/rolebindings/{person}", binding)


def message(answer: kubeapi.Answer) -> str:
    return str(answer.body.get("message", ""))


# -- Schedules ------------------------------------------------------------------------------------


def test_a_schedule_of_jobs_takes_the_right_to_create_jobs(world: World) -> None:
    refused = world.create("scheduler", TO_JOB)
    assert refused.code == 403
    assert "you may not create jobs.batch in this namespace" in message(refused)
    assert world.create("developer", TO_JOB).ok
    assert world.create("scheduler", TO_WEBHOOK).ok


def _update(world: World, name: str, spec: dict[str, Any]) -> kubeapi.Answer:
    known = world.api.get(world.schedule(name))
    return world.ask(world.user("scheduler"), "PUT", world.schedule(name), {**known, "spec": spec})


def _merge(world: World, name: str, spec: dict[str, Any]) -> kubeapi.Answer:
    without = {"webhook": None} if "jobTemplate" in spec else {}
    return world.ask(
        world.user("scheduler"), "PATCH", world.schedule(name), {"spec": {**without, **spec}},
        content_type="application/merge-patch+json",
    )  # fmt: skip


def _apply(world: World, name: str, spec: dict[str, Any]) -> kubeapi.Answer:
    thing = {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": name},
        "spec": spec,
    }
    return world.ask(
        world.user("scheduler"), "PATCH", world.schedule(name), thing,
        content_type="application/apply-patch+yaml", force="true", fieldManager="them",
    )  # fmt: skip


@pytest.mark.parametrize("road", [_update, _merge])
def test_no_change_of_a_schedule_is_a_way_around_it(
    world: World, road: Callable[..., kubeapi.Answer]
) -> None:
    name = f"from-webhook-by{road.__name__}".replace("_", "-")
    assert world.create("scheduler", TO_WEBHOOK, name=name).ok
    refused = road(world, name, TO_JOB)
    assert refused.code == 403, message(refused)
    assert "jobs.batch" in message(refused)
    name = f"of-jobs-by{road.__name__}".replace("_", "-")
    assert world.create("developer", TO_JOB, name=name).ok
    changed = {**TO_JOB, "schedule": "@hourly"}
    assert road(world, name, changed).code == 403


def test_server_side_apply_is_no_way_around_it(world: World) -> None:
    assert _apply(world, "applied", TO_JOB).code == 403
    assert _apply(world, "applied", TO_WEBHOOK).ok


def test_a_schedule_that_sends_tokens_takes_the_right_to_make_them(world: World) -> None:
    refused = world.create("scheduler", WITH_TOKEN)
    assert refused.code == 403
    assert "serviceaccounts/token" in message(refused)
    assert "deployer" in message(refused)
    assert world.create("developer", WITH_TOKEN).ok
    token = {"serviceAccountToken": {"serviceAccountName": "another", "audience": "billing"}}
    other = {"schedule": "@daily", "webhook": {"url": "https://a.example/", "auth": token}}
    assert world.create("developer", other).code == 403


@pytest.mark.parametrize("spec", [TO_JOB, WITH_TOKEN], ids=["Jobs", "tokens"])
def test_where_duepoint_runs_no_schedule_has_rights_of_its_own(
    world: World, spec: dict[str, Any]
) -> None:
    refused = world.create("developer", spec, namespace=world.release)
    assert refused.code == 403
    assert "use another namespace" in message(refused)
    assert world.create("developer", TO_WEBHOOK, namespace=world.release).ok


# -- ScheduleSets ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (SET_OF_JOBS, "you may not create jobs.batch in this namespace"),
        (SET_WITH_TOKEN, "you may not create serviceaccounts/token of it"),
        (SET_OF_ROWS, "ConfigMap customers"),
    ],
    ids=["Jobs", "tokens", "rows"],
)
def test_a_set_takes_the_rights_that_it_uses(world: World, spec: dict[str, Any], says: str) -> None:
    refused = world.create("scheduler", spec, kind="ScheduleSet")
    assert refused.code == 403
    assert says in message(refused)
    made = world.create("developer", spec, kind="ScheduleSet")
    assert made.ok, message(made)
    path = f"{DUEPOINT}/namespaces/{world.team}/schedulesets/{made.body['metadata']['name']}"

    def merge(body: dict[str, Any]) -> kubeapi.Answer:
        return world.ask(
            world.user("scheduler"), "PATCH", path, body,
            content_type="application/merge-patch+json",
        )  # fmt: skip

    assert merge({"metadata": {"labels": {"a": "b"}}}).ok
    assert merge({"spec": {"limits": {"members": 5}}}).code == 403
    assert world.create("scheduler", SET_OF_HOOKS, kind="ScheduleSet").ok


def test_a_set_may_not_show_another_config_map(world: World) -> None:
    other = {**SET_OF_HOOKS, "rows": {"configMapRef": {"name": "secrets-of-others"}}}
    refused = world.create("developer", other, kind="ScheduleSet")
    assert refused.code == 403
    assert "secrets-of-others" in message(refused)


@pytest.mark.parametrize("spec", [SET_OF_JOBS, SET_WITH_TOKEN], ids=["Jobs", "tokens"])
def test_where_duepoint_runs_no_set_has_rights_of_its_own(
    world: World, spec: dict[str, Any]
) -> None:
    refused = world.create("developer", spec, namespace=world.release, kind="ScheduleSet")
    assert refused.code == 403
    assert "use another namespace" in message(refused)


def test_a_set_may_not_ask_for_more_of_redis_than_the_installation_gives(world: World) -> None:
    def asked(members: int, **more: object) -> kubeapi.Answer:
        spec = {**SET_OF_HOOKS, "limits": {"members": members}, **more}
        return world.create("scheduler", spec, kind="ScheduleSet")

    refused = asked(MOST_MEMBERS + 1)
    assert refused.code == 403
    assert f"write at most {MOST_MEMBERS}" in message(refused)
    made = asked(MOST_MEMBERS)
    assert made.ok, message(made)
    path = f"{DUEPOINT}/namespaces/{world.team}/schedulesets/{made.body['metadata']['name']}"
    later = world.ask(
        world.user("scheduler"), "PATCH", path, {"spec": {"limits": {"members": 100_000_000}}},
        content_type="application/merge-patch+json",
    )  # fmt: skip
    assert later.code == 403
    assert asked(MOST_MEMBERS + 1, rows={"inline": [{"id": "a", "schedule": "@daily"}]}).ok


# -- ScheduleRuns ---------------------------------------------------------------------------------


def test_a_run_by_hand_takes_the_verb_run_on_its_schedule(world: World) -> None:
    refused = world.run("runner", "weekly")
    assert refused.code == 403
    assert "you may not run Schedule weekly" in message(refused)
    assert world.run("runner", "nightly").ok


def test_a_run_by_hand_chooses_its_policy_without_a_right_on_jobs(world: World) -> None:
    assert not [right for right in PEOPLE["runner"] if right[1] == "jobs"]
    for policy in ("Allow", "Replace"):
        made = world.run("runner", "nightly", concurrencyPolicy=policy)
        assert made.ok, message(made)


def test_a_run_by_hand_is_never_led_to_another_schedule(world: World) -> None:
    made = world.run("runner", "nightly")
    path = f"{DUEPOINT}/namespaces/{world.team}/scheduleruns/{made.body['metadata']['name']}"
    led = world.ask(
        world.user("scheduler"), "PATCH", path, {"spec": {"scheduleName": "weekly"}},
        content_type="application/merge-patch+json",
    )  # fmt: skip
    assert led.code == 422, message(led)


# -- Duepoint's own accounts ----------------------------------------------------------------------


def a_job(world: World, *, owner: dict[str, Any] | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"generateName": "j-"}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": JOB}


@pytest.fixture(scope="module")
def accounts(world: World) -> dict[str, str]:
    """Both accounts, with more rights than the chart gives: the policy is what is tested."""
    names = {
        process: f"system:serviceaccount:{world.release}:duepoint-{process}"
        for process in ("operator", "worker")
    }
    for space in (world.team, world.release, "kube-system"):
        version = "rbac.authorization.k8s.io/v1"
        rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]}]
        name = f"jobs-{world.release}"
        world.put(
            f"{RBAC}/namespaces/{space}/roles/{name}",
            {"apiVersion": version, "kind": "Role", "rules": rules},
        )
        subjects = [
            {"kind": "ServiceAccount", "name": f"duepoint-{process}", "namespace": world.release}
            for process in names
        ]
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        binding = {"apiVersion": version, "kind": "RoleBinding", "roleRef": role}
        world.put(
            f"{RBAC}/namespaces/{space}/rolebindings/{name}", {**binding, "subjects": subjects}
        )
    path = f"/apis/batch/v1/namespaces/{world.team}/jobs"
    wait_until(
        lambda: "ScheduleSet controls" in message(
            world.ask(names["worker"], "POST", path, a_job(world, owner=None), dryRun="All")
        ),
        "the policy is in force",
    )  # fmt: skip
    return names


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_a_policy_cannot_judge_is_refused(helm: Helm, variant: str) -> None:
    things = helm.rendered(variant)
    policies = [one for one in things if one["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [one for one in things if one["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert [one["spec"]["failurePolicy"] for one in policies] == ["Fail"] * 5
    assert [one["spec"]["validationActions"] for one in bindings] == [["Deny"]] * 5
    named = {one["metadata"]["name"] for one in policies}
    assert {one["spec"]["policyName"] for one in bindings} == named


def test_an_installation_for_some_namespaces_judges_those_alone(helm: Helm) -> None:
    things = helm.rendered("development", "--set=watchNamespaces={a,b}")
    bound = {
        one["metadata"]["name"].partition(".")[0].rpartition("-")[2]: one["spec"]
        for one in things
        if one["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    for policy in ("schedules", "schedulesets", "scheduleruns"):
        (selector,) = bound[policy]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert selector["values"] == ["a", "b", "duepoint-system"]
    for policy in ("jobs", "operator"):
        assert "matchResources" not in bound[policy]
