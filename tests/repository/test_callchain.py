"""The tool that counts the functions of a chain, and the two chains that have to be short."""

from __future__ import annotations

import asyncio

import pytest

from tools import callchain

MOST_FUNCTIONS = 15
MOST_FILES = 7
#: With what the functions of the chain call themselves.
MOST_STEPS = 37  # one of them is the fault points'
MOST_FILES_OF_STEPS = 15


@pytest.fixture(scope="module")
def chain():
    """The chain of a firing; every call of a worker is recorded for it, which takes a second."""
    return asyncio.run(callchain.firing())


def test_the_chain_from_a_due_point_to_its_post_is_short(chain):
    assert chain.is_complete, chain.report()
    assert len(chain.functions) <= MOST_FUNCTIONS, chain.report()
    assert len(chain.files) <= MOST_FILES, chain.report()
    assert len(chain.steps) <= MOST_STEPS, chain.report(verbose=True)
    files = {one.file for one in chain.steps}
    assert len(files) <= MOST_FILES_OF_STEPS, chain.report(verbose=True)
    assert chain.functions[0].name == "Claimer._claim"
    assert {one.file.partition("/")[0] for one in chain.functions} <= {"worker", "targets", "net"}


#: From a watch event to the stored point.
MOST_ARMING_FUNCTIONS = 15
MOST_ARMING_FILES = 7


@pytest.mark.parametrize("is_edit", [False, True], ids=["new", "edit"])
async def test_the_chain_from_a_watch_event_to_the_stored_point_is_short(is_edit):
    chain = await callchain.arming(is_edit=is_edit)
    assert chain.is_complete, chain.report()
    assert len(chain.functions) <= MOST_ARMING_FUNCTIONS, chain.report()
    assert len(chain.files) <= MOST_ARMING_FILES, chain.report()
    assert chain.functions[0].name == "changed"
    assert chain.functions[-1].name == "DefinitionWriter.upsert"
    assert {one.file.partition("/")[0] for one in chain.functions[:-1]} == {"controller"}
