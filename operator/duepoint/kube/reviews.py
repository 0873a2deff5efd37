"""What the API server says about tokens and rights: TokenReview and SubjectAccessReview."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from duepoint.kube import errors, port

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: A client waits for this.
_SECONDS = 5.0


class User(msgspec.Struct, frozen=True):
    """Whose token it is, as the API server names them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: Mapping[str, tuple[str, ...]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: User = User()
    audiences: tuple[str, ...] | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class Attributes(msgspec.Struct, frozen=True, rename="camel"):
    """What a user wants to do, as ``ResourceAttributes``."""

    namespace: str
    verb: str
    group: str
    resource: str
    subresource: str
    name: str


async def user_of(api: port.Api, token: str, audiences: tuple[str, ...] = ()) -> User | None:
    """Whose token it is; None where it is no valid one. Raises ``kube.errors.ApiError``.

    ``audiences``: the token has to be for one of them; empty = for the API server itself.
    """
    spec: dict[str, object] = {"token": token}
    if audiences:
        spec["audiences"] = audiences
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    try:
        answer = await api.request("POST", _TOKENS, body, timeout_seconds=_SECONDS)
    except errors.Invalid:
        return None
    status = msgspec.json.decode(answer, type=_TokenReview).status
    if not status.authenticated or not status.user.username:
        return None
    if audiences and not set(audiences) & set(status.audiences or ()):
        return None  # an authenticator that does not know audiences
    return status.user


async def may(api: port.Api, user: User, wanted: Attributes) -> bool:
    """Whether the user may do this. Raises ``kube.errors.ApiError``."""
    spec = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups or (),
        "extra": user.extra or {},
        "resourceAttributes": wanted,
    }
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = await api.request("POST", _ACCESS, body, timeout_seconds=_SECONDS)
    return msgspec.json.decode(answer, type=_AccessReview).status.allowed
