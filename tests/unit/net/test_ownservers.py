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
