"""Which addresses may be dialled, by mode, route and list."""

from __future__ import annotations

import ipaddress

import pytest

from duepoint.net import egressrules

URL = egressrules.Route(scheme="https")
PLAIN = egressrules.Route(scheme="http")
SERVICE = egressrules.Route(scheme="http", service=True, vouched=True)
UNVOUCHED = egressrules.Route(scheme="http", service=True, vouched=False)

MODES = ("public-only", "same-namespace", "allowlist", "open")


def networks(*texts):
    return tuple(ipaddress.ip_network(text) for text in texts)


def policy(mode="same-namespace", *, allowed=(), denied=(), cluster=(), allow_http=False):
    return egressrules.EgressPolicy(
        mode=mode,
        allowed=networks(*allowed),
        denied=networks(*denied),
        cluster=networks(*cluster),
        allow_http=allow_http,
    )


def is_allowed(address, rules, route=URL, port=443, own=frozenset()):
    return egressrules.verdict(address, port, rules, route, own) is None


@pytest.mark.parametrize(
    ("mode", "route", "address", "expected"),
    [
        ("public-only", URL, "8.8.8.8", True),
        ("public-only", URL, "10.0.0.1", False),
        ("public-only", SERVICE, "10.0.0.1", False),
        ("same-namespace", URL, "8.8.8.8", True),
        ("same-namespace", URL, "10.0.0.1", False),
        ("same-namespace", SERVICE, "10.0.0.1", True),
        ("same-namespace", UNVOUCHED, "10.0.0.1", False),
        ("same-namespace", UNVOUCHED, "8.8.8.8", False),
        ("allowlist", URL, "8.8.8.8", False),
        ("allowlist", URL, "10.0.0.1", False),
        ("allowlist", SERVICE, "10.0.0.1", True),
        ("open", URL, "8.8.8.8", True),
        ("open", URL, "10.0.0.1", True),
        ("open", URL, "fd12::1", True),
        ("open", UNVOUCHED, "10.0.0.1", False),
    ],
)
def test_the_mode_decides_about_ordinary_addresses(mode, route, address, expected):
    assert is_allowed(address, policy(mode), route) is expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("route", [URL, SERVICE], ids=["url", "service"])
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "168.63.129.16",
        "::1",
        "fe80::1",
        "64:ff9b::7f00:1",
    ],
)
def test_special_addresses_are_denied_in_every_mode(mode, route, address):
    assert not is_allowed(address, policy(mode), route)


@pytest.mark.parametrize("mode", ["same-namespace", "allowlist", "open"])
def test_a_special_address_yields_to_an_entry_that_names_exactly_it(mode):
    assert is_allowed("127.0.0.1", policy(mode, allowed=["127.0.0.1/32"]), PLAIN)
    assert is_allowed("::1", policy(mode, allowed=["::1/128"]), PLAIN)


def test_a_special_address_does_not_yield_to_a_range():
    assert not is_allowed("127.0.0.1", policy(allowed=["127.0.0.0/8", "0.0.0.0/0"]))
    assert not is_allowed("169.254.169.254", policy("open", allowed=["169.254.0.0/16"]))


def test_an_allow_list_admits_only_what_it_names():
    rules = policy("allowlist", allowed=["8.8.8.0/24"])
    assert is_allowed("8.8.8.8", rules)
    assert not is_allowed("9.9.9.9", rules)


@pytest.mark.parametrize("mode", MODES)
def test_the_denied_ranges_win_over_everything(mode):
    rules = policy(mode, allowed=["10.0.0.1/32", "8.8.8.8/32"], denied=["10.0.0.0/8", "8.0.0.0/8"])
    for route in (URL, SERVICE):
        assert not is_allowed("10.0.0.1", rules, route)
        assert not is_allowed("8.8.8.8", rules, route)


def test_a_denied_range_holds_for_wrapped_forms():
    rules = policy("open", denied=["8.8.8.8/32", "2002::/16"])
    assert not is_allowed("::ffff:8.8.8.8", rules)
    assert not is_allowed("64:ff9b::808:808", rules)
    assert not is_allowed("2002:909:909::1", rules)


def test_a_tunnel_with_one_bad_end_is_denied():
    assert not is_allowed("2001:0:808:808::80ff:fffe", policy())


def test_public_receivers_need_https_unless_the_operator_says_otherwise():
    assert not is_allowed("8.8.8.8", policy(), PLAIN)
    assert not is_allowed("8.8.8.8", policy("open"), PLAIN)
    assert is_allowed("8.8.8.8", policy(allow_http=True), PLAIN)


OWN = frozenset({(ipaddress.ip_address("10.9.9.9"), 6379), (ipaddress.ip_address("8.8.4.4"), 6443)})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("route", [URL, SERVICE], ids=["url", "service"])
def test_our_own_servers_are_denied_whatever_the_lists_say(mode, route):
    rules = policy(mode, allowed=["10.9.9.9/32", "8.8.4.4/32", "0.0.0.0/0"])
    assert not is_allowed("10.9.9.9", rules, route, port=6379, own=OWN)
    assert not is_allowed("8.8.4.4", rules, route, port=6443, own=OWN)
    assert not is_allowed("::ffff:10.9.9.9", rules, route, port=6379, own=OWN)


def test_other_ports_of_our_own_servers_need_an_exact_entry():
    assert not is_allowed("8.8.4.4", policy("open"), own=OWN)
    assert not is_allowed("10.9.9.9", policy(allowed=["10.0.0.0/8"]), own=OWN)
    assert is_allowed("10.9.9.9", policy(allowed=["10.9.9.9/32"]), own=OWN)


@pytest.mark.parametrize(
    ("address", "rules", "route", "setting"),
    [
        pytest.param("10.0.0.1", policy(), URL, "DUEPOINT_EGRESS_ALLOWED_CIDRS", id="private"),
        pytest.param("127.0.0.1", policy(), URL, "DUEPOINT_EGRESS_ALLOWED_CIDRS", id="special"),
        pytest.param("8.8.8.8", policy(), PLAIN, "DUEPOINT_WEBHOOK_INSECURE=http", id="plain http"),
        pytest.param("8.8.8.8", policy("allowlist"), URL, "DUEPOINT_EGRESS_MODE", id="allowlist"),
        pytest.param("10.0.0.1", policy("public-only"), SERVICE, "DUEPOINT_EGRESS_MODE", id="mode"),
        pytest.param(
            "8.8.8.8",
            policy(denied=["8.0.0.0/8"]),
            URL,
            "DUEPOINT_EGRESS_DENIED_CIDRS",
            id="denied",
        ),
    ],
)
def test_a_denial_names_the_setting_that_would_change_it(address, rules, route, setting):
    denied = egressrules.verdict(address, 443, rules, route)
    assert isinstance(denied, egressrules.Denied)
    assert setting in denied.reason


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("route", [URL, UNVOUCHED], ids=["url", "service"])
def test_a_denial_says_neither_what_a_name_resolves_to_nor_what_stands_there(mode, route):
    """An author could otherwise find the cluster's ranges, its private names and our Redis."""
    rules = policy(mode, cluster=["10.96.0.0/12"])
    reasons, details = set(), set()
    for address, port in (
        ("10.9.9.9", 6379), ("10.9.9.9", 443), ("10.96.0.10", 443), ("127.0.0.1", 443),
        ("169.254.169.254", 80), ("10.0.0.1", 443), ("::ffff:10.0.0.1", 443),
    ):  # fmt: skip
        denied = egressrules.verdict(address, port, rules, route, OWN)
        if denied is None:  # a private address in mode open
            assert (mode, route, address[-8:]) == ("open", URL, "10.0.0.1")
            continue
        assert address not in denied.reason
        assert "10.0.0.1" not in denied.reason
        reasons.add(denied.reason)
        details.add(denied.detail)
    assert len(reasons) == 1, reasons
    assert len(details) > 3 or mode == "public-only"


@pytest.mark.parametrize("port", [22, 25, 2379, 6379, 10250])
@pytest.mark.parametrize("mode", ["public-only", "same-namespace", "open"])
def test_ports_of_other_servers_need_the_allow_list(mode, port):
    route = egressrules.Route(scheme="https", web=True)
    judged = egressrules.verdict("8.8.8.8", port, egressrules.EgressPolicy(mode=mode), route)
    assert isinstance(judged, egressrules.Denied)
    assert f"port {port}" in judged.reason
    allowed = egressrules.EgressPolicy(mode=mode, allowed=(ipaddress.ip_network("8.8.8.8/32"),))
    assert egressrules.verdict("8.8.8.8", port, allowed, route) is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("address", ["10.96.0.1", "198.41.0.4", "fd12::1"])
def test_a_url_never_leads_into_the_cluster(mode, address):
    ranges = ("10.96.0.0/12", "198.41.0.0/24", "fd12::/64")
    rules = policy(mode, cluster=ranges, allowed=["10.0.0.0/8", "0.0.0.0/0", "::/0"])
    judged = egressrules.verdict(address, 443, rules, URL)
    assert isinstance(judged, egressrules.Denied)
    assert "DUEPOINT_EGRESS_CLUSTER_CIDRS" in judged.detail


def test_an_address_of_the_cluster_is_opened_by_its_own_entry_alone():
    rules = policy(cluster=["10.96.0.0/12"], allowed=["10.96.0.10/32"])
    assert is_allowed("10.96.0.10", rules)
    assert not is_allowed("10.96.0.11", rules)


def test_a_service_that_kubernetes_vouches_for_is_in_the_cluster_by_right():
    rules = policy(cluster=["10.96.0.0/12"])
    assert is_allowed("10.96.0.10", rules, SERVICE)
    assert not is_allowed(
        "10.96.0.10", policy(cluster=["10.96.0.0/12"], allowed=["10.0.0.0/8"]), UNVOUCHED
    )
