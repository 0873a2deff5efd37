"""What a Secret says of Kafka's brokers, checked: who they are and how one logs in.

Names of keys are those of Kafka's own client settings where it has them. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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


def brokers(found: servers.SecretConnection) -> Brokers:
    """The brokers; raises Unread, which says what to write into the Secret instead."""
    values = found.values
    listed = tuple(filter(None, (one.strip() for one in values["bootstrap.servers"].split(","))))
    parsed = [parts for one in listed if (parts := _SERVER.fullmatch(one)) is not None]
    hosts = [(parts[1].strip("[]"), int(parts[2])) for parts in parsed if int(parts[2]) <= 65_535]
    if not 1 <= len(listed) == len(hosts) <= _MOST_SERVERS:
        what = "is no list of brokers; write host:port,host:port"
        raise found.unusable("bootstrap.servers", what)
    found.require_consent(hosts)
    # A password is never sent in the clear unless the Secret says so.
    usual = "SASL_SSL" if values.get("password") else "SSL"
    protocol = values.get("security.protocol", "").upper() or usual
    mechanism = values.get("sasl.mechanism", "").upper() or "PLAIN"
    for key, value, known in (
        ("security.protocol", protocol, PROTOCOLS),
        ("sasl.mechanism", mechanism, MECHANISMS),
    ):
        if value not in known:
            raise found.unusable(key, f"is not known; write {' or '.join(known)}")
    if protocol.startswith("SASL"):
        for key in ("username", "password"):
            if not values.get(key):
                raise found.unusable(key, f"is missing; {protocol} logs in with it")
    return Brokers(connection=found, servers=listed, protocol=protocol, mechanism=mechanism)
