"""Lists of objects of any size, and lines cut at any place."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from duepoint.kube import port


@given(sizes=st.lists(st.integers(100, 1_500_000), min_size=1, max_size=400))
def test_of_whatever_objects_a_list_is_read_whole_in_pages_that_are_bounded(sizes):
    pages, read, tries = port.PageSize(500), 0, 0
    while read < len(sizes):
        tries += 1
        page = sizes[read : read + pages.limit]
        if pages.most_bytes is not None and sum(page) > pages.most_bytes:
            pages.shrink()
            continue
        assert sum(page) <= port.MOST_BYTES
        read += len(page)
        pages.record(sum(page))
    assert tries <= 2 * len(sizes) + 5


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
