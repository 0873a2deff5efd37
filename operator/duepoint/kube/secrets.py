"""Reads of Secrets, ConfigMaps, ServiceAccounts and their tokens, one at a time by name.

Nothing here lists or watches: a worker may get a Secret that a Schedule names, and no other. No
value appears in a message, a log line or a ``repr``. ``targets.memory`` decides how long values are
cached.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from duepoint.kube import errors, port, times

#: The shortest life of a token that the API server allows.
TOKEN_SECONDS = 600

_OUR_ANNOTATIONS = "duepoint.dev/"

_PLURALS = {
    "Secret": "secrets",
    "ConfigMap": "configmaps",
    "ServiceAccount": "serviceaccounts",
}


@dataclass(frozen=True, slots=True)
class Data:
    """The data of an object, by key, and its annotations."""

    values: Mapping[str, bytes] = field(repr=False)
    annotations: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """The size in bytes, including keys."""
        held = sum(len(key) + len(value) for key, value in self.values.items())
        return held + sum(len(key) + len(text) for key, text in self.annotations.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token of a ServiceAccount; ``expires_us`` is microseconds since the epoch."""

    text: str = field(repr=False)
    expires_us: int


class _Object(msgspec.Struct, rename="camel"):
    metadata: port.Metadata = port.Metadata()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class _TokenStatus(msgspec.Struct, rename="camel"):
    token: str
    expiration_timestamp: str


class _TokenRequest(msgspec.Struct):
    status: _TokenStatus


_object_decoder = msgspec.json.Decoder(_Object)
_token_decoder = msgspec.json.Decoder(_TokenRequest)


async def read(
    api: port.Api,
    kind: str,
    namespace: str,
    name: str,
    *,
    timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
) -> Data:
    """Read a Secret or ConfigMap; of a ServiceAccount only its annotations.

    Raises:
        errors.NotFound, errors.Forbidden: as the API server says.
        errors.Unavailable: try again.
    """
    path = port.path("/api/v1", namespace, _PLURALS[kind], name)
    body = await api.request("GET", path, timeout_seconds=timeout_seconds)
    found = port.decoded(_object_decoder, body, f"GET {path}")
    # Keep only our annotations: others may contain an applied manifest of 256 KiB.
    listed = found.metadata.annotations or {}
    ours = {key: text for key, text in listed.items() if key.startswith(_OUR_ANNOTATIONS)}
    if kind == "Secret":
        return Data(_decoded(found.data, path), ours)
    texts = {key: text.encode() for key, text in (found.data or {}).items()}
    return Data(texts | _decoded(found.binary_data, path), ours)


async def token(
    api: port.Api,
    namespace: str,
    account: str,
    audience: str,
    *,
    timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
) -> Token:
    """Request a new token for this audience (TokenRequest); raises the same as ``read``."""
    path = port.path("/api/v1", namespace, "serviceaccounts", account) + "/token"
    wanted = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [audience], "expirationSeconds": TOKEN_SECONDS},
    }
    body = await api.request("POST", path, wanted, timeout_seconds=timeout_seconds)
    status = port.decoded(_token_decoder, body, f"POST {path}").status
    try:
        return Token(text=status.token, expires_us=times.parse_us(status.expiration_timestamp))
    except ValueError as error:
        raise errors.Unavailable(f"POST {path}: the answer has no time of expiry") from error


def _decoded(data: Mapping[str, str] | None, path: str) -> dict[str, bytes]:
    try:
        return {key: base64.b64decode(text) for key, text in (data or {}).items()}
    except (binascii.Error, ValueError):
        # Drop the cause: it might quote the secret text that it could not read.
        raise errors.Unavailable(f"GET {path}: the answer is not base64") from None
