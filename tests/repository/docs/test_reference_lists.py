"""Every metric and every reason has a row on its page, and the pages name no others."""

import collections
import re
from pathlib import Path

from duepoint import telemetry
from duepoint.schedules.conditions import Reason

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


def first_cells(page):
    """What stands first in each row of the page's tables, where it is code."""
    return re.findall(r"^\| `([^`]+)` \|", (REFERENCE / page).read_text(), re.MULTILINE)


def test_every_metric_has_a_row_and_every_row_a_metric():
    # A counter's samples carry the suffix that its family's name leaves out.
    served = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in telemetry.registry.collect()
        if family.name.startswith("duepoint_")
    }

    assert sorted(first_cells("metrics.md")) == sorted(served)


def test_the_labels_of_a_metric_are_told():
    text = (REFERENCE / "metrics.md").read_text()
    labelled = [one for one in vars(telemetry).values() if getattr(one, "_labelnames", ())]
    assert labelled
    for family in labelled:
        row = re.search(rf"^\| `{family._name}(?:_total)?` .*$", text, re.MULTILINE)
        assert row is not None
        assert all(f"`{label}`" in row[0].split("|")[3] for label in family._labelnames)


SHORT = {"op": "operator", "w": "worker", "api": "api"}


def test_the_page_names_the_processes_that_serve_a_metric():
    rows = re.findall(
        r"^\| `(duepoint_\w+)` \|[^|]*\|[^|]*\| ([^|]+) \|",
        (REFERENCE / "metrics.md").read_text(),
        re.MULTILINE,
    )
    told = {name: {SHORT[one] for one in text.split(", ")} for name, text in rows}
    served = collections.defaultdict(set)
    for process, registry in telemetry.processes.items():
        for family in registry.collect():
            suffix = "_total" if family.type == "counter" else ""
            served[family.name + suffix].add(process)
    assert told == {
        name: processes for name, processes in served.items() if name.startswith("duepoint_")
    }


def test_every_reason_has_exactly_one_row():
    assert sorted(first_cells("errors-and-reasons.md")) == sorted(Reason)


def test_every_test_that_the_page_of_failures_names_exists():
    tests = REFERENCE.parents[1] / "tests"
    named = re.findall(
        r"`([a-z]+(?:/\w+)*/\w+\.py)`", (REFERENCE / "failures-and-tests.md").read_text()
    )
    assert len(named) > 30
    assert [name for name in named if not (tests / name).is_file()] == []
