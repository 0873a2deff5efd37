"""The exceptions of the client, ordered by what the caller should do next.

The API answers a request that it does not carry out with a problem (RFC 9457,
``application/problem+json``). Its ``code`` is stable; its other texts may change. The status
decides which exception it becomes, so that callers also catch codes that a later API adds::

    ClientError                  a DuepointError; everything that this package raises by itself
    ├── ApiProblem                   the API's answer: status, code, detail, field
    │   ├── RequestRefused               change the request (400, 405, 406, 413, 415, 422 ...)
    │   ├── AccessDenied                 another token, or a role (401, 403)
    │   ├── NothingThere                 no such set or member (404, 410)
    │   ├── StateConflict                the set or the member is in another state (409)
    │   ├── TagMismatch                  If-Match or If-None-Match did not hold: read again (412)
    │   └── ServiceBusy                  429, 5xx, also after the retries; retry_after_seconds
    └── ServiceUnreachable           no connection, no answer in time, or an answer cut short,
                                     also after the retries: the change may have been made

Messages contain no token and at most the first characters of the API's answer.
"""

from __future__ import annotations

import httpx2
import msgspec

from duepoint import errors
from duepoint.model.answers import Problem


class ClientError(errors.DuepointError):
    """Root of the client's exceptions; never raised itself."""


class ApiProblem(ClientError):
    """The API refused, and said why.

    Attributes:
        status: the HTTP status.
        code: stable word, such as ``TooLate``; ``Http<status>`` if the answer had none, for
            example because it came from a proxy.
        detail: one sentence for people.
        field: the part of the request that is wrong, such as ``schedule``; may be empty.
        request_id: identifies the request in the API's log; may be empty.
        retry_after_seconds: how long the API asks to wait; None if it does not.
    """

    def __init__(self, problem: Problem, *, retry_after_seconds: float | None = None) -> None:
        self.status = problem.status
        self.code = problem.code or f"Http{problem.status}"
        self.detail = problem.detail or problem.title or f"status {problem.status}"
        self.field = problem.field
        self.request_id = problem.request_id
        self.retry_after_seconds = retry_after_seconds
        where = f"{self.field}: " if self.field and self.field not in self.detail else ""
        super().__init__(f"{where}{self.detail} ({self.code})")


class RequestRefused(ApiProblem):
    """The request is wrong; a retry would be refused as well."""


class AccessDenied(ApiProblem):
    """The token is unknown or expired (401), or its owner may not do this (403)."""


class NothingThere(ApiProblem):
    """There is no such set or member, or the caller may not see it."""


class StateConflict(ApiProblem):
    """The set or the member is in a state that forbids the request."""


class TagMismatch(ApiProblem):
    """The member has another version than the caller expected; read it again."""


class ServiceBusy(ApiProblem):
    """The API, or a system that it depends on, cannot take the request now."""


class ServiceUnreachable(ClientError):
    """There was no complete answer; a change may have been made nevertheless."""


_BY_STATUS: dict[int, type[ApiProblem]] = {
    401: AccessDenied,
    403: AccessDenied,
    404: NothingThere,
    408: ServiceBusy,
    409: StateConflict,
    410: NothingThere,
    412: TagMismatch,
    425: ServiceBusy,
    429: ServiceBusy,
}


#: Code of a 404 for a missing member, not a missing set.
NO_MEMBER = "NoSuchMember"
#: Code of a retry that arrives while the first attempt is still in flight.
_IN_PROGRESS = "IdempotencyInProgress"


def of_problem(problem: Problem, retry_after_seconds: float | None = None) -> ApiProblem:
    """Return the exception for a problem."""
    kind = ServiceBusy if problem.code == _IN_PROGRESS else _BY_STATUS.get(problem.status)
    if kind is None:
        kind = ServiceBusy if problem.status >= 500 else RequestRefused
    return kind(problem, retry_after_seconds=retry_after_seconds)


def of_answer(answer: httpx2.Response) -> ApiProblem:
    """Return the exception for an HTTP answer that is not a success."""
    status, body = answer.status_code, answer.content
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # The answer is not from this API but from a proxy. Its first words help to find out which.
        text = body[:400].decode("utf-8", "replace").strip()
        said = errors.quoted(text) if body else "nothing"
        problem = Problem(detail=f"the server answered {status} and said {said}")
    wait = answer.headers.get("Retry-After", "")  # in seconds: this API uses no dates
    is_number = wait.isascii() and wait.isdecimal() and len(wait) < 10
    problem = msgspec.structs.replace(problem, status=status)
    return of_problem(problem, float(wait) if is_number else None)
