"""Classification of IP addresses for the egress guard.

Owns three facts that the guard needs: which text is an address at all (one spelling each: dotted
quad, or RFC 4291), which addresses a packet to it may reach once mapped and tunnelled forms are
unwrapped, and whether each of those is public, private or special. Pure.

Python's ``is_global`` and ``is_private`` do not answer this: NAT64 of a metadata address,
multicast and 168.63.129.16 all count as global there, and their tables differ between Python
versions. This module lists what counts as public, after IANA's registries of special-purpose
addresses (RFC 6890 and its successors).
"""

from __future__ import annotations

import enum
import functools
import ipaddress
import re

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AddressKind(enum.Enum):
    """The kind of an address. ``SPECIAL`` is not a receiver in any mode, unless allowed by name."""

    PUBLIC = "public"
    PRIVATE = "private"
    SPECIAL = "special"


#: Denied in every mode, with the word for messages. The chart's NetworkPolicy has the same list.
SPECIAL: tuple[tuple[Network, str], ...] = tuple(
    (ipaddress.ip_network(network), word)
    for network, word in (
        ("0.0.0.0/8", "unspecified"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("168.63.129.16/32", "a cloud's own service"),
        ("100.100.100.200/32", "a cloud's metadata service"),
        ("100.100.2.136/32", "a cloud's own service"),
        ("100.100.2.138/32", "a cloud's own service"),
        ("192.0.0.192/32", "a cloud's metadata service"),
        ("192.80.8.124/32", "a cloud's metadata service"),
        ("161.26.0.0/16", "a cloud's own service"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
        # The place of the IPv4 address depends on the network (RFC 8215), so it cannot be judged.
        ("64:ff9b:1::/48", "a local NAT64"),
        ("fd00:ec2::/32", "a cloud's own service"),
        ("fd20:ce::/32", "a cloud's metadata service"),
        ("fd00:42::42/128", "a cloud's metadata service"),
        ("fd00:c1::a9fe:a9fe/128", "a cloud's metadata service"),
        ("fd00:a9fe:a9fe::1/128", "a cloud's metadata service"),
        ("fd00:100::100:200/128", "a cloud's metadata service"),
    )
)

#: Not globally reachable, or reserved; the special ones are listed above.
_NOT_PUBLIC_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
    )
)
#: All that IANA has allocated as global unicast; the rest of the space has no receivers.
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = tuple(
    ipaddress.IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "3fff::/20")
)

#: Networks with an IPv4 address in the last 32 bits: mapped, translated (SIIT, RFC 7915),
#: compatible, and NAT64.
_WRAPPED = tuple(
    ipaddress.IPv6Network(network)
    for network in ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96")
)

#: Forms of a host's last label that inet_aton reads as a number; so must we.
_NUMBER = re.compile(r"^(0[xX][0-9A-Fa-f]*|[0-9]+)$")


def parse(text: str) -> Address | None:
    """Return the address in a text of the one accepted spelling, else None; zones are refused."""
    if "%" in text:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


@functools.lru_cache(maxsize=1024)
def is_odd_number(host: str) -> bool:
    """Whether a resolver may read the host as an IPv4 address although ``parse`` does not.

    ``2130706433``, ``0x7f.1``, ``0177.0.0.1`` and ``127.1`` all are 127.0.0.1 to inet_aton. A
    name whose last label is a number is not a name in the DNS (WHATWG URL, "ends in a number").
    """
    if ":" in host:
        return parse(host) is None
    last_label = host.rstrip(".").rpartition(".")[2]
    return bool(_NUMBER.match(last_label)) and parse(host) is None


def reached_by(address: Address) -> tuple[Address, ...]:
    """Return the addresses that a packet to this one may reach; each must be acceptable."""
    number = int(address)
    if isinstance(address, ipaddress.IPv4Address) or number <= 1:
        return (address,)  # ``::`` and ``::1`` are themselves, not 0.0.0.0 and 0.0.0.1
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo  # the relay's server, and the client behind it
    if any(address in network for network in _WRAPPED):
        return (ipaddress.IPv4Address(number & 0xFFFFFFFF),)
    return (address,)


@functools.lru_cache(maxsize=4_096)
def kind(address: Address) -> tuple[AddressKind, str]:
    """Return the kind of an address from ``reached_by``, and the word for it."""
    for network, word in SPECIAL:
        if address in network:
            return AddressKind.SPECIAL, word
    if isinstance(address, ipaddress.IPv4Address):
        is_public = not any(address in network for network in _NOT_PUBLIC_V4)
    else:
        others = any(address in network for network in _NOT_PUBLIC_V6)
        is_public = address in _GLOBAL_V6 and not others
    return (AddressKind.PUBLIC, "public") if is_public else (AddressKind.PRIVATE, "private")
