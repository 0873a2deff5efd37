"""Lines of watches, and the resource of a path."""

from __future__ import annotations

import pytest

from duepoint.kube import port

# -- lines ------------------------------------------------------------------------------------


def test_a_line_of_megabytes_in_small_chunks_arrives_whole():
    splitter = port.LineSplitter()
    for _ in range(40_000):
        assert splitter.feed(b"x" * 50) == []
    assert [len(line) for line in splitter.feed(b"\nrest")] == [2_000_000]


# -- paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/apis/batch/v1/namespaces/a/jobs/x", "jobs"),
        ("/apis/batch/v1/jobs", "jobs"),
        ("/apis/duepoint.dev/v1alpha1/namespaces/a/schedules/b/status", "schedules/status"),
        ("/api/v1/namespaces/a/services/x", "services"),
        ("/api/v1/namespaces/a", "namespaces"),
        ("/version", "other"),
    ],
)
def test_metrics_name_the_resource_and_never_the_object(path: str, resource: str):
    assert port.resource_of(path) == resource
