"""The workflows ask only for what the repository has, and hand out few rights."""

from __future__ import annotations

import re

import pytest
import yaml

from tools.devcluster import binaries
from tools.devcluster.state import REPOSITORY

FOLDER = REPOSITORY / ".github" / "workflows"
WORKFLOWS = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.yaml"))}


def steps(text):
    return [
        step
        for job in yaml.load(text, Loader=yaml.CSafeLoader)["jobs"].values()
        for step in job["steps"]
    ]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_make_targets_and_modules_of_a_workflow_exist(name):
    scripts = "\n".join(step.get("run", "") for step in steps(WORKFLOWS[name]))
    makefile = (REPOSITORY / "Makefile").read_text()

    for target in re.findall(r"\bmake ([a-z-]+)", scripts):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for module in re.findall(r"-m (tools[\w.]+)", scripts):
        assert (REPOSITORY / f"{module.replace('.', '/')}.py").exists(), module


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_script_contains_text_that_others_choose(name):
    """What comes with an event reaches a script by a variable only."""
    for step in steps(WORKFLOWS[name]):
        assert "${{" not in step.get("run", ""), step


@pytest.mark.parametrize("name", WORKFLOWS)
def test_an_action_is_named_by_its_commit(name):
    """A tag can be moved to other code, which would run with the rights of the job."""
    for step in steps(WORKFLOWS[name]):
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", step["uses"]), step["uses"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_rights_are_named(name):
    workflow = yaml.load(WORKFLOWS[name], Loader=yaml.CSafeLoader)

    assert workflow["permissions"] in ({}, {"contents": "read"})


def test_a_release_is_refused_for_another_tag_and_for_a_base_without_a_digest():
    names = [step.get("name") for step in steps(WORKFLOWS["release"])]

    built = names.index("Build, push, sign")
    assert names.index("The tag is the version, on the main branch") < built
    assert names.index("The base image is named by its digest") < built


def test_nothing_is_published_before_the_older_api_servers_were_tried():
    jobs = yaml.safe_load(WORKFLOWS["release"])["jobs"]
    newest, *older = binaries.KUBERNETES_VERSIONS

    assert sorted(jobs["api-servers"]["strategy"]["matrix"]["kubernetes"]) == sorted(older)
    assert newest not in older
    assert jobs["build"]["needs"] == "api-servers"
    assert jobs["pypi"]["needs"] == "build"
