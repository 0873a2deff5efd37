"""The spec behind an object, typed or decoded; with and without what the API server adds."""

from __future__ import annotations

import msgspec
import pytest

from duepoint import errors
from duepoint.kube import port, schedules
from tests.support.builders import at

SPEC = {"schedule": "30 4 * * *", "webhook": {"url": "https://a.example/"}}


def a_document(**metadata):
    return {"metadata": {"name": "report", **metadata}, "spec": SPEC}


def test_an_object_of_the_api_server_is_read_with_its_metadata():
    metadata = port.Metadata(
        name="report", namespace="shop", uid="u-1", generation=7,
        creation_timestamp="2026-01-01T00:00:00Z",
    )  # fmt: skip
    item = schedules.Schedule(metadata=metadata, spec=msgspec.Raw(msgspec.json.encode(SPEC)))

    found = schedules.spec_of(item)

    assert (found.identity, found.uid, found.generation) == ("shop/report", "u-1", 7)
    assert found.created_us == at("2026-01-01 00:00:00")
    assert found.rule.timing.schedules == ("30 4 * * *",)
    same = a_document(
        namespace="shop", uid="u-1", generation=7, creationTimestamp="2026-01-01T00:00:00Z"
    )
    assert schedules.spec_of(schedules.item_of(same)) == found


def test_what_a_file_does_not_say_comes_from_its_reader():
    item = schedules.item_of(a_document(), namespace="shop")
    found = schedules.spec_of(item, absent_us=5)
    assert (found.identity, found.created_us) == ("shop/report", 5)


@pytest.mark.parametrize("metadata", [None, "report", [], {"name": None, "generation": "7"}])
def test_metadata_of_another_type_counts_as_absent(metadata):
    found = schedules.spec_of(schedules.item_of({"metadata": metadata, "spec": SPEC}))
    assert (found.identity, found.generation) == ("/", 0)


def test_a_creation_that_is_no_time_is_named():
    item = schedules.item_of(a_document(creationTimestamp="yesterday"))
    with pytest.raises(
        errors.InvalidSpec, match=r'creationTimestamp: "yesterday" is not an RFC 3339'
    ):
        schedules.spec_of(item)
