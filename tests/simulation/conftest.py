"""One Valkey for all histories of a test process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.simulation import chance, history
from tests.simulation.valkey import SimulatedValkey


@pytest.fixture(scope="session")
def valkey() -> Iterator[SimulatedValkey]:
    with history.a_valkey() as server, chance.silent():
        gc.collect()
        gc.freeze()
        yield server
