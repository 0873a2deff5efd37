"""The dashboard put together: which paths are its own, and what answers them."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Final, NamedTuple

from duepoint import clock as clocks
from duepoint import shares
from duepoint.delayqueue import delayqueue
from duepoint.httpapi import access, calls, operations
from duepoint.httpapi.dashboard import (
    forecasts,
    objects,
    queueviews,
)
from duepoint.httpapi.problems import OperationProblem
from duepoint.kube import api, transport
from duepoint.net.requests import Headers, HttpRequest, HttpResponse

_WAIT_SECONDS: Final = 10.0

Operate = Callable[[objects.UserCall], Awaitable[HttpResponse]]


class Dashboard:
    """Answers what is asked for by the dashboard's pages, and serves them."""

    def __init__(
        self,
        rights: access.Access,
        users: api.UserSessions,
        queue: delayqueue.DelayQueue,
        clock: clocks.Clock,
    ) -> None:
        self._users = users
        #: Connections to the API server, of which each user has a share.
        self._places: shares.FairPlaces[str] = shares.FairPlaces(transport.REQUEST_CONNECTIONS)
        self._files = WebFiles()
        read = objects.Objects(rights, queue, clock)
        given_up = queueviews.ScheduleLetters(rights, queue)
        self._operate: Mapping[str, Operate] = {
            "whoAmI": read.whoami,
            "listSchedules": read.list_schedules,
            "listSets": read.list_sets,
            "getSchedule": read.get_schedule,
            "triggerSchedule": objects.trigger,
            "suspendSchedule": objects.suspend,
            "resumeSchedule": objects.resume,
            "forecastLoad": forecasts.Forecasts(clock).forecast,
            "getQueue": queueviews.QueueViews(rights, queue).queue,
            "listAllLetters": given_up.list_all,
            "listScheduleLetters": given_up.list,
            "replayScheduleLetters": given_up.replay,
        }

    def file(self, request: HttpRequest, path: str) -> HttpResponse | None:
        """A file of the pages; see ``WebFiles.answer``."""
        return self._files.answer(request, path)

    async def answer(
        self, operation: operations.Operation, call: calls.OperationCall, caller: access.Caller
    ) -> HttpResponse:
        """Carry an operation out with the caller's own token."""
        token = access.token_of(call.request.headers.get("authorization", ""))
        api = await self._users.of(token)
        if not await self._places.wait(caller.asker, _WAIT_SECONDS):
            message = "you have too many requests under way"
            raise OperationProblem("TooManyRequests", message, retry_after_seconds=1)
        try:
            return await self._operate[operation.name](objects.UserCall(call, caller, api))
        finally:
            self._places.leave(caller.asker)


# -- the files of the pages ------------------------------------------------------------------------

# All that a page needs comes from here: the policy of answers allows no script, style or request
# of any other origin, none that stands in the page itself, and no frame around it. A browser asks
# for each file anew and gets 304 while it is the same, so a page never runs with half an upgrade.

PREFIX: Final = "/dashboard/"
_PACKAGE: Final = "duepoint.httpapi.dashboard"
_FOLDER: Final = "web"
INDEX: Final = "index.html"

TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_SECURITY: Final[Headers] = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
)


class WebFile(NamedTuple):
    """A file with the headers of its answers."""

    body: bytes
    headers: Headers
    tag: str


class WebFiles:
    """The files by name."""

    def __init__(self) -> None:
        folder = resources.files(_PACKAGE) / _FOLDER
        self.by_name = {
            entry.name: _read(entry.name, entry.read_bytes())
            for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
            if entry.name.rpartition(".")[2] in TYPES
        }

    def answer(self, request: HttpRequest, path: str) -> HttpResponse | None:
        """The file that a path names; None where the path is not one of the dashboard's.

        Raises:
            OperationProblem: NotFound, MethodNotAllowed.
        """
        if path in ("/", PREFIX[:-1]):
            self._check_method(request)
            # Relative to the path that was asked for: a proxy may have cut off a prefix.
            target = PREFIX[1:]
            return HttpResponse(302, (("Location", target), ("Cache-Control", "no-store")))
        if not path.startswith(PREFIX):
            return None
        self._check_method(request)
        found = self.by_name.get(path.removeprefix(PREFIX) or INDEX)
        if found is None:
            raise OperationProblem("NotFound", "the dashboard has no such file")
        if found.tag in _tags(request.headers.get("if-none-match", "")):
            return HttpResponse(304, found.headers)
        return HttpResponse(200, found.headers, found.body)

    @staticmethod
    def _check_method(request: HttpRequest) -> None:
        if request.method not in ("GET", "HEAD"):
            headers = (("Allow", "GET, HEAD"),)
            raise OperationProblem("MethodNotAllowed", "GET it", headers=headers)


def _read(name: str, body: bytes) -> WebFile:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers: Headers = (
        ("Content-Type", TYPES[name.rpartition(".")[2]]),
        ("ETag", tag),
        ("Cache-Control", "no-cache"),
        *_SECURITY,
    )
    return WebFile(body, headers, tag)


def _tags(header: str) -> list[str]:
    return [each.strip().removeprefix("W/") for each in header.split(",")]
