"""The page docs/reference/settings.md, made from `duepoint.settings` and the values below.

A setting without values is an error.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from duepoint import settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"


#: The values that a setting takes, in words; the code has no such text.
VALUES = {
    "redis_url": "[URL](redis.md)",
    "redis_username": "name",
    "redis_password_file": "path",
    "redis_ca_file": "path",
    "redis_cert_file": "path",
    "redis_sentinel_password_file": "path",
    "redis_prefix": "name",
    "namespace": "name",
    "installation": "name",
    "identity": "text",
    "watch_namespaces": "names",
    "blob_key_file": "path",
    "shards": "1 to 4096, a power of two",
    "own_stream_bytes_per_namespace": "0 to 1099511627776 bytes",
    "dead_letter_bytes_per_namespace": "65536 to 1099511627776 bytes",
    "listen_address": "address",
    "http_port": "0 to 65535",
    "log_level": "debug, info, warning, error",
    "lease_seconds": "2 to 300 seconds",
    "concurrency": "1 to 4096 targets",
    "grace_seconds": "0 to 3600 seconds",
    "api_port": "0 to 65535",
    "tls_cert_file": "path, none",
    "api_audiences": "texts",
    "api_dashboard": "true, false",
    "egress_mode": "public-only, same-namespace, allowlist, open",
    "egress_allowed_cidrs": "address ranges",
    "egress_denied_cidrs": "address ranges",
    "egress_cluster_cidrs": "address ranges",
    "webhook_insecure": "http, tls",
}

#: Defaults that are found at start, in words.
FOUND_AT_START = {
    "namespace": "the Pod's own, else `duepoint-system`",
    "identity": "the host's name",
}

_HEAD = """\
# Settings

<!-- Written by `make generate`; edit tools/settingsdoc.py, or operator/duepoint/settings.py. -->

`duepoint operator`, `duepoint worker` and `duepoint api` read each setting from a flag or from an
environment variable, once, at start; a flag wins. There is no configuration file. A wrong value,
a required setting that is missing, and a variable with our prefix that names no setting end the
process with exit code 2 and one line that names it. Lists are separated by commas. The chart sets
these from its values; see [Install with Helm](../howto/install-with-helm.md).

The API server is found as kubectl finds it, by `KUBECONFIG` or `~/.kube/config`, and in a Pod by
its own account. Traces of a worker follow [OpenTelemetry's
variables](../howto/trace-slots.md). Logs are JSON, and text on a terminal.
"""

_COLUMNS = "| variable | flag | values | default | meaning |\n" + "|---" * 5 + "|"


def page() -> str:
    """Return the whole page."""
    own = {field.name for field in dataclasses.fields(settings.Settings)}
    parts = [_HEAD, "## Of every process\n", _table(settings.Settings, frozenset())]
    for title, kind in (
        ("Of the operator", settings.OperatorSettings),
        ("Of the worker", settings.WorkerSettings),
        ("Of the HTTP API", settings.ApiSettings),
    ):
        parts += [f"## {title}\n", _table(kind, frozenset(own))]
    return "\n".join(parts).rstrip() + "\n"


def _table(kind: type[settings.Settings], without: frozenset[str]) -> str:
    rows = [_row(field) for field in dataclasses.fields(kind) if field.name not in without]
    return "\n".join([_COLUMNS, *rows]) + "\n"


def _row(field: dataclasses.Field[Any]) -> str:
    cells = (
        f"`{settings.variable(field.name)}`",
        f"`{settings.flag(field.name)}`",
        VALUES[field.name],
        _default(field),
        field.metadata["help"],
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.name in FOUND_AT_START:
        return FOUND_AT_START[field.name]
    made = field.default_factory
    value = field.default if made is dataclasses.MISSING else made()
    for known, words in ((dataclasses.MISSING, "required"), (None, "unset"), ((), "empty")):
        if value is known or value == known:
            return words
    return f"`{_shown(value)}`"


def _shown(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case _:
            return str(value)
