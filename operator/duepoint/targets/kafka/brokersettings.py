"""What a Secret says of Kafka's brokers, checked: who they are and how one logs in.

Names of keys are those of Kafka's own client settings where it has them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from duepoint.targets import target
from duepoint.targets.secretaccess import servers

PATH = "spec.kafka.connectionSecretRef"
KEYS = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "username", "password")

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([1-9][0-9]{0,4})")
_MOST_SERVERS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """Where brokers are found first, and how they are spoken to."""

    connection: servers.SecretConnection
    servers: tuple[str, ...]
    protocol: str
    mechanism: str

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL")


def brokers(found: servers.SecretConnection) -> Brokers | target.Trouble:
    """The brokers, or what to write into the Secret instead."""
    values = found.values
    listed = tuple(filter(None, (one.strip() for one in values["bootstrap.servers"].split(","))))
    if not 1 <= len(listed) <= _MOST_SERVERS or not all(map(_is_server, listed)):
        return servers.unusable(
            found, "bootstrap.servers", "is no list of brokers; write host:port,host:port"
        )
    if (withheld := found.withheld(map(_host_and_port, listed))) is not None:
        return withheld
    protocol = values.get("security.protocol", "").upper() or _usual_protocol(values)
    if protocol not in PROTOCOLS:
        return _unknown(found, "security.protocol", PROTOCOLS)
    mechanism = values.get("sasl.mechanism", "").upper() or "PLAIN"
    if mechanism not in MECHANISMS:
        return _unknown(found, "sasl.mechanism", MECHANISMS)
    if protocol.startswith("SASL"):
        for key in ("username", "password"):
            if not values.get(key):
                return servers.unusable(found, key, f"is missing; {protocol} logs in with it")
    return Brokers(connection=found, servers=listed, protocol=protocol, mechanism=mechanism)


def _host_and_port(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def _usual_protocol(values: Mapping[str, str]) -> str:
    """A password is never sent in the clear unless the Secret says so."""
    return "SASL_SSL" if values.get("password") else "SSL"


def _unknown(found: servers.SecretConnection, key: str, known: tuple[str, ...]) -> target.Trouble:
    return servers.unusable(found, key, f"is not known; write {' or '.join(known)}")


def _is_server(text: str) -> bool:
    parts = _SERVER.fullmatch(text)
    return parts is not None and int(parts[2]) <= 65_535
