"""The API's errors as RFC 9457 problems, with one table of codes.

Codes are stable: programs branch on them, and ``status`` follows from them. ``detail`` is for
people. It quotes at most a bounded piece of the request, never a token or a payload.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.model import answers
from duepoint.net.httpserver import Headers, HttpResponse

CONTENT_TYPE: Final = "application/problem+json"


class Kind(NamedTuple):
    """The meaning of a code: the status of the answer, and a fixed title."""

    status: int
    title: str


#: The code tells a program what to do; ``field`` and ``detail`` say what is wrong.
KINDS: Final = {
    "BadRequest": Kind(400, "The request is not HTTP/1.1, or its body not unambiguous JSON"),
    "InvalidField": Kind(400, "A field is unknown, missing or wrong"),
    "InvalidParameter": Kind(400, "A query parameter or header is unknown, repeated or wrong"),
    "Unauthenticated": Kind(401, "There is no valid bearer token"),
    "Forbidden": Kind(403, "The owner of the token may not do this"),
    "NotFound": Kind(404, "The object does not exist, or the owner of the token may not see it"),
    "NoSuchMember": Kind(404, "The set has no such member"),
    "MethodNotAllowed": Kind(405, "The path does not support this method"),
    "RequestTimeout": Kind(408, "The request did not arrive in time"),
    "Conflict": Kind(409, "The name, place or key is already in use"),
    "DurabilityUnavailable": Kind(409, "The servers cannot give this durability"),
    "IdempotencyInProgress": Kind(409, "A request with this key is being carried out"),
    "NotActive": Kind(409, "The member, Schedule or set is suspended or stalled"),
    "SetDeleting": Kind(409, "The set is being deleted"),
    "SetFull": Kind(409, "The set has as many members as it may have"),
    "PreconditionFailed": Kind(412, "The member has another version than the request requires"),
    "PayloadTooLarge": Kind(413, "A body, row or payload is too large"),
    "UnsupportedMediaType": Kind(415, "The content type of the body is not supported"),
    "InvalidSchedule": Kind(
        422, "The expression is wrong, or names no time, or the object is refused"
    ),
    "TooLate": Kind(422, "The time has passed, and so has its deadline"),
    "TooManyRequests": Kind(429, "There are more requests than the limit allows"),
    "HeadTooLarge": Kind(431, "The URL is too long, or there are too many or too large headers"),
    "InternalError": Kind(500, "The API failed; its log says why"),
    "NotDurable": Kind(503, "The change is stored, but without the requested durability"),
    "Unavailable": Kind(503, "Redis or the Kubernetes API server cannot take the request now"),
}
_BY_STATUS: Final = {
    400: "BadRequest",
    408: "RequestTimeout",
    413: "PayloadTooLarge",
    431: "HeadTooLarge",
    503: "Unavailable",
}


class OperationProblem(Exception):
    """A request is refused.

    Attributes:
        code: a key of ``KINDS``; any other code becomes ``InvalidField``.
        field: the field of the body, the parameter or the header at fault; may be empty.
        retry_after_seconds: when to repeat the request; None = that would not help.
        headers: headers of the answer besides ``Retry-After``.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        field: str = "",
        retry_after_seconds: float | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(detail)
        # Readers of members have further codes, which all concern a field.
        self.code = code if code in KINDS else "InvalidField"
        self.detail = detail
        self.field = field
        self.retry_after_seconds = retry_after_seconds
        self.headers = headers

    @property
    def status(self) -> int:
        return KINDS[self.code].status


def of_row(problem: OperationProblem) -> answers.Problem:
    """Return the problem for the answer to a row of a bulk stream."""
    return answers.Problem(
        status=problem.status, code=problem.code, detail=problem.detail, field=problem.field
    )


def response(problem: OperationProblem, request_id: str) -> HttpResponse:
    """Return the HTTP response for a problem."""
    kind = KINDS[problem.code]
    body = msgspec.json.encode(
        answers.Problem(
            title=kind.title,
            status=kind.status,
            code=problem.code,
            detail=problem.detail,
            field=problem.field,
            request_id=request_id,
        )
    )
    headers = [("Content-Type", CONTENT_TYPE), ("X-Request-Id", request_id), *problem.headers]
    if problem.retry_after_seconds is not None:
        headers.append(("Retry-After", str(max(1, round(problem.retry_after_seconds + 0.49)))))
    return HttpResponse(kind.status, tuple(headers), body)


def of_status(status: int, message: str) -> OperationProblem:
    """Return the problem for input that the HTTP server does not accept as a request."""
    code = _BY_STATUS.get(status, "BadRequest")
    return OperationProblem(code, message, retry_after_seconds=1 if status == 503 else None)


def unavailable(error: errors.TryLater | errors.WorldChanged) -> OperationProblem:
    """Return the problem for an error of the queue."""
    if isinstance(error, queue_errors.NotDurable):
        message = "the change is stored, but did not reach the requested durability in time"
        return OperationProblem("NotDurable", message, retry_after_seconds=1)
    wait = getattr(error, "retry_after_seconds", None)
    message = "Redis cannot take the request now, or moves its data; repeat it"
    return OperationProblem("Unavailable", message, retry_after_seconds=wait or 1)
