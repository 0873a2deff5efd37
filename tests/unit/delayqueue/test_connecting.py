"""How to connect: what a server says of itself."""

from __future__ import annotations

import pytest

from duepoint.delayqueue.wire import connecting


def test_the_replicas_of_a_server_are_known_by_address():
    said = {"slave0": {"ip": "10.0.0.7", "port": 6379}, "slave1": {"ip": "fd12::7", "port": 6380}}
    found = connecting.greeting_of(said, run_id="a")
    assert found.replica_hosts == (("10.0.0.7", 6379), ("fd12::7", 6380))


@pytest.mark.parametrize("said", [{}, {"slave0": "nonsense"}, {"slave0": {"ip": "a", "port": "b"}}])
def test_a_server_without_readable_replicas_has_none(said):
    assert connecting.greeting_of(said, run_id="a").replica_hosts == ()
