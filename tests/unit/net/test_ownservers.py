"""The ranges of the cluster that no setting has to name."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from duepoint.net import ownservers


def test_in_a_pod_its_own_network_is_the_clusters():
    assert (
        ownservers.pod_networks({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}) == ownservers.networks()
    )


def test_an_address_of_this_machine_is_in_one_of_the_networks():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        own = ipaddress.ip_address(probe.getsockname()[0])
    found = [one for one in ownservers.networks() if own in one]
    assert found
    assert all(one.prefixlen <= 24 for one in found)


@pytest.mark.parametrize(
    ("line", "network"),
    [
        ("fd120000000000000000000000000007 02 80 00 80     eth0", "fd12::/64"),
        ("fd120000000000010000000000000007 02 30 00 80     eth0", "fd12::/48"),
        ("20010db8000000010000000000000007 02 40 00 80     eth0", "2001:db8:0:1::/64"),
    ],
    ids=["a bare address", "a wide network", "a node's share"],
)
def test_an_ipv6_network_is_a_nodes_share_at_least(tmp_path, line, network):
    listed = tmp_path / "if_inet6"
    listed.write_text(line + "\n")
    assert list(ownservers._ipv6(listed)) == [ipaddress.ip_network(network)]
