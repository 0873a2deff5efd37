"""Records of members: any contents are read back."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duepoint.delayqueue.definitions import codec
from duepoint.schedules import rule as rules
from duepoint.schedules.definition import State
from tests.unit.delayqueue.test_member_records import FACTS, RULE


@given(
    name=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=128),
    payload=st.binary(max_size=200),
    once_us=st.none() | st.integers(min_value=0, max_value=2**52 - 1),
    inline=st.booleans(),
    state=st.sampled_from(State),
)
def test_what_is_written_is_read_back(name, payload, once_us, inline, state):
    text = rules.text(RULE) if inline else b""
    mac = b"8 bytes!" if payload else b""
    record = codec.member_record(
        **{
            **FACTS,
            "state": state,
            "name": name.encode(),
            "payload": payload,
            "payload_mac": mac,
            "once_us": once_us,
            "inline": text,
        }
    )
    found = codec.unpack(record)
    assert (found.name, found.payload, found.payload_mac) == (name, payload, mac)
    assert (found.once_us, found.state, found.timing_version) == (once_us, state, b"vers")
    assert (found.inline, found.kind) == (text, FACTS["kind"])
    assert found.uid == str(uuid.UUID(int=9))
    for end in range(0, len(record), 7):
        with pytest.raises(codec.UnknownRecord):
            codec.unpack(record[:end])
