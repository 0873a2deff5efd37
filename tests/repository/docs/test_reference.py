"""The reference has every field, metric, reason and setting, and no others."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duepoint import settings, telemetry
from duepoint.schedules.conditions import Reason
from tools import settingsdoc
from tools.jobschema import expand

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
#: Described elsewhere: by Kubernetes, and the targets of a set on the page of a Schedule.
FOREIGN = {
    "schedule": ("spec.jobTemplate.spec", "status.conditions", "status.active"),
    "schedulerun": ("status.conditions",),
    "scheduleset": (
        *("spec.jobTemplate", "spec.webhook", "spec.stream", "spec.kafka", "status.conditions"),
    ),
}
_documents = functools.cache(expand.custom_resource_definitions)


def first_cells(page: str) -> list[str]:
    """What stands first in each row of the page's tables, where it is code."""
    return re.findall(r"^\| `([^`]+)` \|", (REFERENCE / page).read_text(), re.MULTILINE)


def test_every_metric_and_every_reason_has_one_row_and_every_row_one() -> None:
    # A counter's samples carry the suffix that its family's name leaves out.
    served = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in telemetry.registry.collect()
        if family.name.startswith("duepoint_")
    }
    assert sorted(first_cells("metrics.md")) == sorted(served)
    assert sorted(first_cells("errors-and-reasons.md")) == sorted(Reason)


def paths(schema: dict[str, Any], foreign: tuple[str, ...], prefix: str = "") -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}.{name}".lstrip(".")
        yield path
        if path not in foreign:
            yield from paths(field, foreign, path)
            yield from paths(field.get("items", {}), foreign, f"{path}[]")


def fields(kind: str, foreign: tuple[str, ...] = ()) -> set[str]:
    document = _documents()[f"duepoint.dev_{kind}s.yaml"]
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    both = {"properties": {name: schema[name] for name in ("spec", "status")}}
    return set(paths(both, foreign)) - {"spec", "status"}


@pytest.mark.parametrize("kind", FOREIGN)
def test_every_field_is_on_the_page_of_its_kind_and_every_field_there_exists(kind: str) -> None:
    lines = (REFERENCE / f"{kind}.md").read_text().splitlines()
    told = "\n".join(line for line in lines if line.startswith("|"))
    known = fields(kind, FOREIGN[kind])
    # In full, or by its own name beside its parent's.
    leaves = {path.rpartition(".")[2]: path for path in known}
    assert [path for leaf, path in leaves.items() if not re.search(rf"[`.]{leaf}\b", told)] == []
    assert set(re.findall(r"`((?:spec|status)\.[\w.\[\]]+)`", told)) - known == set()


def test_the_targets_of_a_set_have_the_fields_of_a_schedules() -> None:
    of_schedule, of_set = (
        {
            path
            for path in fields(kind)
            if re.match(r"spec\.(jobTemplate|webhook|stream|kafka)\b", path)
        }
        for kind in ("schedule", "scheduleset")
    )
    assert of_schedule == of_set


FIELDS = {
    field.name: field.metadata["read"]
    for kind in (settings.OperatorSettings, settings.WorkerSettings, settings.ApiSettings)
    for field in kind.__dataclass_fields__.values()
}
RANGES = {
    name: (int(found[1]), int(found[2]))
    for name, (values, _) in settingsdoc.notes().items()
    if (found := re.match(r"(\d+) to (\d+)", values))
}


def test_every_setting_has_a_note_and_every_note_a_setting() -> None:
    assert settingsdoc.notes().keys() == FIELDS.keys()


@pytest.mark.parametrize("name", RANGES)
def test_a_range_on_the_page_of_settings_is_the_range_that_is_read(name: str) -> None:
    read, (least, most) = FIELDS[name], RANGES[name]
    assert (read(str(least)), read(str(most))) == (least, most)
    for outside in (least - 1, most + 1):
        with pytest.raises(ValueError, match="out of range"):
            read(str(outside))
