"""The exceptions of the client, ordered by what the caller should do next.

The API answers a request that it does not carry out with a problem (RFC 9457,
``application/problem+json``), whose ``code`` is stable and whose other texts may change. Which
exception it becomes follows from the status, so a code that a later API adds still lands where the
caller looks for it::

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

Messages hold no token and at most the first characters of what the API said.
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
        status: of HTTP.
        code: stable word, such as ``TooLate``; ``Http<status>`` where the answer had none, because
            it came from a proxy, for example.
        detail: one sentence for people.
        field: the part of the request that it is about, such as ``schedule``; may be empty.
        request_id: names the request in the API's log; may be empty.
        retry_after_seconds: how long the API asks to wait; None where it does not.
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
    """The request is wrong; the same one again changes nothing."""


class AccessDenied(ApiProblem):
    """The token is unknown or expired (401), or its owner may not do this (403)."""


class NothingThere(ApiProblem):
    """No such set or member, or none that the caller may know of."""


class StateConflict(ApiProblem):
    """The set or the member is in a state that forbids the request."""


class TagMismatch(ApiProblem):
    """The member is another version than the caller asked for; read it again."""


class ServiceBusy(ApiProblem):
    """The API, or what it stands on, cannot take the request now."""


class ServiceUnreachable(ClientError):
    """There was no answer, or only a part of one; a change may have been made all the same."""


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


#: A first attempt is still under way when the second one comes.
_IN_PROGRESS = "IdempotencyInProgress"


def of_problem(problem: Problem, retry_after_seconds: float | None = None) -> ApiProblem:
    """The exception that a problem stands for."""
    kind = ServiceBusy if problem.code == _IN_PROGRESS else _BY_STATUS.get(problem.status)
    if kind is None:
        kind = ServiceBusy if problem.status >= 500 else RequestRefused
    return kind(problem, retry_after_seconds=retry_after_seconds)


def of_answer(answer: httpx2.Response) -> ApiProblem:
    """The exception for an answer of HTTP that is no success."""
    status, body = answer.status_code, answer.content
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Not this API: a proxy's page. Its first words help to find out whose.
        text = body[:400].decode("utf-8", "replace").strip()
        said = errors.quoted(text) if body else "nothing"
        problem = Problem(detail=f"the server answered {status} and said {said}")
    wait = answer.headers.get("Retry-After", "")  # in seconds: this API uses no dates
    is_number = wait.isascii() and wait.isdecimal() and len(wait) < 10
    problem = msgspec.structs.replace(problem, status=status)
    return of_problem(problem, float(wait) if is_number else None)
