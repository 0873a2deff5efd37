"""Batches of rows, however many rows there are."""

from __future__ import annotations

import tracemalloc

from duepoint.client import MemberRow
from duepoint.client import rows as batching

FAR = "2090-12-24T18:00:00Z"


def test_a_hundred_thousand_rows_take_the_memory_of_a_batch():
    """The rows themselves: no request is made."""
    rows = (MemberRow(id=f"m{number}", at=FAR) for number in range(100_000))
    tracemalloc.start()
    try:
        count = sum(map(len, batching.batches(rows)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 100_000
    assert peak < 2_000_000
