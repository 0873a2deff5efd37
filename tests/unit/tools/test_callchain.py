"""The tool that counts the functions of a chain, and the chain from a due point to its POST."""

from __future__ import annotations

import asyncio

import pytest

from tools import callchain

MOST_FUNCTIONS = 30
MOST_FILES = 12


@pytest.fixture(scope="module")
def chain():
    """The chain of a firing; every call of a worker is recorded for it, which takes a second."""
    return asyncio.run(callchain.firing())


def test_the_chain_from_a_due_point_to_its_post_is_short(chain):
    assert chain.is_complete, chain.report()
    assert len(chain.functions) <= MOST_FUNCTIONS, chain.report()
    assert len(chain.files) <= MOST_FILES, chain.report()
    assert chain.functions[0].name == "Claimer._claim"
    assert {each.file.partition("/")[0] for each in chain.functions} <= {"worker", "targets", "net"}


def test_steps_are_the_chain_and_what_its_functions_call(chain):
    assert set(chain.functions) <= set(chain.steps) <= set(chain.visited)
    assert len(chain.steps) < len(chain.visited)


async def test_a_chain_that_does_not_reach_its_end_is_not_complete():
    with callchain.recording(
        callchain.Leg(begins="none", ends=callchain.is_called("none"))
    ) as made:
        pass
    assert not made.is_complete
    assert made.functions == []
