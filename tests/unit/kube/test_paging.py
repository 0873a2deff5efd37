"""How many objects a page has: few where they are large, as many as allowed where they are not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duepoint.kube import paging


def test_small_objects_come_in_whole_pages():
    pages = paging.Paging(500)
    for _ in range(5):
        pages.note(500 * 3_000)
        assert pages.limit == 500


def test_large_objects_come_in_small_pages():
    pages = paging.Paging(500)
    while pages.limit * 2**20 > paging.MOST_BYTES:
        pages.was_too_large()
    assert pages.limit > 1
    pages.note(pages.limit * 2**20)
    assert pages.limit * 2**20 <= paging.MOST_BYTES


def test_a_page_of_one_object_is_read_however_large():
    pages = paging.Paging(500)
    for _ in range(10):
        pages.was_too_large()
    assert pages.limit == 1
    assert pages.most_bytes is None


@given(sizes=st.lists(st.integers(100, 1_500_000), min_size=1, max_size=400))
def test_of_whatever_objects_a_list_is_read_whole_in_pages_that_are_bounded(sizes):
    pages, read, tries = paging.Paging(500), 0, 0
    while read < len(sizes):
        tries += 1
        page = sizes[read : read + pages.limit]
        if pages.most_bytes is not None and sum(page) > pages.most_bytes:
            pages.was_too_large()
            continue
        assert sum(page) <= paging.MOST_BYTES
        read += len(page)
        pages.note(sum(page))
    assert tries <= 2 * len(sizes) + 5
