"""The page docs/reference/settings.md, made from `duepoint.settings` and the notes below.

A setting without a note is an error.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from duepoint import settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"


#: What the code does not say of a setting: the values it takes, and the reason for its default.
NOTES = """\
redis_url | [URL](redis.md) | the wrong Redis is worse than none, so nothing is assumed
redis_username | name | one URL for both processes, a user for each
redis_password_file | path | a file can be rotated, and a logged address holds no password
redis_ca_file | path | what the machine trusts, unless the CA is your own
redis_cert_file | path | most servers ask for a password instead
redis_sentinel_password_file | path | the servers' password is not sent to Sentinels
redis_prefix | name | one installation on a server needs no other; the shipped ACL lines say it
namespace | name | two installations with namespaces of their own do not meet
installation | name | the chart's name for everything in a release called duepoint
identity | text | a Pod's name is unique already
watch_namespaces | names | one installation serves a cluster; fewer rights are a choice
blob_key_file | path | write access to Redis must not be enough to create Jobs
shards | 1 to 4096, a power of two | 64 keep scripts short up to 10 million Schedules
own_stream_bytes_per_namespace | 0 to 1099511627776 bytes | a few namespaces fit into a
    server of 2 GiB beside the index; 8 MiB are about 25,000 entries without a payload
dead_letter_bytes_per_namespace | 65536 to 1099511627776 bytes | a letter has about 1 KB, with its
    record
listen_address | address | the kubelet, Prometheus and clients come from outside the Pod
http_port | 0 to 65535 | the usual one
log_level | debug, info, warning, error | info has starts, ends and troubles only
lease_seconds | 2 to 300 seconds | shorter: a pause of the process loses claims; longer: a crash
    delays what it held
concurrency | 1 to 4096 targets | one process keeps that many requests going
grace_seconds | 0 to 3600 seconds | below the 30 s that a Pod is given; the rest is handed back in
    time
api_port | 0 to 65535 | the usual second port of https
tls_cert_file | path, none | tokens must not travel in the clear unless that is asked for
api_audiences | texts | kubectl and ServiceAccounts have such tokens already
api_dashboard | true, false | another door into the cluster has to be asked for
egress_mode | public-only, same-namespace, allowlist, open | a user who may create a Schedule must
    not reach every private address
egress_allowed_cidrs | address ranges | nothing is opened unasked
egress_denied_cidrs | address ranges | wins over everything else
egress_cluster_cidrs | address ranges | a URL never leads into the cluster, even if the ranges are
    public or mode is open; the worker's own Pod network counts without being named
webhook_insecure | http, tls | payloads do not cross the internet in the clear, and the author of a
    Schedule must not give its secrets to an impostor
"""

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
these from
its values; see [Install with Helm](../howto/install-with-helm.md).

The API server is found as kubectl finds it, by `KUBECONFIG` or `~/.kube/config`, and in a Pod by
its own account. Traces of a worker follow [OpenTelemetry's
variables](../howto/trace-slots.md). Logs are JSON, and text on a terminal.
"""

_COLUMNS = (
    "| variable | flag | values | default | meaning | why this default |\n" + "|---" * 6 + "|"
)


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
    values, reason = notes()[field.name]
    cells = (
        f"`{settings.variable(field.name)}`",
        f"`{settings.flag(field.name)}`",
        values,
        _default(field),
        field.metadata["help"],
        reason,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


@functools.cache
def notes() -> dict[str, tuple[str, str]]:
    """Name -> values and reason; a line that is indented continues the one before."""
    lines = NOTES.replace("\n    ", " ").splitlines()
    parts = (line.split(" | ") for line in lines)
    return {name: (values, reason) for name, values, reason in parts}


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
