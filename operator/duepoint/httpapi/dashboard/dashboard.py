"""The dashboard put together: which paths are its own, and what answers them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from duepoint import clock as clocks
from duepoint import shares
from duepoint.delayqueue import delayqueue
from duepoint.httpapi import access, calls, operations
from duepoint.httpapi.dashboard import (
    asking,
    files,
    forecasts,
    objects,
    queueviews,
)
from duepoint.httpapi.problems import OperationProblem
from duepoint.kube import api, transport
from duepoint.net.requests import HttpRequest, HttpResponse

_WAIT_SECONDS: Final = 10.0

Operate = Callable[[asking.UserCall], Awaitable[HttpResponse]]


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
        self._files = files.WebFiles()
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
            return await self._operate[operation.name](asking.UserCall(call, caller, api))
        finally:
            self._places.leave(caller.asker)
