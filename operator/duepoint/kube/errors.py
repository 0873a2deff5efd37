"""The errors of the API server, grouped by how a caller reacts.

This package turns library exceptions and HTTP statuses into these errors; callers see nothing else.
A refusal keeps the server's own message, cut to a bounded length, because it is usually the best
explanation.

::

    ApiError
    ├── Unavailable      (also TryLater) 5xx, network, timeout; if ``sent``, the server may have
    │   │                accepted it all the same, so compare before you write again
    │   ├── Throttled        429: nothing was done; wait ``retry_after_seconds``
    │   └── Unauthorized     401 although the credentials were read again: wait for new ones
    ├── Conflict         409: the name is taken (``already_exists``) or the version is out of date
    ├── Gone             410: the resource version or continue token is too old: list again
    ├── NotFound         404
    ├── Forbidden        403, with its cause: quota, namespace terminating, rights, admission
    └── Invalid          400, 413, 422: a retry does not help
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from duepoint import errors

#: The longest message of the API server that is passed on, in characters.
MESSAGE_LIMIT = 800


class ApiError(errors.DuepointError):
    """The API server did not do what was asked.

    Attributes:
        status: the HTTP status; 0 = no answer arrived.
        reason: the ``reason`` of the server's Status object, such as ``AlreadyExists``; may be "".
        server_message: the server's message without the attempted request; "" = none.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message[:MESSAGE_LIMIT])
        self.server_message = ""
        self.status = status
        self.reason = reason


class Unavailable(ApiError, errors.ApiUnavailable):
    """There was no answer, or none that tells success from failure.

    Attributes:
        sent: False only if the request certainly never reached the server.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        sent: bool = True,
        retry_after_seconds: float | None = None,
    ) -> None:
        ApiError.__init__(self, message, status=status)
        self.sent = sent
        self.retry_after_seconds = retry_after_seconds


class Throttled(Unavailable):
    """429: the server did nothing and said when to come back."""


class Unauthorized(Unavailable):
    """401 twice: the credentials are expired or wrong, and reading them again changed nothing."""


def may_be_carried_out(error: ApiError) -> bool:
    """Whether the server may have carried out the failed request, or may still do so."""
    return isinstance(error, Unavailable) and error.sent


#: How late a request to create a Job that got no answer may still be carried out: even after its
#: client has gone, the API server continues with what it has read until its own timeout
#: (``--request-timeout``, 60 s by default); the rest is for a connection that delays what was sent.
#: While the Job exists, its name makes a late request fail; after history has deleted it, nothing
#: does. So the code that deletes a Job waits for this.
LATE_US = 70_000_000


class Conflict(ApiError, errors.WorldChanged):
    """409."""

    @property
    def already_exists(self) -> bool:
        """True: an object of this name exists. False: the version written from is old."""
        return self.reason == "AlreadyExists"


class Gone(ApiError, errors.WorldChanged):
    """410: what was read is too old to continue from."""


class NotFound(ApiError):
    """404: no such object, or no such resource."""


class Forbidden(ApiError):
    """403: rights are missing, or a quota or an admission webhook refuses the request.

    Attributes:
        is_about_rights: whether the caller lacks rights.
        is_terminating: whether the namespace is being deleted.
    """

    def __init__(
        self,
        message: str,
        *,
        is_about_rights: bool = False,
        is_terminating: bool = False,
        status: int = 403,
    ) -> None:
        super().__init__(message, status=status, reason="Forbidden")
        self.is_about_rights = is_about_rights
        self.is_terminating = is_terminating


class Invalid(ApiError):
    """400, 413 or 422: the object itself is refused.

    Attributes:
        causes: the fields that the server named, such as ``spec.template``, each with the
            server's message.
    """

    def __init__(
        self, message: str, *, status: int = 422, causes: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(message, status=status)
        self.causes = causes

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field for field, _ in self.causes)


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    causes: list[_Cause] | None = None
    retry_after_seconds: int = 0


class ApiStatus(msgspec.Struct, rename="camel"):
    """``metav1.Status``, as far as a reaction needs it."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None

    @property
    def causes(self) -> list[_Cause]:
        return (self.details.causes if self.details else None) or []


_status_decoder = msgspec.json.Decoder(ApiStatus)


def from_answer(
    attempt: str, status: int, headers: Mapping[str, str], body: bytes | msgspec.Raw
) -> ApiError:
    """Return the error for an answer that is not 2xx.

    Args:
        attempt: the request, such as ``POST /apis/batch/v1/namespaces/a/jobs``.
        status: HTTP status of the answer, or the code of an ERROR event.
        body: a Status object, or a proxy's page in its place.
    """
    answer = parse_status(body)
    message = f"{attempt}: {answer.message or f'HTTP {status}'}"
    # The server has not reached our resource version: its store was restored from a backup.
    if any(cause.reason == "ResourceVersionTooLarge" for cause in answer.causes):
        return Gone(message, status=status, reason=answer.reason)
    known: dict[str, Any] = {"status": status}
    retry_after = _retry_after(headers, answer)
    match status:
        case 400 | 413 | 415 | 422:
            known["causes"] = tuple(
                (cause.field, cause.message[:MESSAGE_LIMIT])
                for cause in answer.causes
                if cause.field
            )
        case 403:
            # Missing rights have no cause; the RBAC authorizer's text has been the same for years.
            known["is_about_rights"] = " cannot " in answer.message and "User " in answer.message
            named = {cause.reason for cause in answer.causes}
            known["is_terminating"] = "NamespaceTerminating" in named
        case 401:
            known["sent"] = False
        case 429:
            known |= {"sent": False, "retry_after_seconds": retry_after or 1.0}
        case status if status not in _BY_STATUS:
            known["retry_after_seconds"] = retry_after
    error = _BY_STATUS.get(status, Unavailable)(message, **known)
    error.reason, error.server_message = answer.reason, answer.message[:MESSAGE_LIMIT]
    return error


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: Throttled,
}


def parse_status(body: bytes | msgspec.Raw) -> ApiStatus:
    """Return the Status in an answer; anything else becomes the message of an empty one."""
    try:
        return _status_decoder.decode(body)
    except msgspec.DecodeError:
        return ApiStatus(message=bytes(body)[:200].decode(errors="replace").strip())


def _retry_after(headers: Mapping[str, str], answer: ApiStatus) -> float | None:
    """Return seconds; the API server sends no dates, and a proxy's date is not worth a parser."""
    text = headers.get("Retry-After") or headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(min(int(text[:6]), 3600))
    seconds = answer.details.retry_after_seconds if answer.details else 0
    return float(min(seconds, 3600)) if seconds > 0 else None
