"""The networks that this machine's own interfaces stand in.

In a Pod these are ranges of the cluster's Pods, which no setting had to name. Many network plugins
give a Pod an address without a network (/32, /128); its neighbours are then taken to be in the
same /24 or /64, the usual share of a node. Loopback and link-local are left out: they are denied
anyway. Linux only; elsewhere, and where the kernel does not say, empty.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from duepoint.net import addresses

#: netdevice(7): the interface's address and the mask of its network.
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B
_REQUEST = struct.Struct("16s2x2x4s16x")  # name, family, port, IPv4 address
_LONGEST_V4, _LONGEST_V6 = 24, 64
#: Address, index, prefix length, scope, flags and name of each interface, in hexadecimal.
_IPV6_INTERFACES = Path("/proc/net/if_inet6")


def of_pod(environment: Mapping[str, str] = os.environ) -> tuple[addresses.Network, ...]:
    """The networks of the Pod that this process runs in; empty outside a cluster."""
    return networks() if environment.get("KUBERNETES_SERVICE_HOST") else ()


def networks() -> tuple[addresses.Network, ...]:
    """The networks of this machine's interfaces."""
    found = (*_ipv4(), *_ipv6(_IPV6_INTERFACES))
    own = (one for one in found if not (one.is_loopback or one.is_link_local))
    return tuple(sorted(set(own), key=str))


def _ipv4() -> Iterator[addresses.Network]:
    try:
        import fcntl  # noqa: PLC0415 - there is none outside Unix
    except ImportError:
        return

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:

        def said(request: int, name: str) -> ipaddress.IPv4Address:
            packed = fcntl.ioctl(asked, request, _REQUEST.pack(name.encode(), bytes(4)))
            return ipaddress.IPv4Address(_REQUEST.unpack(packed)[1])

        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no IPv4 address
                address, mask = said(_SIOCGIFADDR, name), said(_SIOCGIFNETMASK, name)
                yield _network(address, int(mask).bit_count(), _LONGEST_V4)


def _ipv6(listed: Path) -> Iterator[addresses.Network]:
    with contextlib.suppress(OSError):  # the kernel knows no IPv6
        for line in listed.read_text().splitlines():
            number, _, length, *_ = line.split()
            yield _network(ipaddress.IPv6Address(int(number, 16)), int(length, 16), _LONGEST_V6)


def _network(address: addresses.Address, length: int, longest: int) -> addresses.Network:
    return ipaddress.ip_network(f"{address}/{min(length, longest)}", strict=False)
