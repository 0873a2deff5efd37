"""Whatever a Schedule is called, its Jobs have names that the API server takes."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from duepoint.kube import jobbuilder

FACTS = jobbuilder.SlotFacts(
    namespace="reports",
    name="nightly-report",
    uid="uid-1",
    slot_us=1_795_311_000_000_000,
    previous_us=None,
    trigger="Schedule",
    time_zone="Etc/UTC",
)
SCHEDULE_NAMES = st.from_regex(
    r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?){0,6}", fullmatch=True
).filter(lambda name: len(name) <= 52)


@settings(deadline=None, max_examples=50)
@given(name=SCHEDULE_NAMES, run_uid=st.sampled_from(["", "a", "b"]))
def test_every_name_is_one_that_a_job_may_have(name: str, run_uid: str):
    made = jobbuilder.job_name(replace(FACTS, name=name, run_uid=run_uid))
    assert len(made) <= 63
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", made)
