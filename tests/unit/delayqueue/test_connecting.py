"""How to connect: what a server says of itself."""

from __future__ import annotations

import pytest

from duepoint.delayqueue.wire import connecting


@pytest.mark.parametrize(
    ("said", "hosts"),
    [
        ({"connected_slaves": 1, "slave0": {"ip": "fd12::7", "port": 6380}}, [("fd12::7", 6380)]),
        ({"connected_slaves": 1, "slave0": "nonsense"}, []),
        ({}, []),
    ],
)
def test_the_replicas_of_a_server_are_known_by_address(said, hosts):
    assert connecting.replica_hosts(said) == hosts
