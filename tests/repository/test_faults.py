"""Fault points: each is hit by a test, none can be switched on from outside."""

from __future__ import annotations

import ast
import asyncio
import pathlib

import duepoint
from duepoint import faults
from duepoint.faults import FaultPoint
from tests.e2e import test_fault_points as of_processes
from tests.integration.delayqueue import test_fault_points as of_the_queue
from tests.integration.httpapi import test_fault_points as of_the_http_api
from tests.integration.kube import test_fault_points as of_requests
from tests.scenarios import test_fault_points as of_the_story
from tests.support import faultplan
from tests.unit.election import test_fault_points as of_the_election

_PRODUCT = pathlib.Path(duepoint.__file__).parent
_TESTED = (of_the_queue, of_requests, of_the_story, of_the_election, of_processes, of_the_http_api)


def _attributes(name: str) -> list[tuple[str, str]]:
    """(file, attribute) of every use of ``faults`` or ``FaultPoint`` in the product."""
    found = []
    for path in _PRODUCT.rglob("*.py"):
        text = path.read_text()
        if path.name == "faults.py" or name not in text:  # a module without the word has no use
            continue
        for node in ast.walk(ast.parse(text)):
            is_wanted = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if is_wanted and node.value.id == name:
                found.append((str(path.relative_to(_PRODUCT)), node.attr))
    return found


def test_every_point_is_hit_by_a_test_that_fails_where_it_is_not():
    """Each of these modules has a test for each of its POINTS, which asserts that it was hit."""
    tested = [point for module in _TESTED for point in module.POINTS]
    assert len(tested) == len(set(tested)), "a point is tested in two modules"
    assert set(tested) == set(FaultPoint)


def test_every_point_stands_in_one_place():
    places = [attribute for _, attribute in _attributes("FaultPoint")]
    assert sorted(places) == sorted(point.name for point in FaultPoint)
    assert len(FaultPoint) >= 48


def test_nothing_in_the_product_installs_a_hook():
    assert {attribute for _, attribute in _attributes("faults")} == {"reach"}


def test_without_a_hook_a_point_gives_no_turn_of_the_loop_away():
    passing = faults.reach(FaultPoint.BEFORE_CLAIM)
    try:
        passing.send(None)
    except StopIteration:
        return
    raise AssertionError("it waited")


async def test_a_hook_hears_of_every_point_until_it_is_taken_away():
    with faultplan.FaultPlan().installed() as plan:
        await faults.reach(FaultPoint.BEFORE_CLAIM)
        await faults.reach(FaultPoint.BEFORE_CLAIM)
    await faults.reach(FaultPoint.BEFORE_CLAIM)
    assert plan.hits == {FaultPoint.BEFORE_CLAIM: 2}


async def test_what_is_dead_stands_still_and_the_others_go_on():
    with faultplan.FaultPlan(FaultPoint.BEFORE_CLAIM).installed() as plan:
        with faultplan.part("a"):
            dead = asyncio.create_task(faults.reach(FaultPoint.BEFORE_CLAIM))
            await asyncio.sleep(0)
            later = asyncio.create_task(faults.reach(FaultPoint.BEFORE_BEAT))
        with faultplan.part("b"):
            await asyncio.create_task(faults.reach(FaultPoint.BEFORE_CLAIM))
        await asyncio.sleep(0)
        assert plan.dead == {"a"}
        assert not dead.done()
        assert not later.done()
        dead.cancel()
        later.cancel()


def test_the_product_imports_nothing_of_the_tests_that_install_hooks():
    assert "tests" not in {name.partition(".")[0] for name in _imports_of_the_product("tests")}


def test_imports_of_the_product_are_found():
    assert "duepoint.faults" in _imports_of_the_product("duepoint.faults")


def _imports_of_the_product(word: str) -> set[str]:
    """Modules that are imported by those in whose text the word stands."""
    names: set[str] = set()
    texts = [path.read_text() for path in _PRODUCT.rglob("*.py")]
    for text in texts:
        for node in ast.walk(ast.parse(text)) if word in text else ():
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
    return names
