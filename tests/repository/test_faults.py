"""Fault points: each is hit by a test, and the product has no way to switch one on."""

from __future__ import annotations

import pathlib
import re

import duepoint
from duepoint.faults import FaultPoint
from tests.e2e import test_fault_points as of_processes
from tests.integration.delayqueue import test_fault_points as of_the_queue
from tests.integration.httpapi import test_fault_points as of_the_http_api
from tests.integration.kube import test_fault_points as of_requests
from tests.scenarios import test_fault_points as of_the_story
from tests.unit.election import test_fault_points as of_the_election

_TESTED = (of_the_queue, of_requests, of_the_story, of_the_election, of_processes, of_the_http_api)
_TEXTS = [
    path.read_text()
    for path in pathlib.Path(duepoint.__file__).parent.rglob("*.py")
    if path.name != "faults.py"
]


def used(name: str) -> list[str]:
    """What the product asks ``faults`` or ``FaultPoint`` for."""
    return [found for text in _TEXTS for found in re.findall(rf"\b{name}\.(\w+)", text)]


def test_every_point_is_hit_by_a_test_that_fails_where_it_is_not():
    """Each of these modules has a test for each of its POINTS, which asserts that it was hit."""
    tested = [point for module in _TESTED for point in module.POINTS]
    assert sorted(tested) == sorted(FaultPoint)


def test_nothing_in_the_product_installs_a_hook_or_imports_what_does():
    pattern = re.compile(r"^\s*(?:from|import) tests\b", re.MULTILINE)
    assert [text for text in _TEXTS if pattern.search(text)] == []
    assert set(used("faults")) == {"reach"}
