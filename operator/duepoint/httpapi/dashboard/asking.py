"""A request of the dashboard with its caller, and the API server asked in the caller's name.

What the API server refuses becomes a problem with its own words: they are about what the caller
asked, and say best which right is missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from duepoint.httpapi import access, calls, operations
from duepoint.httpapi.problems import OperationProblem
from duepoint.kube import api as kubeapi
from duepoint.kube import errors as kube_errors
from duepoint.kube import reviews, schedules

_MOST_WORDS: Final = 400


@dataclass(slots=True, eq=False)
class UserCall:
    """A request, who makes it, and a session of theirs to the API server."""

    call: calls.OperationCall
    caller: access.Caller
    api: kubeapi.ApiSession

    @property
    def namespace(self) -> str | None:
        """The one that the parameter ``namespace`` names; None = all."""
        text = self.call.text("namespace")
        if text and not operations.is_namespace(text):
            message = "no namespace can have this name"
            raise OperationProblem("InvalidParameter", message, field="namespace")
        return text or None


def attributes(
    verb: str, resource: str, namespace: str | None, name: str = ""
) -> reviews.Attributes:
    """What a user wants to do with objects of ours; without a namespace with those of all."""
    return reviews.Attributes(
        namespace=namespace or "",
        verb=verb,
        group=schedules.GROUP,
        resource=resource,
        subresource="",
        name=name,
    )


async def may_list(rights: access.Access, asked: UserCall, namespace: str | None) -> bool:
    """Whether the caller may list the Schedules of this namespace; None = of all."""
    wanted = attributes("list", schedules.PLURAL, namespace)
    return await rights.may(asked.caller, wanted)


async def check_list(rights: access.Access, asked: UserCall, namespace: str | None) -> None:
    """Raise Problem Forbidden where the caller may not list these Schedules."""
    if not await may_list(rights, asked, namespace):
        where = "of all namespaces" if namespace is None else "of this namespace"
        message = f"you may not list schedules (group duepoint.dev) {where}"
        raise OperationProblem("Forbidden", message)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What the API server refuses is a problem of the caller's request."""
    try:
        yield
    except kube_errors.ApiError as error:
        raise _problem_of(error) from error


#: Refusals whose own words say what is wrong, by kind.
_IN_ITS_WORDS: Final = (
    (kube_errors.Forbidden, "Forbidden"),
    (kube_errors.NotFound, "NotFound"),
    (kube_errors.Conflict, "Conflict"),
    (kube_errors.Invalid, "InvalidSchedule"),
)


def _problem_of(error: kube_errors.ApiError) -> OperationProblem:
    """The problem that an answer of the API server is."""
    for kind, code in _IN_ITS_WORDS:
        if isinstance(error, kind):
            return OperationProblem(code, (error.server_message or str(error))[:_MOST_WORDS])
    if isinstance(error, kube_errors.Gone):
        message = "the list took too long; begin again without a cursor"
        return OperationProblem("InvalidParameter", message, field="cursor")
    if isinstance(error, kube_errors.Unauthorized):
        message = (
            "the Kubernetes API server does not take this token; the dashboard needs one whose "
            "audience is the API server, such as kubectl create token gives"
        )
        return OperationProblem("Unauthenticated", message, headers=access.CHALLENGE)
    if isinstance(error, kube_errors.Throttled):
        wait = error.retry_after_seconds or 1
        message = "the Kubernetes API server asks to wait"
        return OperationProblem("TooManyRequests", message, retry_after_seconds=wait)
    message = "the Kubernetes API server does not answer; repeat it"
    return OperationProblem("Unavailable", message, retry_after_seconds=1)
