"""Values of options that mean more than they say."""

from __future__ import annotations

import pytest

from duepoint.cli import options


@pytest.mark.parametrize("text", ["0", "0s", "0m", "0ms", "0h", "00s"])
def test_no_time_at_all_is_no_limit(text):
    """As kubectl has it, however it is spelt."""
    assert options.timeout_seconds(text) is None


def test_a_timeout_is_a_duration():
    assert options.timeout_seconds("1m30s") == 90.0
