"""What the chart renders, without a cluster: rights, settings, refusals, and the same CRDs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from duepoint import settings
from duepoint.net import addresses
from tests.integration.chart.helm import CHART, KUBE_VERSION, VARIANTS, Helm, of_kind, values
from tests.integration.crds.conftest import definitions

WATCHED = "duepoint.dev/schedules duepoint.dev/scheduleruns duepoint.dev/schedulesets"
SCHEDULES = f"{WATCHED} duepoint.dev/schedulesets/schedules"
STATUS = " ".join(f"{resource}/status" for resource in WATCHED.split())
WRITE = "get list watch create update patch delete deletecollection"

# Every right the chart hands out: role -> resources -> verbs. A change here is a change of what an
# attacker who takes over a process can do; it belongs into the change log.
OPERATOR = {
    WATCHED: "list watch",
    "duepoint.dev/scheduleruns": "delete",
    "duepoint.dev/schedulesets": "patch",
    STATUS: "patch",
    "/configmaps": "get",
    "batch/jobs": "list watch create delete",
    "/pods": "list",
    "events.k8s.io/events": "create list",
}
SYSTEM = {"/namespaces=kube-system": "get"}
WORKER = {
    "batch/jobs": "create get list delete",
    "/services": "get",
    "discovery.k8s.io/endpointslices": "list",
}
LEASE = {
    "coordination.k8s.io/leases": "create",
    "coordination.k8s.io/leases=duepoint-operator": "get update",
}
#: While `helm test` runs.
TEST = {"duepoint.dev/schedules": "create", "duepoint.dev/schedules=duepoint-test": "get delete"}
EDIT = {
    SCHEDULES: WRITE,
    STATUS: "get",
    "duepoint.dev/schedules": "run",
    "duepoint.dev/schedulesets/schedules": "trigger replay",
}
EVERYWHERE = {
    "Role duepoint-operator-lease": LEASE,
    "Role duepoint-identity": {"/namespaces=duepoint-system": "get"},
    "Role duepoint-installation-reader": {"coordination.k8s.io/leases=duepoint-operator": "get"},
    "ClusterRole duepoint-secret-reader": {"/secrets /configmaps": "get"},
    "ClusterRole duepoint-view": {SCHEDULES: "get list watch", STATUS: "get"},
    "ClusterRole duepoint-edit": EDIT,
    "ClusterRole duepoint-admin": EDIT,
}
CLUSTER_WIDE = {
    "ClusterRole duepoint-operator": OPERATOR | SYSTEM,
    "ClusterRole duepoint-worker": WORKER | SYSTEM,
    "Role duepoint-test": TEST,
    **EVERYWHERE,
}
NAMESPACED = {
    **{f"Role {team}/duepoint-operator": OPERATOR for team in ("team-a", "team-b")},
    **{f"Role {team}/duepoint-worker": WORKER for team in ("team-a", "team-b")},
    "Role team-a/duepoint-test": TEST,
    **EVERYWHERE,
}


def _rights(things: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    found = {}
    for role in of_kind(things, "Role", "ClusterRole"):
        namespace = role["metadata"].get("namespace", "")
        prefix = f"{namespace}/" if namespace.startswith("team-") else ""
        rules = {}
        for rule in role["rules"]:
            names = "".join(f"={name}" for name in rule.get("resourceNames", []))
            resources = [
                f"{group}/{resource}{names}"
                for group in rule["apiGroups"]
                for resource in rule["resources"]
            ]
            rules[" ".join(resources)] = " ".join(rule["verbs"])
        found[f"{role['kind']} {prefix}{role['metadata']['name']}"] = rules
    return found


@pytest.mark.parametrize(
    ("variant", "rights"),
    [("development", CLUSTER_WIDE), ("production", CLUSTER_WIDE), ("namespaced", NAMESPACED)],
)
def test_the_roles_hold_these_rights_and_no_others(
    helm: Helm, variant: str, rights: dict[str, dict[str, str]]
) -> None:
    assert _rights(helm.rendered(variant)) == rights


def test_kube_state_metrics_reads_schedules_sets_and_crds_alone(helm: Helm) -> None:
    account = "serviceAccount.name=ksm,metrics.kubeStateMetrics.serviceAccount.namespace=monitoring"
    options = f"metrics.kubeStateMetrics.enabled=true,metrics.kubeStateMetrics.{account}"
    things = helm.rendered("development", f"--set={options}")
    assert _rights(things)["ClusterRole duepoint-kube-state-metrics"] == {
        "duepoint.dev/schedules duepoint.dev/schedulesets": "list watch",
        "apiextensions.k8s.io/customresourcedefinitions": "list watch",
    }
    assert "ksm has ClusterRole duepoint-kube-state-metrics in everywhere" in _bindings(things)
    assert not [one for one in _bindings(helm.rendered("development")) if "metrics" in one]


def _bindings(things: list[dict[str, Any]]) -> set[str]:
    bound = set()
    for binding in of_kind(things, "RoleBinding", "ClusterRoleBinding"):
        role = binding["roleRef"]
        for subject in binding["subjects"]:
            place = binding["metadata"].get("namespace", "everywhere")
            bound.add(f"{subject['name']} has {role['kind']} {role['name']} in {place}")
    return bound


def test_nobody_is_bound_to_more_than_its_own_role(helm: Helm) -> None:
    assert _bindings(helm.rendered("development")) == {
        "duepoint-operator has ClusterRole duepoint-operator in everywhere",
        "duepoint-worker has ClusterRole duepoint-worker in everywhere",
        "duepoint-operator has Role duepoint-operator-lease in duepoint-system",
        "duepoint-operator has Role duepoint-identity in duepoint-system",
        "duepoint-worker has Role duepoint-identity in duepoint-system",
        "duepoint-test has Role duepoint-test in duepoint-system",
        "system:authenticated has Role duepoint-installation-reader in duepoint-system",
    }


def test_the_secret_reader_is_bound_only_on_demand_and_only_where_we_look(helm: Helm) -> None:
    asked = _bindings(helm.rendered("namespaced"))
    quiet = _bindings(helm.rendered("namespaced", "--set=webhooks.secretAccess=PerNamespace"))
    assert asked - quiet == {
        f"duepoint-worker has ClusterRole duepoint-secret-reader in {team}"
        for team in ("team-a", "team-b")
    }


def test_a_namespaced_release_binds_nothing_everywhere(helm: Helm) -> None:
    things = helm.rendered("namespaced")
    assert of_kind(things, "ClusterRoleBinding") == []


def _deployment(things: list[dict[str, Any]], component: str) -> dict[str, Any]:
    [found] = [
        thing
        for thing in of_kind(things, "Deployment")
        if thing["metadata"]["name"].endswith(f"-{component}")
    ]
    return found


def _environment(deployment: dict[str, Any], folder: Path) -> dict[str, str]:
    """The variables as the process would see them, with files and Secrets filled in."""
    filled = {
        "DUEPOINT_NAMESPACE": "duepoint-system",
        "DUEPOINT_IDENTITY": "duepoint-0",
        "DUEPOINT_REDIS_URL": "redis://redis:6379/0",
    }
    found = {}
    for variable in deployment["spec"]["template"]["spec"]["containers"][0]["env"]:
        name = variable["name"]
        found[name] = variable["value"] if "value" in variable else filled.pop(name)
        if name.endswith("_FILE"):
            stand_in = folder / name
            stand_in.write_bytes(bytes(32))
            found[name] = str(stand_in)
    assert not filled, "every value from elsewhere is asked for"
    return found


def test_each_process_may_have_a_redis_user_of_its_own(helm: Helm) -> None:
    things = helm.rendered("production")
    found = {}
    for component in ("operator", "worker"):
        pod = _deployment(things, component)["spec"]["template"]["spec"]
        named = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        [volume] = [each for each in pod["volumes"] if each["name"] == "redis-password"]
        found[component] = (named.get("DUEPOINT_REDIS_USERNAME"), volume["secret"]["secretName"])
    assert found == {"operator": ("duepoint-operator", "redis-operator"), "worker": (None, "redis")}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_processes_understand_every_setting(helm: Helm, variant: str, tmp_path: Path) -> None:
    things = helm.rendered(variant)
    operator = _environment(_deployment(things, "operator"), tmp_path)
    worker = _environment(_deployment(things, "worker"), tmp_path)
    read = settings.read(settings.OperatorSettings, operator, {})
    assert read.installation == "duepoint"
    assert settings.read(settings.WorkerSettings, worker, {}).grace_seconds > 0


def test_the_chart_carries_the_crds_as_they_are(helm: Helm) -> None:
    carried = of_kind(helm.rendered("development"), "CustomResourceDefinition")
    for crd in carried:
        assert crd["metadata"].pop("labels")["app.kubernetes.io/instance"] == "duepoint"
        assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert sorted(carried, key=_name) == sorted(definitions(), key=_name)


def _name(thing: dict[str, Any]) -> str:
    return str(thing["metadata"]["name"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set=redis.development.enabled=false"], "say where Redis is in exactly one way"),
        (["--set=redis.url=redis://redis:6379"], "say where Redis is in exactly one way"),
        (["--set=workers.replicas=3"], "workers"),
        (["--set=egress.mode=anything"], "egress"),
        (["--set=egress.allowedCIDRs={127.0.0.1/32}"], "allowedCIDRs"),
        (["--set=egress.allowedCIDRs={::1/128}"], "allowedCIDRs"),
        (["--set=egress.allowedCIDRs={::ffff:127.0.0.1/128}"], "allowedCIDRs"),
        (["--set=shards=100"], "shards"),
        (["--set=worker.graceSeconds=soon"], "graceSeconds"),
        (["--set=redis.development.enabled=false,redis.url=http://x"], "url"),
        (["--set=metrics=null"], "missing property 'metrics'"),
    ],
    ids=[
        "no redis",
        "two redis",
        "misspelt value",
        "unknown mode",
        "loopback",
        "loopback six",
        "mapped loopback",
        "shards no power of two",
        "text for a number",
        "redis over http",
        "empty section",
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, words: list[str], says: str) -> None:
    told = helm.run(
        "template",
        "duepoint",
        str(CHART),
        f"--kube-version={KUBE_VERSION}",
        f"--values={values('development')}",
        *words,
        refused=True,
    )
    assert says in told


def test_network_policies_close_what_nobody_needs(helm: Helm) -> None:
    policies = {
        one["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]
        for one in helm.rendered("production")
        if one["kind"] == "NetworkPolicy"
    }
    assert set(policies) == {"operator", "worker"}
    for component, spec in policies.items():
        pods = _deployment(helm.rendered("production"), component)["spec"]["template"]
        labels = pods["metadata"]["labels"]
        assert spec["podSelector"]["matchLabels"].items() <= labels.items()
        (rule,) = spec["ingress"]
        assert [port["port"] for port in rule["ports"]] == ["http"]
    ports = [{port["port"] for port in rule["ports"]} for rule in policies["operator"]["egress"]]
    assert ports == [{53, 5353}, {443, 6443}, {6379, 26379}]
    _, anywhere = policies["worker"]["egress"]
    refused = [
        cidr for peer in anywhere["to"] for cidr in peer.get("ipBlock", {}).get("except", [])
    ]
    assert set(refused) == {str(network) for network, _ in addresses.SPECIAL}
    assert not [one for one in helm.rendered("namespaced") if one["kind"] == "NetworkPolicy"]


def _policy(things: list[dict[str, Any]], component: str) -> dict[str, Any]:
    (policy,) = [
        one["spec"]
        for one in things
        if one["kind"] == "NetworkPolicy" and one["metadata"]["name"].endswith(f"-{component}")
    ]
    return dict(policy)


def test_ports_and_peers_of_the_network_policies_are_those_of_the_values(helm: Helm) -> None:
    """What has no right to any other address is no way out for who has taken a process over."""
    to = {"apiServer": "10.0.0.10/32", "redis": "10.0.0.11/32", "dns": "10.0.0.12/32"}
    options = (
        *("apiServer.ports={8443}", "redis.ports={7000,7001}", "dns.ports={1053}", "enabled=true"),
        *(f"{name}.to[0].ipBlock.cidr={cidr}" for name, cidr in to.items()),
    )
    words = [f"--set=networkPolicy.{one}" for one in options]
    things = helm.rendered("production", *words, "--set=api.enabled=true,api.tls.enabled=false")
    for component in ("operator", "api"):
        egress = _policy(things, component)["egress"]
        assert [
            ([port["port"] for port in rule["ports"]], rule["to"][0]["ipBlock"]["cidr"])
            for rule in egress
        ] == [
            ([1053, 1053], "10.0.0.12/32"),
            ([8443], "10.0.0.10/32"),
            ([7000, 7001], "10.0.0.11/32"),
        ]


def test_the_development_valkey_is_reached_by_the_processes_alone(helm: Helm) -> None:
    things = helm.rendered("development", "--set=networkPolicy.enabled=true")
    valkey = _policy(things, "valkey")
    pods = {
        one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"][
            "template"
        ]["metadata"]["labels"]
        for one in things
        if one["kind"] == "Deployment"
    }
    assert set(pods) == {"operator", "worker", "valkey"}
    assert valkey["podSelector"]["matchLabels"].items() <= pods["valkey"].items()
    assert valkey["egress"] == []
    ((rule),) = valkey["ingress"]
    (peer,) = rule["from"]
    selector = peer["podSelector"]
    (component,) = selector["matchExpressions"]
    assert (component["key"], component["operator"]) == ("app.kubernetes.io/component", "In")
    assert set(component["values"]) == {"operator", "worker"}
    assert selector["matchLabels"].items() <= pods["worker"].items()
    to_redis = _policy(things, "operator")["egress"][-1]
    assert to_redis["to"] == [{"podSelector": valkey["podSelector"]}]


def test_without_a_peer_nobody_reads_metrics(helm: Helm) -> None:
    things = helm.rendered("development", "--set=networkPolicy.enabled=true")
    for component in ("operator", "worker"):
        assert _policy(things, component)["ingress"] == []
