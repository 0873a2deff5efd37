"""`duepoint validate`: what a cluster would say, for every object of every file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from duepoint.cli.check import checks
from duepoint.cli.check.manifests import Manifest
from tests.integration.crds.manifests import (
    a_job,
    a_schedule,
    a_schedule_set,
)
from tests.integration.crds.rejected import ALL as OF_SCHEDULES
from tests.integration.crds.rejectedsets import ALL as OF_SETS
from tests.integration.crds.test_accepted_objects import (
    CRONJOB,
    CRONJOB_WITH_NULLS,
    EXPRESSIONS,
)
from tests.integration.crds.test_schedule_sets import GOOD as GOOD_SETS

REJECTED = [*OF_SCHEDULES, *OF_SETS]
ROOT = Path(__file__).resolve().parents[3]
NOW_US = 1_795_000_000_000_000


def checked(thing):
    manifest = Manifest(file="some.yaml", document=1, item="", content=thing)
    return checks.check(manifest, namespace="default", created_us=NOW_US)


def problems(thing):
    return [problem for problem in checked(thing).problems if not problem.is_note]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in REJECTED])
def test_what_the_api_server_refuses_is_told_with_the_same_field(case):
    unknown = case.says.split('"')[1] if "unknown field" in case.says else ""
    told = {problem.path for problem in problems(case.thing)}
    assert any(path.endswith(unknown or case.field) for path in told), told


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_what_the_api_server_accepts_is_valid(text):
    assert problems(a_schedule("good", schedule=text)) == []


@pytest.mark.parametrize("fields", GOOD_SETS.values(), ids=GOOD_SETS)
def test_a_set_that_the_api_server_accepts_is_valid(fields):
    found = checked(a_schedule_set("good", **fields))
    assert found.problems == ()
    assert found.is_valid


def test_the_examples_of_the_repository_are_valid(duepoint):
    files = sorted((ROOT / "examples").rglob("*.yaml"))
    assert files
    answer = duepoint("validate", *(part for file in files for part in ("-f", str(file))))
    assert answer.code in (0, 1), answer.err


LONG = "x" * 64
QUALIFIED = "is not a qualified name; write at most 63 letters, digits, -, _ and ."
#: Metadata that the API server refuses, the field, and what is said of it.
BAD_METADATA = [
    ({"annotations": {"team": 7}}, "annotations.team", "7 is of the wrong type; write a text"),
    ({"labels": {"enabled": True}}, "labels.enabled", "true is of the wrong type; write a text"),
    ({"labels": "x"}, "labels", "write a mapping"),
    (
        {"labels": {"app": "a b"}},
        "labels.app",
        '"a b" is not a valid label value; write at most 63',
    ),
    ({"labels": {"app": "-b"}}, "labels.app", '"-b" is not a valid label value'),
    ({"labels": {"app": "b\n"}}, "labels.app", "is not a valid label value"),
    ({"labels": {"app": LONG}}, "labels.app", "write at most 63 letters"),
    ({"labels": {LONG: "x"}}, "labels", QUALIFIED),
    ({"labels": {"": "x"}}, "labels", f'the key "" {QUALIFIED}'),
    ({"labels": {"A.b/c": "x"}}, "labels", f'the key "A.b/c" {QUALIFIED}'),
    ({"labels": {"/a": "x"}}, "labels", QUALIFIED),
    ({"labels": {"a" * 254 + "/b": "x"}}, "labels", QUALIFIED),
    ({"annotations": {"a b": "x"}}, "annotations", f'the key "a b" {QUALIFIED}'),
    ({"annotations": {"a/b/c": "x"}}, "annotations", f'the key "a/b/c" {QUALIFIED}'),
    ({"annotations": {"a": "é" * 131_072}}, "annotations", "have 262145 bytes in all; at most"),
    ({"finalizers": "x"}, "finalizers", '"x" is of the wrong type; write a list'),
    ({"finalizers": [7]}, "finalizers[0]", "write a text, in quotes"),
    ({"finalizers": ["a b"]}, "finalizers[0]", '"a b": write at most 63 letters'),
    ({"finalizers": ["orphan", "foregroundDeletion"]}, "finalizers", "write one of them"),
    ({"generateName": 5}, "generateName", "write a text, in quotes"),
    ({"generateName": "A_"}, "generateName", '"A_": write lower-case letters'),
    ({"ownerReferences": "x"}, "ownerReferences", "write a list"),
    (
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x"}]},
        "ownerReferences[0].uid",
        "is missing; write a text",
    ),
    ({"uid": 5}, "uid", "write a text, in quotes"),
    ({"deletionTimestamp": "x"}, "deletionTimestamp", '"x" is not a time; write RFC 3339'),
]


GOOD_METADATA = [
    {"labels": None, "annotations": None, "finalizers": None, "creationTimestamp": None},
    {"labels": {"a": None, "b": "", "x" * 63: "x" * 63, "a" * 253 + "/b": "x"}},
    {"annotations": {"A.b/c": "any text\n", "a": None}},
    {"annotations": {"a": "x" * (262_144 - 1)}},
    {"finalizers": ["x", "example.com/cleanup"]},
]


@pytest.mark.parametrize(("metadata", "path", "says"), BAD_METADATA)
def test_metadata_that_the_api_server_refuses_is_wrong(metadata, path, says):
    thing = a_schedule("x")
    thing["metadata"].update(metadata)
    (problem,) = problems(thing)
    assert (problem.path, says in problem.message) == (f"metadata.{path}", True), problem


@pytest.mark.parametrize("metadata", GOOD_METADATA)
def test_metadata_that_the_api_server_takes_is_valid(metadata):
    thing = a_schedule("x")
    thing["metadata"].update(metadata)
    assert problems(thing) == []


POD = "spec.jobTemplate.spec.template.spec"
MAIN = {"name": "main", "image": "busybox"}


def a_container(**fields):
    return a_job(containers=[{**MAIN, **fields}])


def a_job_of(**fields):
    return {"spec": {**a_job()["spec"], **fields}}


#: Templates that Jobs cannot be made of, each with the field that is wrong and what is said of it.
BAD_TEMPLATES = [
    (
        {**a_job(), "metadata": {"labels": {"app": "a b"}}},
        "spec.jobTemplate.metadata.labels.app",
        "is not a valid label value",
    ),
    (
        a_job_of(
            template={**a_job()["spec"]["template"], "metadata": {"annotations": {"a b": "x"}}}
        ),
        "spec.jobTemplate.spec.template.metadata.annotations",
        'the key "a b" is not a qualified name',
    ),
    (a_job_of(manualSelector=True), "spec.jobTemplate.spec.manualSelector", "take manualSelector"),
    (a_job_of(selector={}), "spec.jobTemplate.spec.selector", "take the selector out"),
    (a_job_of(parallelism=-1), "spec.jobTemplate.spec.parallelism", "write 0 or more"),
    (a_job(containers=[]), f"{POD}.containers", "is empty"),
    (a_job(containers=[{"name": "main"}]), f"{POD}.containers[0].image", "is missing"),
    (
        a_container(livenessProbe={"httpGet": {"port": None}}),
        f"{POD}.containers[0].livenessProbe.httpGet.port",
        "is missing",
    ),
    (a_container(image=""), f"{POD}.containers[0].image", "is empty"),
    (a_container(name="Main"), f"{POD}.containers[0].name", '"Main": write lower-case letters'),
    (
        a_container(resources={"limits": {"cpu": "1Gx"}}),
        f"{POD}.containers[0].resources.limits.cpu",
        '"1Gx": write a quantity such as 500m',
    ),
    (
        a_container(resources={"limits": {"cpu": -1}}),
        f"{POD}.containers[0].resources.limits.cpu",
        "write 0 or more",
    ),
    (
        a_container(volumeMounts=[{"name": "data", "mountPath": "/data"}]),
        f"{POD}.containers[0].volumeMounts[0].name",
        "there is no volume of that name",
    ),
    (
        a_job(initContainers=[MAIN]),
        f"{POD}.containers[0].name",
        '"main" is there twice',
    ),
    (
        a_container(livenessProbe={"httpGet": {"port": 1 << 63}}),
        f"{POD}.containers[0].livenessProbe.httpGet.port",
        "9223372036854775808 is out of range",
    ),
    (a_container(commands=["date"]), f"{POD}.containers[0].commands", "did you mean command?"),
    (a_job(volumes=[{"name": {"a": None}}]), f"{POD}.volumes[0].name", "is of the wrong type"),
    (
        {
            "spec": {
                **a_job(restartPolicy="OnFailure")["spec"],
                "podFailurePolicy": {"rules": []},
            }
        },
        "spec.jobTemplate.spec.podFailurePolicy",
        "needs restartPolicy: Never",
    ),
]
GOOD_TEMPLATES = [
    a_job(),
    a_job_of(manualSelector=False, selector=None),
    a_container(resources={"limits": {"cpu": 0.5, "memory": "1Gi"}, "requests": {"cpu": "500m"}}),
    a_job(
        volumes=[{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}],
        containers=[{**MAIN, "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        initContainers=[{"name": "first", "image": "busybox"}],
    ),
]


@pytest.mark.parametrize(("template", "path", "says"), BAD_TEMPLATES)
def test_a_template_that_no_job_can_be_made_of_is_wrong(template, path, says):
    (problem,) = problems(a_schedule("x", jobTemplate=template))
    assert (problem.path, says in problem.message) == (path, True), problem


@pytest.mark.parametrize("template", GOOD_TEMPLATES)
def test_a_template_that_jobs_can_be_made_of_is_valid(template):
    assert problems(a_schedule("x", jobTemplate=template)) == []


def test_a_field_that_a_newer_kubernetes_may_know_is_a_note(duepoint):
    given = yaml.safe_dump(a_schedule("x", jobTemplate=a_job(quantumEntanglement=True)))
    answer = duepoint("validate", "-f", "-", given=given)
    assert (answer.code, answer.err) == (0, "")
    assert "quantumEntanglement: is not a field of a Job in Kubernetes 1." in answer.out


# -- CronJobs --------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [CRONJOB, CRONJOB_WITH_NULLS], ids=["new", "with nulls"])
def test_a_cronjob_is_valid_as_the_schedule_it_becomes(duepoint, text):
    answer = duepoint("validate", "-f", "-", given=text)
    assert (answer.code, answer.err) == (0, "")
    assert "(CronJob nightly): valid as a Schedule, next " in answer.out


def cronjob(**fields):
    thing = yaml.safe_load(CRONJOB)
    thing["spec"].update(fields)
    return json.dumps(thing)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "spec.timeZone: unset"),
        ({"timeZone": "Europe/Rome"}, "a CronJob does not run on 2027-03-28, a Schedule does"),
        ({"timeZone": "Europe/Rome"}, "on 2027-10-31, a Schedule does not"),
        ({"schedule": "@every 1h"}, "counts @every from its last run"),
        ({"startingDeadlineSeconds": 0}, "may never run"),
        ({"suspend": True}, "will be suspended, too"),
    ],
)
def test_what_differs_from_the_cronjob_is_told(duepoint, fields, says):
    answer = duepoint("validate", "-f", "-", given=cronjob(**fields))
    assert answer.code == 0
    assert says in answer.out


# -- files -----------------------------------------------------------------------------------

GOOD = yaml.safe_dump(a_schedule("good"))
BAD = yaml.safe_dump(a_schedule("bad", schedule="61 * * * *"))


def test_a_broken_document_does_not_hide_the_next_one(duepoint):
    answer = duepoint("validate", "-f", "-", given=f"{GOOD}---\nspec: [\n---\n{BAD}")
    assert answer.code == 2
    assert "document 1" in answer.out
    assert "standard input: document 2: line" in answer.err
    assert "document 3 (Schedule default/bad)" in answer.err


@pytest.mark.parametrize(
    ("trigger", "path", "says"),
    [
        ({"payload": {"text": "x" * 65_536}}, "spec.trigger.payload", "65547 bytes"),
        ({"payload": {"text": "\u00e9" * 32_768}}, "spec.trigger.payload", "65547 bytes"),
        ({"scheduledTime": "2113-01-01T00:00:00Z"}, "spec.trigger.scheduledTime", "1970 and 2112"),
    ],
    ids=["long", "long-in-bytes", "too-late"],
)
def test_what_the_operator_would_refuse_of_a_scheduled_run_is_told(duepoint, trigger, path, says):
    given = {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "ScheduleRun",
        "metadata": {"name": "again"},
        "spec": {"scheduleName": "nightly", "trigger": trigger},
    }
    answer = duepoint("validate", "-f", "-", given=json.dumps(given))
    assert answer.code == 2
    assert f"{path}" in answer.out + answer.err
    assert says in answer.out + answer.err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe\x00", "is not text in UTF-8"),
        (b"a: \xff", "is not text in UTF-8"),
        (b"spec: \x00", "is not text in UTF-8"),
        (b"spec:\n\tschedule: x\n", "line 2, column 1: a tab"),
        (b"schedule: */5 * * * *\n", "needs quotes"),
        (b"schedule: @daily\n", "put it into quotes"),
        (b'a:\n  b: "0 *\n  c: ["d"]\n', "line 2, column 6: the quote that is opened here"),
        (b"a:\n  b: '0 *\n  c: d\n", "line 2, column 6: the quote that is opened here"),
        (b'a: "b\n  c"\nd:\n\te: f\n', "line 4, column 1: a tab"),
        (b"kind: Schedule\nkind: CronJob\n", 'line 2: the key "kind" is there twice'),
        (b"apiVersion: a\napiVersion: b\n", "another object begins behind a line of three dashes"),
        (b'spec:\n  schedule:"@daily"\n  webhook: {}\n', 'a blank is missing behind "schedule:"'),
        (b'spec:\nschedule: "x"\n  webhook: {}\n', "line 3, column 3: this line does not begin"),
        (b"spec:\nschedule: x\n  webhook: {}\n", "line 3, column 10: there is a second colon"),
        (b'{"kind": "Schedule", "kind": "CronJob"}', 'the key "kind" is there twice'),
        (b"[" * 100_000, "nested deeper than 100 levels"),
        (b"{a: " * 100_000, "nested deeper than 100 levels"),
        (b'{"a": ' * 100_000, "nested deeper than 100 levels"),
        (b"a: &a [*a]", "*a is not defined before it"),
        (b"{{- if .Values.on }}\na: 1\n{{- end }}\n", "line 1: {{ ... }} is a template"),
        (b"a: 1\nb: {{ .Values.b }}\n", "line 2: {{ ... }} is a template"),
        (b"kind: Schedule\n~: 1\n", "line 2: a mapping's key must be a text"),
        (b"{{ .Values.key }}: 1\n", "line 1: {{ ... }} is a template"),
        (b'{"kind": "Schedule", "spec": 1e400}', "the number 1e400 is too large"),
        (b"just words", "is not a Kubernetes object"),
        (b"- 1\n- 2\n", "is not a Kubernetes object"),
        (b"kind: List\nitems: 5\n", "items: a list has its objects here"),
        (b"apiVersion: duepoint.dev/v2\nkind: Schedule\n", "write duepoint.dev/v1alpha1"),
        (b"apiVersion: duepoint.dev/v1alpha1\nkind: Shedule\n", "write Schedule or ScheduleRun"),
        (b"kind: Schedule\n", "apiVersion: is missing"),
        (b"apiVersion: v1alpha1\nkind: Schedule\n", '"v1alpha1": write duepoint.dev/v1alpha1'),
        (b"apiVersion: duepoint.dev/v1alpha1\nkind: Schedule\n", "metadata: is missing"),
    ],
    ids=range(32),
)
def test_what_cannot_be_read_is_told_in_a_line(duepoint, given, says):
    answer = duepoint("validate", "-f", "-", given=given)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err
    assert max(len(line) for line in answer.err.splitlines()) < 300


@pytest.mark.parametrize("levels", [100, 900, 1_500, 5_000, 20_000])
def test_a_deep_payload_is_refused_with_its_field_at_any_depth(duepoint, levels):
    """Decoders give up at some depth, each version of Python at another."""
    payload = '{"a": ' * levels + "1" + "}" * levels
    given = (
        '{"apiVersion": "duepoint.dev/v1alpha1", "kind": "Schedule", "metadata": {"name": "deep"},'
        ' "spec": {"schedule": "@daily", "webhook": {"url": "https://a.example"},'
        f' "payload": {payload}}}}}'
    )
    answer = duepoint("validate", "-f", "-", given=given)
    assert answer.code == 2
    assert "spec.payload: is nested deeper than 100 levels; write it flatter" in answer.err


def test_a_text_of_aliases_costs_a_message_and_no_memory(duepoint):
    bomb = b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    for before, after in zip(b"abcdefgh", b"bcdefghi", strict=True):
        bomb += b"%c: &%c [%s]\n" % (after, after, b",".join([b"*%c" % before] * 9))
    answer = duepoint("validate", "-f", "-", given=bomb)
    assert answer.code == 2
    assert "more than 1000000 values" in answer.err


def test_files_that_are_none_are_told(duepoint, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as opened:
        opened.truncate(100 << 20)
    for file, says in (
        (empty, "has no file that ends in .yaml"),
        (tmp_path / "missing.yaml", "cannot be read: No such file"),
        (huge, "is larger than 32 MiB"),
        ("a\0b", "null byte"),
    ):
        answer = duepoint("validate", "-f", str(file))
        assert answer.code == 2
        assert says in answer.err
        assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True),
        ("N", False),
        ("1e3", 1000),
        ("1.0", 1),
        ("0X1f", 31),
        ("0O17", 15),
        ("1e400", "1e400"),
        ("!custom 5", "5"),
        ("!!binary aGk=", "hi"),
        ("!!python/object/apply:os.system [x]", ["x"]),
    ],
)
def test_a_value_is_read_as_kubectl_reads_it(text, value):
    from duepoint.cli.check import manifests

    [document] = manifests.documents(f"value: {text}\n".encode())
    assert document == {"value": value}
    assert type(document["value"]) is type(value)


def a_calling_schedule(**spec):
    return {
        "apiVersion": "duepoint.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": "a"},
        "spec": {**spec, "webhook": {"url": "https://a.example/"}},
    }


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"scheduel": "@daily"}, ["spec.scheduel: is unknown; did you mean schedule?"]),
        (
            {"at": "2027-01-01T00:00:00Z"},
            ['spec.at: is unknown; write schedule: "@at 2026-12-24T18:00:00Z"'],
        ),
        (
            {"schedule": ["@daily"]},
            [
                "spec.schedule: a list is of the wrong type; write one text, or the list as",
            ],
        ),
        (
            {"schedule": "@daily", "webhook": "https://a.example/"},
            [
                'spec.webhook: "https://a.example/" is of the wrong type; write a mapping: {url: ',
            ],
        ),
        (
            {"schedule": "@daily", "jitter": 30},
            ["spec.jitter: 30 is of the wrong type; write a duration such as 30s or 5m"],
        ),
        (
            {"schedule": "@daily", "backoffLimit": 3},
            ["spec.backoffLimit: is unknown; it belongs into spec.jobTemplate.spec"],
        ),
        ({"schedule": "30 25 * * *"}, ["spec.schedule: hour, column 4: "]),
        (
            {"schedule": "${SCHEDULE}"},
            ["spec.schedule: column 1: ${SCHEDULE} is a variable that was not replaced"],
        ),
        (
            {"schedule": "@daily", "webhook": {"url": "https://a.example/", "timeout": "10s"}},
            [
                "spec.webhook.timeout: is unknown; write whole seconds, such as timeoutSeconds: 10",
            ],
        ),
        (
            {"schedule": "@daily", "webhook": {"ulr": "https://a.example/"}},
            ["spec.webhook.ulr: is unknown; did you mean url?"],
        ),
        (
            {"schedule": "@daily", "webook": {"url": "https://a.example/", "method": "GETT"}},
            [
                "spec.webook: is unknown; did you mean webhook?",
                'spec.webook.method: "GETT": write POST, PUT, ',
            ],
        ),
    ],
)
def test_a_mistake_is_one_message_and_hides_no_other(duepoint, spec, says):
    target = {} if "webook" in spec else {"webhook": {"url": "https://a.example/"}}
    given = json.dumps({**a_calling_schedule(), "spec": {**target, **spec}})
    [row] = duepoint("validate", "-f", "-", "-o", "json", given=given).rows
    found = [f"{each['field']}: {each['message']}" for each in row["problems"]]
    assert [problem[: len(words)] for problem, words in zip(found, says, strict=True)] == says


def test_problems_inside_what_has_a_problem_itself_are_listed(duepoint):
    pod = {
        "restartPolicy": "Always",
        "containers": [
            {
                "name": "a",
                "image": "b",
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "resources": {"limits": {"cpu": -1}},
            }
        ],
    }
    template = {"spec": {"template": {"spec": pod}}}
    given = json.dumps(
        {**a_calling_schedule(), "spec": {"schedule": "@daily", "jobTemplate": template}}
    )
    [row] = duepoint("validate", "-f", "-", "-o", "json", given=given).rows
    assert len(row["problems"]) == 3


def test_files_and_folders_come_by_position_and_a_folder_is_its_manifests(duepoint, tmp_path):
    manifest = """\
apiVersion: duepoint.dev/v1alpha1
kind: Schedule
metadata: {name: NAME}
spec: {schedule: "@daily", webhook: {url: "https://a.example/"}}
"""
    (tmp_path / "b.yaml").write_text(manifest.replace("NAME", "b"))
    (tmp_path / "a.yml").write_text(manifest.replace("NAME", "a"))
    (tmp_path / "notes.txt").write_text("none of it")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "c.txt").write_text("{}")
    (tmp_path / "deep" / "d.yaml").write_text(manifest.replace("NAME", "d"))

    def names(*arguments):
        return [row["name"] for row in duepoint("validate", *arguments, "-o", "json").rows]

    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "e.yaml").write_text(manifest.replace("NAME", "e"))
    assert names(str(tmp_path)) == ["a", "b", "d"]
    assert names(str(tmp_path / "b.yaml"), "-f", str(tmp_path / "a.yml")) == ["b", "a"]
    assert "write a file or a folder" in duepoint("validate").err
