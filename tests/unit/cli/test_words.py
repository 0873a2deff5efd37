"""Words, options and names as people write them who know kubectl, and what wrong ones are told."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support import background, pagecommands, runlogs, scriptedapi

ITEM = {
    "metadata": {"name": "nightly", "namespace": "shop", "uid": "u", "generation": 1},
    "spec": {"schedule": "0 2 * * *", "timeZone": "Etc/UTC", "webhook": {"url": "https://a.io/"}},
}
COLLECTION = "/apis/duepoint.dev/v1alpha1/namespaces/shop/schedules"


class Cluster:
    """An API server with one Schedule; ``answers`` says path -> status and body."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {
            COLLECTION: (200, {"items": [ITEM], "metadata": {}}),
            f"{COLLECTION}/nightly": (200, ITEM),
        }
        self.changes: list[Any] = []


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster that the kubeconfig of the environment names."""
    found = Cluster()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH":
            found.changes.append(await request.json())
        status, body = found.answers.get(request.path, (404, {}))
        return web.json_response(body, status=status)

    with background.living(lambda: scriptedapi.serving(answer)) as (server, _):
        write_kubeconfig(tmp_path / "config", server.url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield found


def write_kubeconfig(path: Path, url: str) -> None:
    context = {"cluster": "c", "user": "u", "namespace": "shop"}
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": context}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(json.dumps(document))


# -- words and options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("list", "--all-namespace"), "'--all-namespaces'"),
        (("trigger", "x", "--time-out", "5s"), "Did you mean '--timeout'?"),
        (("queue", "stats", "--al"), "duepoint queue stats -h explains it"),
        (("list", "-x"), "duepoint list -h explains it"),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest(refused, arguments, hint):
    message = refused(*arguments)
    assert "No such option '-" in message
    assert hint in message


@pytest.mark.parametrize("command", [("dlq", "list"), ("queue", "stats"), ("queue", "peek")])
def test_a_command_without_redis_says_where_there_is_one(refused, monkeypatch, command):
    monkeypatch.delenv("DUEPOINT_REDIS_URL", raising=False)
    words = " ".join(command)
    there = f"kubectl exec -n duepoint-system deploy/duepoint-worker -- duepoint {words}"
    said = refused(*command)
    assert "DUEPOINT_REDIS_URL: is not set" in said
    assert there in said
    assert there in refused(*command, "--redis-url", "redis://127.0.0.1:1")


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["why", "trigger", "backfill"])
def test_a_cluster_without_the_crds_is_no_wrong_name(refused, cluster, command):
    cluster.answers[COLLECTION] = (404, {"message": "the server could not find the resource"})
    more = ("--from", "2026-11-01", "--to", "2026-11-02") if command == "backfill" else ()
    assert "install Duepoint" in refused(command, "nightly-x", *more)


# -- times ---------------------------------------------------------------------------------------


# -- the cluster ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("list",), ("doctor",), ("why", "x"), ("trigger", "x")])
def test_a_cluster_that_does_not_answer_is_one_line_and_no_verdict(
    refused, tmp_path, monkeypatch, command
):
    write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    message = refused(*command)
    assert "cluster: http://127.0.0.1:1 does not answer" in message
    assert "is this the right --context?" in message


@pytest.mark.parametrize("command", [("list",), ("doctor",)])
def test_credentials_that_are_over_are_one_line(refused, cluster, command):
    cluster.answers[COLLECTION] = cluster.answers["/version"] = (401, {"message": "Unauthorized"})
    message = refused(*command)
    assert "does not accept these credentials" in message
    assert "log in again" in message


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("list",), "ask an admin of shop for the role view, or edit for changes"),
        (("why", "x"), "ask an admin of shop for the role view, or edit for changes"),
        (("trigger", "x", "-n", "till"), "ask an admin of till for the role view"),
        (("list", "-A"), "ask for the ClusterRole view (edit for changes) in every namespace"),
    ],
    ids=["list", "why", "trigger", "everywhere"],
)
def test_a_right_that_is_missing_says_whom_to_ask_for_what(refused, cluster, arguments, hint):
    said = 'schedules.duepoint.dev is forbidden: User "ann" cannot get resource "schedules"'
    for namespace in ("namespaces/shop/", "namespaces/till/", ""):
        collection = COLLECTION.replace("namespaces/shop/", namespace)
        for path in (collection, f"{collection}/x"):
            cluster.answers[path] = (403, {"message": said})
    message = refused(*arguments)
    assert message.startswith("duepoint: cluster: GET ")
    assert f"{said}; {hint}" in message


def give_a_run(cluster: Cluster, namespace: str, name: str) -> None:
    """A Schedule with a Job and its Pod."""
    metadata = {**ITEM["metadata"], "name": name, "namespace": namespace}
    schedule = {"metadata": metadata, "spec": {"schedule": "0 2 * * *", "jobTemplate": {}}}
    owner = {"controller": True, "uid": "u"}
    job = {"metadata": {"name": "j", "ownerReferences": [owner]}}
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }
    schedules = COLLECTION.replace("shop", namespace)
    cluster.answers |= {
        f"{schedules}/{name}": (200, schedule),
        schedules.replace("/schedules", "/scheduleruns"): (200, {"items": []}),
        f"/apis/batch/v1/namespaces/{namespace}/jobs": (200, {"items": [job]}),
        f"/api/v1/namespaces/{namespace}/pods": (200, {"items": [pod], "metadata": {}}),
    }


@pytest.mark.parametrize("page", ["howto/twenty-tasks", "howto/runbooks"])
def test_the_logs_that_a_page_asks_for_are_asked_of_kubectl(
    duepoint, cluster, page, tmp_path, monkeypatch
):
    kubectl = runlogs.Kubectl(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    give_a_run(cluster, "team-a", "report")
    [path] = [each for each in pagecommands.PAGES if pagecommands.name_of(each) == page]
    commands = [each for block in pagecommands.blocks_of(path) for each in block.left_out]
    [words] = [shlex.split(each) for each in commands if "duepoint logs " in each]
    assert duepoint(*words[words.index("logs") :]).code == 0
    assert len(kubectl.asked()) == 1


# -- output --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nightly", "schedule/nightly", "schedules.duepoint.dev/nightly"])
def test_a_name_may_have_its_kind_as_kubectl_prints_it(duepoint, cluster, name):
    answer = duepoint("describe", name, "-o", "json")
    assert answer.column("name") == ["nightly"]


@pytest.mark.parametrize(
    ("until", "said"),
    [
        ("2020-01-01", '"2020-01-01" is over'),
        ("now", '"now" is over'),
        ("someday", "or a duration from now, such as 2h"),
        ("yesterday 23:59", '"yesterday 23:59" is over'),
        ("2w", 'did you mean "14d"?'),
    ],
)
def test_a_suspension_ends_in_the_future(refused, until, said):
    assert said in refused("suspend", "nightly", "--until", until)
