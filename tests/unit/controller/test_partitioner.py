"""The layout on the Lease."""

from __future__ import annotations

import pytest

from duepoint.controller.maintenance import partitioner
from duepoint.delayqueue.messages import Layout


def test_what_was_noted_is_read_again():
    layout = Layout(number=3, shards=256)
    assert partitioner.layout_of(partitioner.note_of(layout)) == layout


@pytest.mark.parametrize(
    "text", ["", "64", "1/", "1/0", "1/-4", "1/63", "x/64", "1/64 shards", "1/\u0664", "1/131072"]
)
def test_a_note_that_makes_no_sense_is_none(text):
    assert partitioner.layout_of({partitioner.ANNOTATION: text}) is None


def test_a_layout_under_way_is_noted_with_what_it_is_filled_from():
    layout = Layout(number=2, shards=64, former=Layout(number=1, shards=16))
    assert partitioner.note_of(layout) == {partitioner.ANNOTATION: "2/64 1/16"}
    assert partitioner.layout_of(partitioner.note_of(layout)) == layout
