"""Settings of the processes, read once at start from the environment and the command line.

Each setting is a field below. Its environment variable is ``DUEPOINT_`` and its name in capitals;
its flag is the name with dashes. A flag overrides the variable. A wrong value, or a variable
with our prefix that names no setting, raises an ``InvalidSetting`` that says which one and what to
write; the command line turns it into exit code 2. Values of secrets are never repeated.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from duepoint import errors, redisurl

PREFIX = "DUEPOINT_"

#: The repair of the queue treats a much longer lease as a mistake.
LONGEST_LEASE_SECONDS = 300

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


# -- readers: text -> value, or ValueError with what to write --------------------------------


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty; write a value or leave it out")
    return value.strip()


def _redis_url(value: str) -> str:
    redisurl.parse(value)
    return value.strip()


def _redis_prefix(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", value.strip()):
        raise ValueError(
            f"{errors.quoted(value)} cannot begin a key; write up to 63 letters, digits, '-', '_'"
            " or '.', such as dp or dp-staging"
        )
    return value.strip()


def _names(value: str) -> tuple[str, ...]:
    names = _words(value)
    for name in names:
        if len(name) > 63 or not name.replace("-", "a").isalnum() or name != name.lower():
            raise ValueError(f"{errors.quoted(name)} is not a namespace name; write a,b,c")
    return names


def _networks(value: str) -> tuple[IpNetwork, ...]:
    networks = []
    for part in _words(value):
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError:
            raise ValueError(
                f"{errors.quoted(part)} is not an address range; write 10.1.2.3/32,fd00::/64"
            ) from None
    return tuple(networks)


def _words(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _port(value: str) -> int:
    return _whole(value, 0, 65535)


def _shards(value: str) -> int:
    number = _whole(value, 1, 4096)
    if number & (number - 1):
        raise ValueError(f"{number} is not a power of two; write 64, or 256 from 10 M schedules on")
    return number


def _whole(value: str, least: int, most: int) -> int:
    try:
        number = int(value)
    except ValueError:
        raise ValueError(f"{errors.quoted(value)} is not a whole number") from None
    if not least <= number <= most:
        raise ValueError(f"{number} is out of range; write {least} to {most}")
    return number


def _between(least: int, most: int) -> Callable[[str], int]:
    return lambda value: _whole(value, least, most)


def _seconds(least: float, most: float) -> Callable[[str], float]:
    def read(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"{errors.quoted(value)} is not a number of seconds") from None
        if not least <= number <= most:
            raise ValueError(f"{value} is out of range; write {least:g} to {most:g} seconds")
        return number

    return read


#: The default of ``egress_mode``.
USUAL_EGRESS_MODE = "same-namespace"


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in choices:
            raise ValueError(
                f"{errors.quoted(value)} is unknown; write one of {', '.join(choices)}"
            )
        return value

    return read


def _true_or_false(value: str) -> bool:
    return _one_of("true", "false")(value) == "true"


def _insecure_options(value: str) -> tuple[str, ...]:
    return tuple(_one_of("http", "tls")(word) for word in _words(value))


def _file(value: str) -> Path:
    path = Path(value)
    if not path.is_file():
        raise ValueError(f"there is no file {errors.quoted(value)}")
    return path


def _file_or_none(value: str) -> Path | None:
    return None if value == "none" else _file(value)


# -- the settings ----------------------------------------------------------------------------


def _setting(read: Callable[[str], Any], default: Any, help_text: str) -> Any:  # noqa: ANN401
    metadata = {"read": read, "help": help_text}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    default = read(default) if isinstance(default, str) else default
    return dataclasses.field(default=default, metadata=metadata)


def _own_namespace() -> str:
    mounted = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    return mounted.read_text().strip() if mounted.is_file() else "duepoint-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Settings for the connection to the queue."""

    redis_url: str = _setting(
        _redis_url,
        dataclasses.MISSING,
        "URL of Redis or Valkey: redis://, redis+cluster://, redis+sentinel:// (rediss for TLS) "
        "or unix://; no default, because an index in the wrong place is worse than none",
    )
    redis_username: str | None = _setting(
        _text, None, "user to log in as; unset = the one in the URL, if any"
    )
    redis_password_file: Path | None = _setting(
        _file, None, "file with the Redis password; read again at each connection"
    )
    redis_ca_file: Path | None = _setting(
        _file, None, "file with the CA of the servers' certificates; unset = the system's CAs"
    )
    redis_cert_file: Path | None = _setting(
        _file,
        None,
        "file with our certificate, for servers that require one; its key is in the same file, or "
        "in tls.key beside it",
    )
    redis_sentinel_password_file: Path | None = _setting(
        _file, None, "file with the password for the Sentinels; unset = they require none"
    )
    redis_prefix: str = _setting(
        _redis_prefix,
        "dp",
        "prefix of every key and channel; each installation on a server needs one of its own",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(QueueSettings):
    """Settings of every process."""

    namespace: str = _setting(
        _text, _own_namespace, "namespace of this installation, where its Lease lives"
    )
    installation: str = _setting(
        _text, "duepoint", "name of this installation: of its Lease and its ClusterRoles"
    )
    identity: str = _setting(
        _text, socket.gethostname, "name of this replica; unset = the host's name"
    )
    watch_namespaces: tuple[str, ...] = _setting(
        _names, (), "namespaces to watch, separated by commas; empty = all"
    )
    blob_key_file: Path = _setting(
        _file,
        dataclasses.MISSING,
        "file with the 32 random bytes that sign what is stored in Redis; the same for all",
    )
    shards: int = _setting(
        _shards, 64, "parts of the queue, a power of two; counts only when the queue is made"
    )
    own_stream_bytes_per_namespace: int = _setting(
        _between(0, 1 << 40),
        256 * 1024 * 1024,
        "approximate bytes of the streams that one namespace may have in Duepoint's own Redis, one "
        "stream for each 8 MiB; 0 = none",
    )
    dead_letter_bytes_per_namespace: int = _setting(
        _between(64 * 1024, 1 << 40),
        16 * 1024 * 1024,
        "approximate bytes of the dead letters of one namespace, a quarter of them in each of its "
        "four shards",
    )
    listen_address: str = _setting(_text, "0.0.0.0", "address that every port listens on")  # noqa: S104
    http_port: int = _setting(_port, 8080, "port of /healthz, /readyz and /metrics; 0 = none")
    log_level: str = _setting(
        _one_of("debug", "info", "warning", "error"), "info", "lowest level that is logged"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings(Settings):
    """Settings of ``duepoint operator``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings(Settings):
    """Settings of ``duepoint worker``."""

    lease_seconds: float = _setting(
        _seconds(2, LONGEST_LEASE_SECONDS),
        10.0,
        "how long a claim lasts; a killed worker's points wait that long",
    )
    concurrency: int = _setting(_between(1, 4096), 256, "attempts of one kind made at one time")
    grace_seconds: float = _setting(
        _seconds(0, 3600), 20.0, "how long running deliveries may continue after SIGTERM"
    )
    egress_mode: str = _setting(
        _one_of("public-only", "same-namespace", "allowlist", "open"),
        USUAL_EGRESS_MODE,
        "which addresses webhooks may reach",
    )
    egress_allowed_cidrs: tuple[IpNetwork, ...] = _setting(
        _networks, (), "further addresses that webhooks may reach, separated by commas"
    )
    egress_denied_cidrs: tuple[IpNetwork, ...] = _setting(
        _networks, (), "addresses that webhooks never reach"
    )
    egress_cluster_cidrs: tuple[IpNetwork, ...] = _setting(
        _networks, (), "address ranges of the cluster's Pods, Services and nodes"
    )
    webhook_insecure: tuple[str, ...] = _setting(
        _insecure_options,
        (),
        "what webhooks may do without, separated by commas: http (https to public hosts), tls (the "
        "verification of their receiver's certificate)",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings(Settings):
    """Settings of ``duepoint api``."""

    api_port: int = _setting(_port, 8443, "port of the HTTP API")
    tls_cert_file: Path | None = _setting(
        _file_or_none,
        dataclasses.MISSING,
        "file with the API's certificate and its chain; its key is in the same file, or in tls.key "
        "beside it; read again when they change. none = plain http, tokens included: only behind "
        "a proxy that terminates TLS",
    )
    api_audiences: tuple[str, ...] = _setting(
        _words,
        (),
        "audiences, separated by commas; a token must have one of them; empty = the API server's",
    )
    api_dashboard: bool = _setting(
        _true_or_false, "false", "true serves the web dashboard under /dashboard/"
    )
    grace_seconds: float = _setting(
        _seconds(0, 3600),
        20.0,
        "how long open requests may continue after SIGTERM; in its first quarter new ones are "
        "still served, while /readyz answers 503",
    )


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def flag(name: str) -> str:
    """Return the command-line flag of a setting."""
    return "--" + name.replace("_", "-")


S = TypeVar("S", bound=QueueSettings)


def read(kind: type[S], environ: Mapping[str, str], flags: Mapping[str, str | None]) -> S:
    """Return the settings of a process; raises InvalidSetting for the first wrong or missing one.

    ``flags`` are the values of the command line by setting name; None means not given.
    """
    known = {field.name: field for field in dataclasses.fields(kind)}
    _refuse_unknown(environ)
    values: dict[str, Any] = {}
    for name, field in known.items():
        given, spelled = flags.get(name), flag(name)
        if given is None:
            given, spelled = environ.get(variable(name)), variable(name)
        if given is not None:
            try:
                values[name] = field.metadata["read"](given)
            except ValueError as error:
                raise errors.InvalidSetting(spelled, str(error)) from None
        elif dataclasses.MISSING is field.default is field.default_factory:
            raise errors.InvalidSetting(
                spelled, f"is not set; write {variable(name)}=... or {flag(name)} ..."
            )
    return kind(**values)


def from_environment(kind: type[S], flags: Mapping[str, str | None]) -> S:
    """Return the settings of this process."""
    return read(kind, os.environ, flags)


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    """Refuse unknown variables: a misspelt one would otherwise silently have no effect."""
    known = {
        variable(field.name)
        for kind in (OperatorSettings, WorkerSettings, ApiSettings)
        for field in dataclasses.fields(kind)
    }
    ours = {name for name in environ if name.startswith(PREFIX)} - known - _OF_CLIENTS
    for name in sorted(ours):
        if not name.startswith(_FOREIGN) and not _SERVICE_LINK.search(name):
            listed = ", ".join(sorted(known))
            raise errors.InvalidSetting(name, f"is not a setting; known are {listed}")


# Variables with our prefix that belong to the development tools.
_FOREIGN = (
    "DUEPOINT_CACHE",
    "DUEPOINT_KUBERNETES",
    "DUEPOINT_RELEASES",
    "DUEPOINT_STATE",
    "DUEPOINT_TEST_",
)
#: Variables of the HTTP API's client and ``duepoint set``, often set in the same shell.
_OF_CLIENTS = frozenset(
    {
        "DUEPOINT_API_URL",
        "DUEPOINT_API_TOKEN",
        "DUEPOINT_API_TOKEN_FILE",
        "DUEPOINT_API_CA_FILE",
        "DUEPOINT_API_SEND_TOKEN",
    }
)
# The kubelet gives each Pod variables of this form for every Service of its namespace.
_SERVICE_LINK = re.compile(r"_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
