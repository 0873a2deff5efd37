"""Every wrong object is refused, whichever way it comes, with its field and what to write."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.crds import kubeapi
from tests.integration.crds.manifests import JOB, a_schedule, a_schedule_run, a_schedule_set
from tests.integration.crds.rejected import ALL as OF_SCHEDULES
from tests.integration.crds.rejected import Rejected
from tests.integration.crds.rejectedsets import ALL as OF_SETS

ALL = [*OF_SCHEDULES, *OF_SETS]
CASES = [pytest.param(case, id=case.id) for case in ALL]
KUBECTL = str(Path(sys.executable).with_name("kubectl"))


@pytest.mark.parametrize("case", CASES)
def test_server_side_apply_refuses(api: kubeapi.KubeApi, case: Rejected) -> None:
    answer = api.apply(case.thing, dry_run=True)
    message = answer.body.get("message", "")
    if message.startswith("failed to create typed patch object"):
        # The server merges before it validates: it names the field in words of its own (and
        # answers 500, tried on v1.36).
        assert f": .{_container(case)}" in message
        return
    _assert_refused(answer, case)


@pytest.mark.parametrize(
    "case", [case for case in ALL if case.field != "metadata.name"], ids=lambda case: case.id
)
def test_an_edit_refuses(api: kubeapi.KubeApi, stored: dict[str, Any], case: Rejected) -> None:
    kind = case.thing["kind"]
    edited = copy.deepcopy(case.thing)
    of_jobs = kind == "ScheduleSet" and "jobTemplate" in case.thing["spec"]
    edited["metadata"] = stored["ScheduleSet of Jobs" if of_jobs else kind]["metadata"]
    answer = api.replace(edited, dry_run=True)
    if kind == "ScheduleRun":
        # Its spec does not change at all, so a second message is right.
        assert not answer.ok
        assert case.says in answer.body["message"]
        return
    _assert_refused(answer, case)


def test_client_side_apply_refuses_them_all(
    api: kubeapi.KubeApi, kubeconfig: Path, tmp_path: Path
) -> None:
    """One kubectl for all of them: each process costs a third of a second."""
    assert api is not None, "the CRDs are installed"
    manifest = tmp_path / "all.yaml"
    manifest.write_text("\n---\n".join(json.dumps(case.thing) for case in ALL))
    applied = subprocess.run(
        [KUBECTL, "apply", "--dry-run=server", "-f", str(manifest)],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert applied.stdout == "", "nothing was accepted"
    told = _by_name(applied.stderr)
    silent = [case.id for case in ALL if case.says not in told.get(_told_as(case), "")]
    assert silent == []


@pytest.fixture(scope="module")
def stored(api: kubeapi.KubeApi, namespace: str) -> dict[str, Any]:
    """A good object of each kind for the edits to start from."""
    made = {}
    job = {"spec": {**JOB["spec"], "ttlSecondsAfterFinished": 3600}}
    for kind, thing in (
        ("Schedule", a_schedule("good", namespace=namespace)),
        ("ScheduleRun", a_schedule_run("good", namespace=namespace)),
        ("ScheduleSet", a_schedule_set("good", namespace=namespace)),
        # The target of a set stays a jobTemplate, or none.
        ("ScheduleSet of Jobs", a_schedule_set("jobs", namespace=namespace, jobTemplate=job)),
    ):
        answer = api.create(thing)
        assert answer.ok, answer.body
        made[kind] = answer.body
    return made


def _assert_refused(answer: kubeapi.Answer, case: Rejected) -> None:
    message = answer.body.get("message", "")
    assert not answer.ok, "the object was accepted"
    assert answer.code in (400, 422), message
    assert case.says in message
    if answer.code == 400:
        return  # strict decoding names the field in its message and has no causes
    causes = answer.causes()
    assert len(causes) == 1, "one mistake is one message"
    field, _ = causes[0]
    assert field == case.field


def _container(case: Rejected) -> str:
    """The field, or the list or the object that the field belongs to."""
    field = case.says.split('"')[1] if "unknown field" in case.says else case.field
    return field.partition("[")[0]


def _told_as(case: Rejected) -> str:
    """kubectl does not name an object with a field that it does not know."""
    return "" if "unknown field" in case.says else case.thing["metadata"]["name"]


def _by_name(errors: str) -> dict[str, str]:
    """What kubectl says of each object; an error may have several lines."""
    told: dict[str, str] = {}
    name = ""
    for line in errors.splitlines():
        if line.startswith(("Error from server", "The Schedule")):
            found = re.search(r'"(bad-[a-z0-9-]+)" is invalid', line)
            name = found[1] if found else ""
        told[name] = told.get(name, "") + line
    return told
