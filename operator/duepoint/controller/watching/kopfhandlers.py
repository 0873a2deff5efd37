"""What kopf calls: a login, and one handler each for Schedules and ScheduleRuns.

The watch brings metadata only. kopf's documented way to log in takes a session of our own, and this
one asks for ``PartialObjectMetadata``: an object costs kopf half a kilobyte, whether its spec has
300 bytes or a megabyte, and a JSON text of any depth never reaches kopf's recursive reader. What
changed is read by whoever needs it.

``on.event`` only: it writes nothing to the object and sees its newest state. (Handlers for create
and update would patch an annotation onto every object, an index is quadratic.) The handlers decide
nothing: they turn metadata into values and hand them over.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import kopf

from duepoint.controller import sighting
from duepoint.controller.sighting import Sighting
from duepoint.kube import port, schedules
from duepoint.kube.credentials import Login


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch.

    Attributes:
        plural: of which kind.
        seen: the metadata.
        is_listed: the watch lists what there is, because it begins anew.
    """

    plural: str
    seen: Sighting
    is_listed: bool


#: Takes each change, in kopf's thread.
Deliver = Callable[[Change], None]

#: Discovery answers in plain JSON, everything that has metadata in this form.
_ACCEPT = f"{port.JSON_METADATA}, {port.JSON}"

#: Credentials are asked for again this often, so that a rotated token is used in time.
_LOGIN_SECONDS = 300


def _utc_now() -> dt.datetime:
    return dt.datetime.now(tz=dt.UTC)


class Logins:
    """Our login as kopf takes it: a session with our own TLS context.

    kopf would make its context of file names, with the flags of the Python that it runs on
    (``tlsrules``) and from files that hold a certificate of a kubeconfig no longer. kopf closes
    what it has used to the end; ``close`` closes the rest, with every connection.
    """

    def __init__(
        self, login: Callable[[], Awaitable[Login]], utc_now: Callable[[], dt.datetime] = _utc_now
    ) -> None:
        self._login = login
        self._utc_now = utc_now
        self._current: tuple[Login, kopf.AiohttpSession] | None = None
        self._opened: list[aiohttp.ClientSession] = []

    async def current(self) -> kopf.AiohttpSession:
        """The same object for the same login within one period.

        kopf finds out by comparing them whether a login after a 401 has brought anything new, and
        gives up where it has not.
        """
        login, expires = await self._login(), _expiry(self._utc_now())
        if self._current is not None:
            before, current = self._current
            if (before, current.expiration) == (login, expires):
                return current
        await self.close()
        session = _session(login)
        self._opened.append(session)
        current = kopf.AiohttpSession(
            server=login.server,
            default_namespace=login.namespace,
            expiration=expires,
            aiohttp_session=session,
        )
        self._current = login, current
        return current

    async def close(self) -> None:
        """Close what was opened; once or more often."""
        while self._opened:
            await self._opened.pop().close()


def _session(login: Login) -> aiohttp.ClientSession:
    headers = {"Accept": _ACCEPT}
    if login.token:
        headers["Authorization"] = f"Bearer {login.token}"
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=login.ssl or True),
        headers=headers,
        proxy=login.proxy,
        trust_env=False,
    )


def _expiry(now: dt.datetime) -> dt.datetime:
    periods = int(now.timestamp()) // _LOGIN_SECONDS + 2
    return dt.datetime.fromtimestamp(periods * _LOGIN_SECONDS, tz=dt.UTC)


def registry(deliver: Deliver, logins: Logins) -> kopf.OperatorRegistry:
    """The handlers for one life of kopf's operator; both arguments are used in kopf's thread."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def log_in(**_: Any) -> kopf.AiohttpSession:  # noqa: ANN401 - kopf's keywords
        return await logins.current()

    for plural in (schedules.PLURAL, schedules.RUN_PLURAL):
        kopf.on.event(
            schedules.GROUP, schedules.VERSION, plural, registry=handlers, param=plural, id=plural
        )(functools.partial(_changed, deliver))
    return handlers


async def _changed(deliver: Deliver, *, event: kopf.RawEvent, param: str, **_: Any) -> None:  # noqa: ANN401
    kind = event["type"]
    seen = sighting.of_change(kind, event["object"]["metadata"])
    deliver(Change(param, seen, is_listed=kind is None))
