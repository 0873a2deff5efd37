"""A field that is added to the model is everywhere: one line, and nothing else to change."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import pytest

from duepoint.cli.check import structure
from duepoint.model import checks, schemas
from duepoint.model.schedule import ScheduleFields
from duepoint.model.vocabulary import choices
from tools.jobschema import editors, expand


class Coloured(ScheduleFields):
    colour: Annotated[str | None, choices("red", "blue"), "How a calendar shows it."] = None


@pytest.fixture(autouse=True)
def kind(monkeypatch):
    monkeypatch.setitem(checks.KINDS, "Schedule", Coloured)
    structure.schemas.cache_clear()
    yield
    structure.schemas.cache_clear()


def test_it_is_in_the_crd_with_its_rule_and_its_meaning():
    (version,) = expand.custom_resource_definitions()["Schedule"]["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["colour"] == {
        "type": "string",
        "description": "How a calendar shows it. One of red, blue.",
        "x-kubernetes-validations": [
            {"rule": "self in ['red', 'blue']", "message": "write red or blue"}
        ],
        "nullable": True,
    }


def test_editors_and_the_http_api_know_it():
    schema = json.loads(editors.text())["allOf"][0]["then"]
    for known in (schema["properties"]["spec"], schemas.plain_of(Coloured)):
        assert known["properties"]["colour"]["enum"] == ["red", "blue", None]


def test_validate_and_the_reader_judge_it_in_the_same_words():
    wrong = {"schedule": "@daily", "webhook": {"url": "https://a"}, "colour": "green"}
    thing = {"metadata": {"name": "a"}, "spec": wrong}
    told = ("spec.colour", '"green": write red or blue')
    (of_reader,) = checks.problems(msgspec.convert(wrong, Coloured), "spec")
    walk = structure.Walk({})
    walk.check(structure.schemas()["Schedule"], thing, "")
    assert [of_reader] == walk.found == [checks.Problem(*told)]
    assert checks.problems(msgspec.convert({**wrong, "colour": "red"}, Coloured), "spec") == []
