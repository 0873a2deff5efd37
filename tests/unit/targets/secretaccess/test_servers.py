"""Servers that other servers name: what they may be called."""

from __future__ import annotations

import pytest

from duepoint.targets.secretaccess import servers


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("", 80),
        ("canary of a broker", 80),
        ("canary,canary", 80),
        ("https://canary/", 80),
        ("c" * 254, 80),
        ("canary\n", 80),
        ("canary", 0),
        ("canary", -1),
        ("canary", 65_536),
        ("canary", 2**31 - 1),
    ],
)
def test_what_no_server_can_be_called_is_refused_without_being_repeated(host, port):
    with pytest.raises(OSError, match="no name, or no port") as caught:
        servers.require_server(host, port)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "host", ["redis", "redis.shop.svc", "a_b-1.example.", "192.0.2.1", "2001:db8::1", "müller.de"]
)
def test_names_and_addresses_of_servers_are_taken(host):
    servers.require_server(host, 6379)
