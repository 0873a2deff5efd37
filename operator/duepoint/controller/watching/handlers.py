"""What kopf calls: a login, and a handler for changes of ScheduleRuns and for its own lists.

``on.event`` only: it writes nothing to the object and sees its newest state. (Handlers for create
and update would patch an annotation onto every object, an index is quadratic.) The handlers decide
nothing: they turn kopf's dicts into values and hand them over.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import kopf

from duepoint.controller import sighting
from duepoint.controller.scheduleruns import observed
from duepoint.controller.scheduleruns.observed import ObservedRun
from duepoint.controller.sighting import Sighting
from duepoint.kube import api, schedules
from duepoint.kube.credentials import Login

#: Told of each object; the flag says that it comes from a list, so kopf has just listed.
Deliver = Callable[[Sighting | ObservedRun, bool], None]

#: Credentials are asked for again this often, so that a rotated token is used in time.
_LOGIN_SECONDS = 300


def _utc_now() -> dt.datetime:
    return dt.datetime.now(tz=dt.UTC)


class Logins:
    """Our login as kopf takes it: a session with our own TLS context.

    kopf would make its context of file names, with the flags of the Python that it runs on
    (``tlsrules``) and from files that hold a certificate of a kubeconfig no longer. It closes what
    it has used; ``close`` closes a session that it never came to use.
    """

    def __init__(
        self, login: Callable[[], Awaitable[Login]], utc_now: Callable[[], dt.datetime] = _utc_now
    ) -> None:
        self._login = login
        self._utc_now = utc_now
        self._used: tuple[Login, kopf.AiohttpSession] | None = None

    async def current(self) -> kopf.AiohttpSession:
        """The same object for the same login within one period.

        kopf tells by comparing them whether a login after a 401 has brought anything new, and
        gives up where it has not.
        """
        login, expires = await self._login(), _expiry(self._utc_now())
        if self._used is not None:
            before, opened = self._used
            if (before, opened.expiration) == (login, expires):
                return opened
        await self.close()
        opened = kopf.AiohttpSession(
            server=login.server,
            default_namespace=login.namespace,
            expiration=expires,
            aiohttp_session=api.plain_session(login),
        )
        self._used = login, opened
        return opened

    async def close(self) -> None:
        """Close the newest session; once or more often."""
        if self._used is not None:
            await self._used[1].aiohttp_session.close()


def _expiry(now: dt.datetime) -> dt.datetime:
    periods = int(now.timestamp()) // _LOGIN_SECONDS + 2
    return dt.datetime.fromtimestamp(periods * _LOGIN_SECONDS, tz=dt.UTC)


def registry(deliver: Deliver, logins: Logins) -> kopf.OperatorRegistry:
    """The handlers for one life of kopf's operator; both arguments are used in kopf's thread."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def log_in(**_: Any) -> kopf.AiohttpSession:  # noqa: ANN401 - kopf's keywords
        return await logins.current()

    @kopf.on.event(schedules.GROUP, schedules.VERSION, schedules.PLURAL, registry=handlers)
    async def schedule_changed(event: Mapping[str, Any], **_: Any) -> None:  # noqa: ANN401
        deliver(sighting.of_watched(event["type"], event["object"]), event["type"] is None)

    @kopf.on.event(schedules.GROUP, schedules.VERSION, schedules.RUN_PLURAL, registry=handlers)
    async def run_changed(event: Mapping[str, Any], **_: Any) -> None:  # noqa: ANN401
        deliver(observed.of_watched(event["type"], event["object"]), event["type"] is None)

    return handlers
