"""What a decision reads of a published status."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.controller.status import published


@pytest.mark.parametrize(
    ("observed", "of_condition", "status", "asked", "accepted"),
    [
        (3, 3, "True", 3, True),
        (3, 3, "True", 4, False),
        (4, 4, "True", 3, False),
        (4, 3, "True", 4, False),
        (3, 3, "False", 3, False),
        (3, 3, "Unknown", 3, False),
    ],
)
def test_a_generation_is_accepted_by_a_status_of_that_very_generation(
    observed, of_condition, status, asked, accepted
):
    ready = {"type": "Ready", "status": status, "observedGeneration": of_condition}
    text = msgspec.json.encode({"observedGeneration": observed, "conditions": [ready]})
    assert published.read(text).has_accepted(asked) is accepted
