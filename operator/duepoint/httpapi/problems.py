"""Everything that the API refuses, as RFC 9457 problems: one table of codes.

A code is stable: programs branch on it, and ``status`` follows from it. ``detail`` is one sentence
for people; it repeats at most a quoted, bounded piece of what was sent, never a token or a payload.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from duepoint.model import answers
from duepoint.net.requests import Headers, HttpResponse

CONTENT_TYPE: Final = "application/problem+json"


class Kind(NamedTuple):
    """What a code means: the status of the answer, and a title that is always the same."""

    status: int
    title: str


KINDS: Final = {
    "BadRequest": Kind(400, "The request is not proper HTTP/1.1"),
    "InvalidJson": Kind(400, "The body is not JSON that can be read in one way only"),
    "InvalidField": Kind(400, "A field has a wrong value"),
    "UnknownField": Kind(400, "There is no such field"),
    "MissingField": Kind(400, "A field is missing"),
    "InvalidId": Kind(400, "No member can have this id"),
    "InvalidParameter": Kind(400, "A query parameter is unknown, repeated or wrong"),
    "InvalidCursor": Kind(400, "The cursor is not from this list"),
    "InvalidHeader": Kind(400, "A header has a wrong value"),
    "Unauthenticated": Kind(401, "There is no valid bearer token"),
    "Forbidden": Kind(403, "The owner of the token may not do this"),
    "NotFound": Kind(404, "There is nothing here for the owner of the token"),
    "NoSuchSet": Kind(404, "There is no such ScheduleSet"),
    "NoSuchMember": Kind(404, "The set has no such member"),
    "MethodNotAllowed": Kind(405, "The path does not take this method"),
    "RequestTimeout": Kind(408, "The request did not arrive in time"),
    "DurabilityUnavailable": Kind(409, "The servers cannot give this durability"),
    "Conflict": Kind(409, "The object was changed meanwhile, or there is one of this name"),
    "IdCollision": Kind(409, "Another member has the same place; this id cannot be used"),
    "IdempotencyConflict": Kind(409, "The key was used for another request"),
    "IdempotencyInProgress": Kind(409, "A request with this key is being carried out"),
    "ManagedByRows": Kind(409, "The members are kept equal to the rows of the set"),
    "MemberSuspended": Kind(409, "The member is suspended"),
    "ScheduleSuspended": Kind(409, "The Schedule is suspended already"),
    "SetDeleting": Kind(409, "The set is being deleted"),
    "SetFull": Kind(409, "The set has as many members as it may have"),
    "SetStalled": Kind(409, "The spec of the set is wrong"),
    "SetSuspended": Kind(409, "The set is suspended"),
    "PreconditionFailed": Kind(412, "The member is another version than was asked for"),
    "PayloadTooLarge": Kind(413, "A body, row or payload is too large"),
    "UriTooLong": Kind(414, "The URL is too long"),
    "UnsupportedMediaType": Kind(415, "The body is of a type that is not read here"),
    "InvalidSchedule": Kind(422, "The expression is wrong"),
    "NeverFires": Kind(422, "The expression names no time"),
    "OutOfRange": Kind(422, "The expression leaves the years 1970 to 2112"),
    "Refused": Kind(422, "The Kubernetes API server refuses the object"),
    "TooLate": Kind(422, "The time has passed, and so has its deadline"),
    "UnknownTimeZone": Kind(422, "The time zone is unknown"),
    "TooManyIdempotencyKeys": Kind(429, "The namespace had too many idempotency keys today"),
    "TooManyRequests": Kind(429, "There are more requests than the limit allows"),
    "HeadersTooLarge": Kind(431, "There are too many headers, or too large ones"),
    "InternalError": Kind(500, "The API failed; its log says why"),
    "AuthenticationUnavailable": Kind(503, "The Kubernetes API server cannot be asked"),
    "ClusterUnavailable": Kind(503, "The Kubernetes API server does not answer"),
    "NotDurable": Kind(503, "The change is stored, but not as safely as was asked for"),
    "Overloaded": Kind(503, "There are too many connections or requests"),
    "QueueUnavailable": Kind(503, "Redis cannot take the request now"),
}

_BY_STATUS: Final = {
    400: "BadRequest",
    408: "RequestTimeout",
    413: "PayloadTooLarge",
    414: "UriTooLong",
    431: "HeadersTooLarge",
    503: "Overloaded",
}


class OperationProblem(Exception):
    """A request is refused.

    Attributes:
        code: a key of ``KINDS``; ``InvalidField`` in place of one that is not.
        field: what it is about: a field of the body, a parameter or a header; may be empty.
        retry_after_seconds: when it may be repeated; None = that would not help.
        headers: of the answer, beside ``Retry-After``.
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
        # A reason of a condition that this API has no code for is about a field all the same.
        self.code = code if code in KINDS else "InvalidField"
        self.detail = detail
        self.field = field
        self.retry_after_seconds = retry_after_seconds
        self.headers = headers

    @property
    def status(self) -> int:
        return KINDS[self.code].status


def of_row(problem: OperationProblem) -> answers.Problem:
    """The same within the answer to a row of a bulk stream."""
    return answers.Problem(
        status=problem.status, code=problem.code, detail=problem.detail, field=problem.field
    )


def response(problem: OperationProblem, request_id: str) -> HttpResponse:
    """The answer."""
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
    """What the server refuses before there is a request."""
    code = _BY_STATUS.get(status, "BadRequest")
    return OperationProblem(code, message, retry_after_seconds=1 if status == 503 else None)
