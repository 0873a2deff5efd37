"""``duepoint queue partition`` refuses what cannot be, in one line."""

from __future__ import annotations

import pytest

from duepoint.cli.queue import queue


@pytest.mark.parametrize("text", ["0", "3", "48", "-64", "x", "64.0", "131072", "٦٤", ""])
def test_a_number_that_is_no_power_of_two_is_refused_with_what_to_write(text):
    with pytest.raises(ValueError, match=r"power of two.*; write \d+"):
        queue._power_of_two(text)
