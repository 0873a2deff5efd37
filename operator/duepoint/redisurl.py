"""Parses Redis URLs: of one server, of a cluster, or of a primary behind Sentinel.

``parse`` turns the text of the setting into an ``Address``, or raises a ValueError that says what
is wrong and what to write instead; neither repeats a password. It looks up no name and connects to
nothing. Files (password, certificates) have settings of their own. Parameters are checked, because
a misspelt one would otherwise silently have no effect.
"""

from __future__ import annotations

import enum
import urllib.parse
from dataclasses import dataclass, replace

#: The valid forms, for the message about a text that is not a Redis URL.
FORMS = (
    "redis://host:6379/0, redis+cluster://host1:6379,host2:6379,"
    " redis+sentinel://host1:26379,host2:26379/primary-name or unix:///path;"
    " rediss instead of redis for TLS"
)
_REDIS_PORT = 6379
_SENTINEL_PORT = 26379
_PARAMETERS = ("db", "server_name", "sentinel_username")


class ServerKind(enum.Enum):
    """The kind of deployment behind the address."""

    SERVER = ""
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A parsed URL.

    Attributes:
        hosts: the server; some nodes of the cluster; the Sentinels. Empty for a socket.
        path: path of a Unix socket; empty otherwise.
        primary: the name of the primary in Sentinel.
        database: its number; 0 in a cluster.
        server_name: the name in the servers' certificates; empty = the host to connect to.
        sentinel_username: the user to log in as at the Sentinels; empty = none.
    """

    kind: ServerKind = ServerKind.SERVER
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    tls: bool = False
    username: str | None = None
    password: str | None = None
    primary: str = ""
    database: int = 0
    server_name: str = ""
    sentinel_username: str = ""


def parse(text: str) -> Address:
    """Return the address in a URL; raises ValueError with what to write instead."""
    parts = urllib.parse.urlsplit(text.strip())
    base, _, suffix = parts.scheme.partition("+")
    kinds = {kind.value: kind for kind in ServerKind}
    if (
        base not in ("redis", "rediss", "unix")
        or suffix not in kinds
        or (base == "unix" and suffix)
    ):
        raise ValueError(f"is not a Redis URL; write {FORMS}")
    if parts.fragment:
        raise ValueError("has a # in it; write %23 for one inside a name or a password")
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    parameters = _parameters(parts.query)
    address = Address(
        kind=kinds[suffix],
        tls=base == "rediss",
        username=urllib.parse.unquote(username) or None,
        password=urllib.parse.unquote(password) or None,
        server_name=parameters.get("server_name", ""),
        sentinel_username=parameters.get("sentinel_username", ""),
    )
    database = parameters.get("db", "")
    if base == "unix":
        if not parts.path.strip("/"):
            raise ValueError("names no socket; write unix:///path")
        path = urllib.parse.unquote(parts.path)
        return replace(address, path=path, database=_database(database))
    return _on_network(address, hosts, parts.path.strip("/"), database)


def _on_network(address: Address, hosts: str, path: str, database: str) -> Address:
    usual = _SENTINEL_PORT if address.kind is ServerKind.SENTINEL else _REDIS_PORT
    found = tuple(_host(part, usual) for part in hosts.split(","))
    if address.kind is ServerKind.SERVER and len(found) > 1:
        raise ValueError("names several servers; write redis+cluster:// or redis+sentinel://")
    primary = ""
    if address.kind is ServerKind.SENTINEL:
        primary, _, path = path.partition("/")
        primary = urllib.parse.unquote(primary)
        if not primary:
            raise ValueError(
                "does not name the primary in Sentinel;"
                " write redis+sentinel://host1:26379,host2:26379/primary-name"
            )
    number = _database(path or database)
    if address.kind is ServerKind.CLUSTER and number:
        raise ValueError("names a database; a cluster has only database 0")
    return replace(address, hosts=found, primary=primary, database=number)


def _host(text: str, usual_port: int) -> tuple[str, int]:
    try:
        parts = urllib.parse.urlsplit(f"//{text.strip()}")
        port = parts.port
    except ValueError:
        raise ValueError("has a port that is not a number from 1 to 65535") from None
    if not parts.hostname or port == 0:
        raise ValueError(f"names no host; write {FORMS}")
    return parts.hostname, port or usual_port


def _database(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) < 6):
        raise ValueError("names a database that is not a number; write redis://host:6379/0")
    return int(text)


def _parameters(query: str) -> dict[str, str]:
    found = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    for name in found:
        if name not in _PARAMETERS:
            known = ", ".join(_PARAMETERS)
            raise ValueError(
                f'has the unknown parameter "{name[:40]}"; known are {known}, and everything else '
                "has a setting of its own"
            )
    return found
