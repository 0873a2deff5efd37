"""What an address really leads to."""

from __future__ import annotations

import ipaddress

import pytest

from duepoint.net import addresses

SPECIAL, PRIVATE, PUBLIC = (
    addresses.AddressKind.SPECIAL,
    addresses.AddressKind.PRIVATE,
    addresses.AddressKind.PUBLIC,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("127.0.0.1", SPECIAL, id="loopback"),
        pytest.param("127.255.255.254", SPECIAL, id="end of loopback"),
        pytest.param("0.0.0.0", SPECIAL, id="unspecified"),
        pytest.param("0.1.2.3", SPECIAL, id="this network"),
        pytest.param("169.254.169.254", SPECIAL, id="metadata"),
        pytest.param("224.0.0.1", SPECIAL, id="multicast"),
        pytest.param("239.255.255.255", SPECIAL, id="end of multicast"),
        pytest.param("240.0.0.1", SPECIAL, id="reserved"),
        pytest.param("255.255.255.255", SPECIAL, id="broadcast"),
        pytest.param("168.63.129.16", SPECIAL, id="cloud service on a public address"),
        pytest.param("100.100.100.200", SPECIAL, id="metadata in shared space"),
        pytest.param("10.0.0.1", PRIVATE, id="ten"),
        pytest.param("172.16.0.1", PRIVATE, id="172.16"),
        pytest.param("192.168.1.1", PRIVATE, id="192.168"),
        pytest.param("100.64.0.1", PRIVATE, id="shared space"),
        pytest.param("198.18.0.1", PRIVATE, id="benchmarks"),
        pytest.param("8.8.8.8", PUBLIC, id="public"),
        pytest.param("172.32.0.1", PUBLIC, id="beside 172.16"),
        pytest.param("::1", SPECIAL, id="loopback 6"),
        pytest.param("::", SPECIAL, id="unspecified 6"),
        pytest.param("fe80::1", SPECIAL, id="link-local 6"),
        pytest.param("fec0::1", SPECIAL, id="site-local 6"),
        pytest.param("ff02::1", SPECIAL, id="multicast 6"),
        pytest.param("fd00:ec2::254", SPECIAL, id="metadata 6"),
        pytest.param("fd00:ec2::253", SPECIAL, id="name server of a cloud 6"),
        pytest.param("fd00:ec2:ffff::1", SPECIAL, id="end of that cloud's services 6"),
        pytest.param("fd20:ce::254", SPECIAL, id="metadata of another cloud 6"),
        pytest.param("fd00:42::42", SPECIAL, id="metadata of a third cloud 6"),
        pytest.param("fd00:c1::a9fe:a9fe", SPECIAL, id="metadata of a fourth cloud 6"),
        pytest.param("fd00:a9fe:a9fe::1", SPECIAL, id="metadata of a fifth cloud 6"),
        pytest.param("fd00:100::100:200", SPECIAL, id="metadata of a sixth cloud 6"),
        pytest.param("192.0.0.192", SPECIAL, id="metadata in a protocol range"),
        pytest.param("161.26.0.10", SPECIAL, id="a cloud's name server on a public address"),
        pytest.param("100.100.2.136", SPECIAL, id="name server in shared space"),
        # Where the tables of Python's versions differ:
        pytest.param("192.0.0.8", PRIVATE, id="protocol assignments"),
        pytest.param("192.88.99.1", PRIVATE, id="former relay of 6to4"),
        pytest.param("2001:1::1", PRIVATE, id="protocol assignments 6"),
        pytest.param("2001:db8:1::1", PRIVATE, id="documentation 6, further on"),
        pytest.param("3fff::1", PRIVATE, id="newer documentation 6"),
        pytest.param("5f00::1", PRIVATE, id="segment routing"),
        pytest.param("100::1", PRIVATE, id="discard only"),
        pytest.param("4000::1", PRIVATE, id="not given out"),
        pytest.param("64:ff9b:1::8.8.8.8", SPECIAL, id="local NAT64"),
        pytest.param("fd12::1", PRIVATE, id="unique local 6"),
        pytest.param("2001:db8::1", PRIVATE, id="documentation 6"),
        pytest.param("2606:4700::1111", PUBLIC, id="public 6"),
    ],
)
def test_every_address_has_a_kind(text, expected):
    assert addresses.kind(ipaddress.ip_address(text))[0] is expected


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        pytest.param("10.1.2.3", {"10.1.2.3"}, id="plain"),
        pytest.param("2606:4700::1", {"2606:4700::1"}, id="plain 6"),
        pytest.param("::1", {"::1"}, id="loopback is itself"),
        pytest.param("::ffff:169.254.169.254", {"169.254.169.254"}, id="mapped"),
        pytest.param("::ffff:0:10.0.0.1", {"10.0.0.1"}, id="translated"),
        pytest.param("::127.0.0.1", {"127.0.0.1"}, id="compatible"),
        pytest.param("64:ff9b::a9fe:a9fe", {"169.254.169.254"}, id="NAT64"),
        pytest.param("2002:7f00:1::5", {"127.0.0.1"}, id="6to4"),
        pytest.param(
            "2001:0:a00:1:0:0:f5ff:fffe", {"10.0.0.1"}, id="Teredo, server and client the same"
        ),
        pytest.param("2001:0:808:808::80ff:fffe", {"8.8.8.8", "127.0.0.1"}, id="Teredo"),
    ],
)
def test_wrapped_addresses_are_unwrapped(text, reached):
    found = addresses.reached_by(ipaddress.ip_address(text))
    assert {str(address) for address in found} == reached


@pytest.mark.parametrize(
    "host",
    [
        "127.1", "127.0.1", "2130706433", "0x7f.1", "0x7f000001", "0X7F.0.0.1", "0177.0.0.1",
        "017700000001", "127.0.0.0x1", "127.0.0.1.", "127.0.0.01", "1.2.3.256", "1.2.3.4.5",
        "a.b.0x", "example.123", "0", "[::1", "::1%lo", "::g",
    ],
)  # fmt: skip
def test_numbers_in_disguise_are_seen(host):
    assert addresses.is_odd_number(host)
