"""Who has stolen a token of a process: what the real API server lets them do, and what not.

A release of the chart is installed, and each request is made with a token of one of its accounts.
SECURITY.md names these tests beside its sentences.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.chart.helm import CHART, Helm, values
from tests.integration.crds import kubeapi
from tests.support.controlplane import ControlPlane, wait_until

pytestmark = [pytest.mark.xdist_group("chart"), pytest.mark.usefixtures("duepoint_plane")]

DUEPOINT = "/apis/duepoint.dev/v1alpha1"
EVENTS = "/apis/events.k8s.io/v1"
LEASES = "/apis/coordination.k8s.io/v1"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
OURS, THEIRS = "duepoint.dev/members", "example.com/keep"
PROCESSES = ("operator", "worker", "api")

PRIVILEGED = {
    "restartPolicy": "Never",
    "containers": [{"name": "a", "image": "b", "securityContext": {"privileged": True}}],
}
JOB = {"template": {"spec": PRIVILEGED}}
WEBHOOK = {"webhook": {"url": "https://a.example/"}}
TO_WEBHOOK = {"schedule": "@yearly", **WEBHOOK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A release, a namespace that it looks after, and a client with each stolen token.

    Attributes:
        prefix: what the names of the release begin with.
        system: its own namespace.
        api: of an administrator.
    """

    prefix: str
    system: str
    team: str
    api: kubeapi.KubeApi
    stolen: dict[str, kubeapi.KubeApi]

    def make(self, path: str, thing: dict[str, Any]) -> dict[str, Any]:
        """An object that is there already when the token is stolen."""
        made = self.api.request("POST", path, thing)
        assert made.ok, made.body
        return dict(made.body)

    def schedule(self, kind: str, spec: dict[str, Any], **metadata: Any) -> tuple[str, Any]:
        """A new object of Duepoint's: its path, and what it is."""
        thing = {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": f"n{uuid.uuid4().hex[:8]}", **metadata},
            "spec": spec,
        }
        path = f"{DUEPOINT}/namespaces/{self.team}/{kubeapi.PLURALS[kind]}"
        made = self.make(path, thing)
        return f"{path}/{made['metadata']['name']}", made

    def jobs(self, namespace: str = "") -> str:
        return f"/apis/batch/v1/namespaces/{namespace or self.team}/jobs"


@pytest.fixture(scope="module")
def cluster(
    cluster_helm: Helm, api: kubeapi.KubeApi, control_plane: ControlPlane
) -> Iterator[Callable[..., Installation]]:
    """Releases with every process, which are gone when the tests are over."""
    made: list[tuple[str, str, str]] = []
    clients: list[kubeapi.KubeApi] = []

    def install(folder: Path, *options: str) -> Installation:
        name = f"r{uuid.uuid4().hex[:6]}"
        system, team = control_plane.create_namespace("system"), control_plane.create_namespace()
        made.append((name, system, team))
        cluster_helm.run(
            "install", name, str(CHART), f"--namespace={system}", "--take-ownership",
            f"--values={values('development')}", "--set=api.enabled=true,api.tls.enabled=false",
            *options,
        )  # fmt: skip
        prefix = f"{name}-duepoint"
        stolen = {}
        for process in (*PROCESSES, "stranger"):
            account = f"{prefix}-{process}"
            login = control_plane.service_account_kubeconfig(system, account, folder)
            stolen[process] = kubeapi.KubeApi(login)
        clients.extend(stolen.values())
        return Installation(prefix=prefix, system=system, team=team, api=api, stolen=stolen)

    yield install
    for client in clients:
        client.close()
    for name, system, team in made:
        cluster_helm.run("uninstall", name, f"--namespace={system}", "--ignore-not-found")
        for namespace in (system, team):
            control_plane.discard_namespace(namespace)


@pytest.fixture(scope="module")
def installed(
    cluster: Callable[..., Installation], tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    found = cluster(tmp_path_factory.mktemp("stolen"))
    path, _ = found.schedule("ScheduleSet", WEBHOOK)
    wait_until(
        lambda: (
            _patched(found, path, {"metadata": {"labels": {"a": uuid.uuid4().hex}}}).code == 403
            and _created(found, "worker", _a_job(None)).code == 403
        ),
        "the policies are in force",
    )
    return found


def _patched(
    installed: Installation,
    path: str,
    body: object,
    content_type: str = MERGE,
    process: str = "operator",
    **query: str,
) -> kubeapi.Answer:
    token = installed.stolen[process]
    return token.request("PATCH", path, body, content_type=content_type, **query)


def _a_job(owner: dict[str, Any] | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"generateName": "j-"}
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True,
                "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            }
        ]  # fmt: skip
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": JOB}


def _created(
    installed: Installation, process: str, job: dict[str, Any], namespace: str = "", **query: str
) -> kubeapi.Answer:
    return installed.stolen[process].request("POST", installed.jobs(namespace), job, **query)


MADE_UP = {
    "apiVersion": "duepoint.dev/v1alpha1",
    "kind": "Schedule",
    "metadata": {"name": "made-up", "uid": "7d3cf6a0-0000-4000-8000-000000000000"},
}


# -- all of it ------------------------------------------------------------------------------------

#: In every namespace, and in the release's own beside these.
RIGHTS = {
    "operator": {
        *(
            f"{verb} duepoint.dev/{plural}"
            for verb in ("list", "watch")
            for plural in ("schedules", "scheduleruns", "schedulesets")
        ),
        "delete duepoint.dev/scheduleruns",
        "patch duepoint.dev/schedulesets",
        *(f"patch duepoint.dev/schedule{kind}/status" for kind in ("s", "runs", "sets")),
        "get /configmaps",
        "list /pods",
        *(f"{verb} batch/jobs" for verb in ("list", "watch", "create", "delete")),
        *(f"{verb} events.k8s.io/events" for verb in ("create", "list")),
        "get /namespaces=kube-system",
    },
    "worker": {
        *(f"{verb} batch/jobs" for verb in ("create", "get", "list", "delete")),
        "get /services",
        "list discovery.k8s.io/endpointslices",
        "get /namespaces=kube-system",
    },
    "api": {
        "create authentication.k8s.io/tokenreviews",
        "create authorization.k8s.io/subjectaccessreviews",
    },
}
OWN_RIGHTS = {
    "operator": {
        "get /namespaces={system}",
        "create coordination.k8s.io/leases",
        *(f"{verb} coordination.k8s.io/leases={{lease}}" for verb in ("get", "update")),
    },
    "worker": {"get /namespaces={system}"},
    "api": set[str](),
}


def _rights(client: kubeapi.KubeApi, namespace: str) -> set[str]:
    """What the API server says that the owner of a token may do there."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status = client.request("POST", path, review).body["status"]
    assert not status["incomplete"]
    return {
        f"{verb} {group}/{resource}{name and f'={name}'}"
        for rule in status["resourceRules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources", [])
        for name in rule.get("resourceNames", [""])
    }


@pytest.mark.parametrize("process", PROCESSES)
def test_a_token_has_these_rights_and_no_others(installed: Installation, process: str) -> None:
    def beyond_a_strangers(namespace: str) -> set[str]:
        stranger = _rights(installed.stolen["stranger"], namespace)
        return _rights(installed.stolen[process], namespace) - stranger

    wait_until(lambda: bool(beyond_a_strangers(installed.team)), "the roles are known")
    names = {"system": installed.system, "lease": f"{installed.prefix}-operator"}
    own = {right.format(**names) for right in OWN_RIGHTS[process]}
    # Of its own Lease the operator reads what everybody may read.
    own -= _rights(installed.stolen["stranger"], installed.system)
    for namespace in (installed.team, "kube-system", "default"):
        assert beyond_a_strangers(namespace) == RIGHTS[process]
    assert beyond_a_strangers(installed.system) == RIGHTS[process] | own


# -- the worker's ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Schedule", "ScheduleSet"])
def test_the_workers_token_runs_any_pod_as_a_job_of_a_schedule(
    installed: Installation, kind: str
) -> None:
    spec = TO_WEBHOOK if kind == "Schedule" else WEBHOOK
    _, owner = installed.schedule(kind, spec)
    made = _created(installed, "worker", _a_job(owner))
    assert made.code == 201, made.body
    name = made.body["metadata"]["name"]
    pods = f"/api/v1/namespaces/{installed.team}/pods"
    found: list[Any] = []

    def has_pod() -> bool:
        query = {"labelSelector": f"job-name={name}"}
        found[:] = installed.api.request("GET", pods, **query).body["items"]
        return bool(found)

    wait_until(has_pod, "the Job has a Pod")
    (container,) = found[0]["spec"]["containers"]
    assert container["securityContext"]["privileged"]


def test_the_workers_token_names_schedules_that_do_not_exist(installed: Installation) -> None:
    assert _created(installed, "worker", _a_job(MADE_UP)).code == 201


def test_the_workers_token_creates_no_other_jobs(installed: Installation) -> None:
    of_another = {**MADE_UP, "apiVersion": "batch/v1", "kind": "CronJob"}
    for owner in (None, of_another):
        assert _created(installed, "worker", _a_job(owner)).code == 403
    for namespace in (installed.system, "kube-system"):
        refused = _created(installed, "worker", _a_job(MADE_UP), namespace, dryRun="All")
        assert refused.code == 403


def test_the_workers_token_deletes_jobs_of_schedules_and_no_others(
    installed: Installation,
) -> None:
    _deletes_jobs_of_schedules_alone(installed, "worker")


def _deletes_jobs_of_schedules_alone(installed: Installation, process: str) -> None:
    _, schedule = installed.schedule("Schedule", TO_WEBHOOK)
    owned, foreign = (
        f"{installed.jobs()}/{made['metadata']['name']}"
        for made in (
            installed.make(installed.jobs(), _a_job(schedule)),
            installed.make(installed.jobs(), _a_job(None)),
        )
    )
    assert installed.stolen[process].request("DELETE", owned).ok
    assert installed.stolen[process].request("DELETE", foreign).code == 403


def test_the_workers_token_reads_services_slices_and_jobs_and_writes_no_events(
    installed: Installation,
) -> None:
    worker = installed.stolen["worker"]
    core = f"/api/v1/namespaces/{installed.team}"
    service = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    installed.make(f"{core}/services", service)
    job = installed.make(installed.jobs(), _a_job(None))["metadata"]["name"]
    assert worker.request("GET", f"{core}/services/a").ok
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{installed.team}/endpointslices"
    assert worker.request("GET", slices).ok
    assert worker.request("GET", f"{installed.jobs()}/{job}").ok
    assert worker.request("GET", "/apis/batch/v1/jobs").ok
    assert worker.request("POST", *_event(installed)).code == 403


def _event(installed: Installation) -> tuple[str, dict[str, Any]]:
    """Return the path of Events and a new one."""
    path = f"{EVENTS}/namespaces/{installed.team}/events"
    return path, {
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": f"e{uuid.uuid4().hex}", "namespace": installed.team},
        "eventTime": "2026-11-26T00:00:00.000000Z", "type": "Normal", "reason": "Said",
        "action": "Said", "note": "anything", "reportingController": "a",
        "reportingInstance": "b",
        "regarding": {"kind": "Pod", "namespace": installed.team, "name": "a"},
    }  # fmt: skip


def test_the_workers_token_reads_secrets_only_where_an_admin_lets_it(
    installed: Installation,
) -> None:
    worker = installed.stolen["worker"]
    core = f"/api/v1/namespaces/{installed.team}"
    for plural in ("secrets", "configmaps"):
        installed.make(f"{core}/{plural}", {"metadata": {"name": "canary"}})
        assert worker.request("GET", f"{core}/{plural}/canary").code == 403
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{installed.team}/rolebindings"
    group = "rbac.authorization.k8s.io"
    account, role = f"{installed.prefix}-worker", f"{installed.prefix}-secret-reader"
    installed.make(
        rbac,
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [
                {"kind": "ServiceAccount", "name": account, "namespace": installed.system}
            ],
        },
    )  # fmt: skip
    try:
        for plural in ("secrets", "configmaps"):
            path = f"{core}/{plural}/canary"
            wait_until(lambda path=path: worker.request("GET", path).ok, "the role is bound")
            assert worker.request("GET", f"{core}/{plural}").code == 403
        elsewhere = f"/api/v1/namespaces/{installed.system}/secrets/canary"
        assert worker.request("GET", elsewhere).code == 403
    finally:
        installed.api.request("DELETE", f"{rbac}/reader")


@pytest.mark.parametrize("kind", ["Schedule", "ScheduleSet"])
def test_the_workers_token_reads_and_writes_no_schedule_and_no_status(
    installed: Installation, kind: str
) -> None:
    path, _ = installed.schedule(kind, TO_WEBHOOK if kind == "Schedule" else WEBHOOK)
    worker = installed.stolen["worker"]
    assert worker.request("GET", path).code == 403
    for where, body in ((path, {"spec": {"suspend": True}}), (f"{path}/status", {"status": {}})):
        assert _patched(installed, where, body, process="worker").code == 403


# -- the operator's -------------------------------------------------------------------------------


def test_the_operators_token_reads_schedules_jobs_events_and_any_config_map(
    installed: Installation,
) -> None:
    operator = installed.stolen["operator"]
    for plural in ("schedules", "scheduleruns", "schedulesets"):
        assert operator.request("GET", f"{DUEPOINT}/{plural}", limit="1").ok
    for path in ("/apis/batch/v1/jobs", "/api/v1/pods", f"{EVENTS}/events"):
        assert operator.request("GET", path, limit="1").ok
    core = f"/api/v1/namespaces/{installed.system}"
    installed.make(f"{core}/configmaps", {"metadata": {"name": "of-no-set"}})
    assert operator.request("GET", f"{core}/configmaps/of-no-set").ok
    assert operator.request("GET", f"{core}/configmaps").code == 403


def test_the_operators_token_reads_no_secret(installed: Installation) -> None:
    operator = installed.stolen["operator"]
    core = f"/api/v1/namespaces/{installed.system}"
    for path in (f"{core}/secrets", f"{core}/secrets/{installed.prefix}-blob-key"):
        assert operator.request("GET", path).code == 403
    token = f"{core}/serviceaccounts/{installed.prefix}-worker/token"
    assert operator.request("POST", token, {"spec": {}}).code == 403


def test_the_operators_token_writes_statuses_and_nothing_else_by_them(
    installed: Installation,
) -> None:
    run = {"scheduleName": "x", "trigger": {}}
    for kind, spec in (("Schedule", TO_WEBHOOK), ("ScheduleRun", run), ("ScheduleSet", WEBHOOK)):
        path, before = installed.schedule(kind, spec)
        body = {
            "metadata": {"labels": {"a": "b"}, "finalizers": [THEIRS]},
            "spec": {"suspend": True},
            "status": {"observedGeneration": 1},
        }
        told = _patched(installed, f"{path}/status", body)
        assert told.ok, told.body
        after = installed.api.get(path)
        assert after["status"] == {"observedGeneration": 1}
        assert after["spec"] == before["spec"]
        assert {"labels", "finalizers"}.isdisjoint(after["metadata"])


def test_the_operators_token_creates_jobs_as_a_dry_run_only(installed: Installation) -> None:
    _, schedule = installed.schedule("Schedule", TO_WEBHOOK)
    assert _created(installed, "operator", _a_job(schedule), dryRun="All").ok
    assert _created(installed, "operator", _a_job(schedule)).code == 403


def test_the_operators_token_deletes_jobs_of_schedules_and_runs_and_no_others(
    installed: Installation,
) -> None:
    _deletes_jobs_of_schedules_alone(installed, "operator")
    operator = installed.stolen["operator"]
    run, _ = installed.schedule("ScheduleRun", {"scheduleName": "x", "trigger": {}})
    assert operator.request("DELETE", run).ok
    for kind, spec in (("Schedule", TO_WEBHOOK), ("ScheduleSet", WEBHOOK)):
        path, _ = installed.schedule(kind, spec)
        assert operator.request("DELETE", path).code == 403


def test_the_operators_token_writes_new_events_and_changes_none(installed: Installation) -> None:
    path, event = _event(installed)
    assert installed.stolen["operator"].request("POST", path, event).code == 201
    theirs = installed.make(*_event(installed))["metadata"]["name"]
    body = {"note": "anything else"}
    assert _patched(installed, f"{path}/{theirs}", body, process="operator").code == 403


def test_the_operators_token_writes_its_lease_and_makes_others(installed: Installation) -> None:
    operator = installed.stolen["operator"]
    leases = f"{LEASES}/namespaces/{installed.system}/leases"
    mine, theirs = f"{installed.prefix}-operator", f"l{uuid.uuid4().hex[:8]}"
    assert operator.request("POST", leases, {"metadata": {"name": mine}}).code in (201, 409)
    known = operator.request("GET", f"{leases}/{mine}").body
    stolen = {**known, "spec": {**known.get("spec", {}), "holderIdentity": "thief"}}
    changed = operator.request("PUT", f"{leases}/{mine}", stolen)
    assert changed.ok, changed.body
    made = operator.request("POST", leases, {"metadata": {"name": theirs}})
    assert made.code == 201
    assert operator.request("PUT", f"{leases}/{theirs}", made.body).code == 403
    elsewhere = f"{LEASES}/namespaces/{installed.team}/leases"
    assert operator.request("POST", elsewhere, {"metadata": {"name": mine}}).code == 403


SET_OF_JOBS = {"jobTemplate": {"spec": {**JOB, "ttlSecondsAfterFinished": 600}}}
HARMLESS = {
    "jobTemplate": {
        "spec": {
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}
            },
            "ttlSecondsAfterFinished": 600,
        }
    }
}


CHANGES: list[tuple[str, str, object]] = [
    ("spec", "jobTemplate", SET_OF_JOBS["jobTemplate"]),
    ("spec", "suspend", True),
    ("metadata", "labels", {"a": "c"}),
    ("metadata", "labels", None),
    ("metadata", "annotations", {"a": "c"}),
    ("metadata", "ownerReferences", None),
    ("metadata", "finalizers", None),
    ("metadata", "finalizers", [THEIRS, OURS, "example.com/other"]),
]


@pytest.mark.parametrize(
    ("part", "key", "value", "by"),
    [
        (*change, by)
        for change in CHANGES
        for by in (MERGE, JSON_PATCH, APPLY)
        if (change[-1], by) != (None, APPLY)  # an apply takes nothing away that another has set
    ],
)
def test_the_operators_token_changes_nothing_of_a_set(
    installed: Installation, part: str, key: str, value: object, by: str
) -> None:
    """The worker would create the Jobs of a set that was rewritten."""
    core = f"/api/v1/namespaces/{installed.team}/configmaps"
    owner = installed.make(core, {"metadata": {"generateName": "owner-"}})["metadata"]
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["name"], "uid": owner["uid"]}
    ]
    path, before = installed.schedule(
        "ScheduleSet", HARMLESS, labels={"a": "b"}, annotations={"a": "b"}, finalizers=[THEIRS],
        ownerReferences=references,
    )  # fmt: skip
    body: Any = {part: {key: value}}
    if by == JSON_PATCH:
        change = {"op": "remove"} if value is None else {"op": "add", "value": value}
        body = [{**change, "path": f"/{part}/{key}"}]
    if by == APPLY:
        body = {"apiVersion": before["apiVersion"], "kind": before["kind"], **body}
    query = {"force": "true", "fieldManager": "thief"} if by == APPLY else {}
    try:
        refused = _patched(installed, path, body, by, **query)
        assert refused.code == 403, refused.body
        assert "the finalizer duepoint.dev/members, and nothing else" in refused.body["message"]
        after = installed.api.get(path)
        assert after["spec"] == before["spec"]
        assert after["metadata"] == before["metadata"]
    finally:
        _let_go(installed, path)


def test_the_operators_token_makes_no_object_of_duepoints(installed: Installation) -> None:
    run = {"scheduleName": "x", "trigger": {}}
    operator = installed.stolen["operator"]
    for kind, spec in (("Schedule", TO_WEBHOOK), ("ScheduleRun", run), ("ScheduleSet", WEBHOOK)):
        path = f"{DUEPOINT}/namespaces/{installed.team}/{kubeapi.PLURALS[kind]}"
        thing = {
            "apiVersion": "duepoint.dev/v1alpha1", "kind": kind, "metadata": {"name": "a"},
            "spec": spec,
        }  # fmt: skip
        assert operator.request("POST", path, thing).code == 403
        query = {"force": "true", "fieldManager": "thief"}
        assert _patched(installed, f"{path}/a", thing, APPLY, **query).code == 403
        existing, _ = installed.schedule(kind, spec)
        if kind != "ScheduleSet":
            assert _patched(installed, existing, {"spec": {"suspend": True}}).code == 403


def test_the_operators_token_takes_and_gives_the_finalizer_of_sets(
    installed: Installation,
) -> None:
    """What it needs the right to change sets for."""
    path, _ = installed.schedule("ScheduleSet", WEBHOOK, finalizers=[THEIRS])
    try:
        for wanted in ([THEIRS, OURS], [THEIRS], [OURS, THEIRS], [THEIRS]):
            change = {"op": "add", "path": "/metadata/finalizers", "value": wanted}
            changed = _patched(installed, path, [change], JSON_PATCH)
            assert changed.ok, changed.body
            assert installed.api.get(path)["metadata"]["finalizers"] == wanted
    finally:
        _let_go(installed, path)


def _let_go(installed: Installation, path: str) -> None:
    assert installed.api.merge(path, {"metadata": {"finalizers": None}}).ok
    assert installed.api.request("DELETE", path).ok


# -- the HTTP API's -------------------------------------------------------------------------------


def test_the_http_apis_token_asks_about_tokens_and_rights(installed: Installation) -> None:
    thief = installed.stolen["api"]
    reviews = {
        "authentication": ("TokenReview", "tokenreviews", {"token": "made-up"}),
        "authorization": (
            "SubjectAccessReview",
            "subjectaccessreviews",
            {"user": "a", "resourceAttributes": {"verb": "get", "resource": "pods"}},
        ),
    }
    for group, (kind, plural, spec) in reviews.items():
        version = f"{group}.k8s.io/v1"
        body = {"apiVersion": version, "kind": kind, "spec": spec}
        assert thief.request("POST", f"/apis/{version}/{plural}", body).code == 201


def test_the_http_apis_token_reads_and_writes_no_object(installed: Installation) -> None:
    thief = installed.stolen["api"]
    path, _ = installed.schedule("Schedule", TO_WEBHOOK)
    core = f"/api/v1/namespaces/{installed.team}"
    for where in (path, f"{DUEPOINT}/schedules", f"{core}/configmaps", f"{core}/secrets"):
        assert thief.request("GET", where).code == 403
    assert thief.request("DELETE", path).code == 403
    assert _created(installed, "api", _a_job(MADE_UP), dryRun="All").code == 403


# -- without the policies -------------------------------------------------------------------------


def test_without_the_policies_tokens_run_and_delete_any_job_and_rewrite_sets(
    cluster: Callable[..., Installation], tmp_path: Path
) -> None:
    bare = cluster(tmp_path, "--set=admission.enabled=false")
    for process in ("worker", "operator"):
        wait_until(
            lambda process=process: _created(bare, process, _a_job(None)).code == 201,
            "the roles are known",
        )
        job = bare.make(bare.jobs(), _a_job(None))["metadata"]["name"]
        assert bare.stolen[process].request("DELETE", f"{bare.jobs()}/{job}").ok
    path, _ = bare.schedule("ScheduleSet", HARMLESS)
    changed = _patched(bare, path, {"spec": SET_OF_JOBS})
    assert changed.ok, changed.body
