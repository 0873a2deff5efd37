"""Secrets, ConfigMaps, ServiceAccounts and their tokens, read one at a time by name.

Nothing here lists or watches: a worker may get a Secret that a Schedule names, and no other.
What comes back never shows itself: no value stands in a message, a log line or a ``repr``. How
long it is believed is ``targets.memory``'s.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from duepoint.kube import errors, port, times

#: Tokens live as short as the API server allows.
TOKEN_SECONDS = 600

_OUR_ANNOTATIONS = "duepoint.dev/"

_PLURALS = {
    "Secret": "secrets",
    "ConfigMap": "configmaps",
    "ServiceAccount": "serviceaccounts",
}


@dataclass(frozen=True, slots=True)
class Data:
    """What an object holds, by key, and its annotations."""

    values: Mapping[str, bytes] = field(repr=False)
    annotations: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Bytes, keys included."""
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
    """What a Secret or ConfigMap holds; of a ServiceAccount its annotations alone.

    Raises:
        errors.NotFound, errors.Forbidden: as the API server says.
        errors.Unavailable: ask again.
    """
    path = port.path("/api/v1", namespace, _PLURALS[kind], name)
    body = await api.request("GET", path, timeout_seconds=timeout_seconds)
    found = port.decoded(_object_decoder, body, f"GET {path}")
    # Only ours: another's may be 256 KiB of a manifest that was applied.
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
    """A new token for this audience (TokenRequest); raises as ``read``."""
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
        # Without its cause: that might quote what it could not read.
        raise errors.Unavailable(f"GET {path}: the answer is not base64") from None
