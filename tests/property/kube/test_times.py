"""Instants are written and read back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duepoint.kube import times


@settings(deadline=None, max_examples=50)
@given(st.integers(min_value=0, max_value=4_102_444_800_000_000))
def test_an_instant_comes_back_from_its_text(instant_us: int):
    assert times.parse_us(times.micro_time_text(instant_us)) == instant_us
    assert times.parse_us(times.time_text(instant_us)) == instant_us - instant_us % 1_000_000


@settings(deadline=None, max_examples=50)
@given(st.integers(min_value=0, max_value=4_102_444_800).map(lambda second: second * 1_000_000))
@pytest.mark.parametrize("zone", ["Europe/Rome", "Asia/Kathmandu", "Etc/UTC", "America/New_York"])
def test_a_local_text_names_the_same_instant(zone: str, instant_us: int):
    assert times.parse_us(times.time_text_in(instant_us, zone)) == instant_us
