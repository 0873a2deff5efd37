"""Lines that are cut at any place."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from duepoint.kube import port


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=20)), st.data())
def test_lines_do_not_depend_on_how_they_were_cut(parts: list[bytes], data: st.DataObject):
    stream = b"\n".join(parts) + b"\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    edges = [0, *cuts, len(stream)]
    splitter = port.LineSplitter()
    found = [
        line
        for start, end in itertools.pairwise(edges)
        for line in splitter.feed(stream[start:end])
    ]
    assert found == [line for line in stream.split(b"\n") if line.strip()]
