"""What kopf is given: a login, a handler for each of our kinds, and settings.

The watch brings metadata only. kopf's documented way to log in takes a session of our own, and this
one asks for ``PartialObjectMetadata``: an object costs kopf half a kilobyte, whether its spec has
300 bytes or a megabyte, and a JSON text of any depth never reaches kopf's recursive reader. What
changed is read by the service that needs it.

kopf lists before it watches. A list of 100,000 objects would cost it a minute, and our own list
shows them anyway; so our session narrows kopf's lists to nothing, and kopf gets the version from
which it watches. ``listed`` is called for each, as kopf itself does not say when it has listed.

``on.event`` only: it writes nothing to the object and sees its newest state. (Handlers for create
and update would patch an annotation onto every object, an index is quadratic.) The handlers decide
nothing: they turn metadata into values and hand them over.

Settings are the documented ones; measured with kopf 1.45.2 on kube-apiserver 1.36, figures are in
``docs/design``'s notes on kopf. kopf watches and nothing else: it patches nothing, posts nothing,
scans nothing, and compares nothing. Before it calls a handler kopf copies each object several times
over and compares the copies with what an annotation says of it; our handlers do not ask. The two
storages below store nothing and find nothing, which halves the CPU time of an event.
"""

from __future__ import annotations

import datetime as dt
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import aiohttp
import kopf

from duepoint.controller import observed
from duepoint.controller.observed import Observed
from duepoint.kube import port, schedules
from duepoint.kube.credentials import Login

#: Every watch is renewed this often by the server; ours is a little longer.
SERVER_TIMEOUT_SECONDS = 300

#: The kinds that are watched.
PLURALS = (schedules.PLURAL, schedules.RUN_PLURAL, schedules.SET_PLURAL)
_KINDS = tuple(f"/{plural}" for plural in PLURALS)
_OUR_GROUP = f"/apis/{schedules.API_VERSION}"

#: Warnings about nothing: all streams in one line, and signals that are not kopf's to take.
_NOISE = ("Unprocessed streams left", "OS signals are ignored")


def settings() -> kopf.OperatorSettings:
    """New settings for one life of kopf's operator."""
    tuned = kopf.OperatorSettings()
    # Our own events are coalesced and rate-limited elsewhere.
    tuned.posting.enabled = False
    # Scanning lists and watches CRDs and namespaces, for which we have and want no rights: it
    # would retry 403s for 54 s before the first watch begins.
    tuned.scanning.disabled = True
    tuned.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    tuned.watching.client_timeout = SERVER_TIMEOUT_SECONDS + 30
    # A stalled stream on an open socket: seen after this, all changes visible then.
    tuned.watching.inactivity_timeout = 70
    # After a 410 kopf lists at once, each time; this is the only wait in that loop.
    tuned.watching.reconnect_backoff = 0.3
    # No handler of ours asks what has changed: half the time of an event would go into copies.
    tuned.persistence.diffbase_storage = NoDiffBase()
    tuned.persistence.progress_storage = NoProgress()
    # A worker task per object lives this long after its last event; the default of 5 s keeps
    # 22,000 tasks at 50,000 objects. A limit of workers would multiply with it: left None.
    tuned.queueing.idle_timeout = 0.2
    # After these kopf gives up and our supervisor starts it anew with a backoff of its own.
    tuned.networking.error_backoffs = [0.5, 1, 2, 4, 8, 15]
    tuned.networking.connect_timeout = 5
    tuned.networking.request_timeout = 60
    # Our stop flag ends kopf; its own SIGKILL timer must never end the process.
    tuned.process.ultimate_exiting_timeout = None
    return tuned


class NoDiffBase(kopf.DiffBaseStorage):
    """Every object looks alike: empty."""

    def build(
        self,
        *,
        body: kopf.Body,  # noqa: ARG002 - kopf's
        extra_fields: Iterable[Any] | None = None,  # noqa: ARG002 - kopf's
    ) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002 - kopf's
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        pass


class NoProgress(kopf.AnnotationsProgressStorage):
    """Nothing to leave out of an empty object."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def quieten() -> None:
    """Keep out of the log what kopf says at each end of a term: its streams, its signals."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_news)  # once: it is the same function


def _is_news(record: logging.LogRecord) -> bool:
    return not (record.name.startswith("kopf") and record.getMessage().startswith(_NOISE))


@dataclass(frozen=True, slots=True)
class ObservedChange:
    """One event of a watch.

    Attributes:
        plural: of which kind.
        seen: the metadata.
    """

    plural: str
    seen: Observed


#: Takes each change, in kopf's thread.
Deliver = Callable[[ObservedChange], None]
#: Takes the path of each collection whose list the API server has answered, in kopf's thread.
Listed = Callable[[str], None]
#: No object has this name.
_NOTHING = "metadata.name=-"

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
        self,
        login: Callable[[], Awaitable[Login]],
        listed: Listed,
        utc_now: Callable[[], dt.datetime] = _utc_now,
    ) -> None:
        self._login = login
        self._listed = listed
        self._utc_now = utc_now
        self._current: tuple[Login, kopf.AiohttpSession] | None = None
        self._opened: list[aiohttp.ClientSession] = []

    async def current(self) -> kopf.AiohttpSession:
        """The same object for the same login within one period.

        kopf finds out by comparing them whether a login after a 401 has brought anything new, and
        gives up where it has not.
        """
        login = await self._login()
        periods = int(self._utc_now().timestamp()) // _LOGIN_SECONDS + 2
        expires = dt.datetime.fromtimestamp(periods * _LOGIN_SECONDS, tz=dt.UTC)
        if self._current is not None:
            before, current = self._current
            if (before, current.expiration) == (login, expires):
                return current
        await self.close()
        session = _session(login, self._listed)
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


def _session(login: Login, listed: Listed) -> aiohttp.ClientSession:
    headers = {"Accept": _ACCEPT}
    if login.token:
        headers["Authorization"] = f"Bearer {login.token}"
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=login.ssl or True),
        headers=headers,
        proxy=login.proxy,
        trust_env=False,
        middlewares=(functools.partial(_narrow_list, listed),),
    )


async def _narrow_list(
    listed: Listed, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Ask for no object where kopf lists a kind of ours, and report the answer."""
    _, ours, path = request.url.path.partition(_OUR_GROUP)  # a server may have a path of its own
    if not path.endswith(_KINDS) or "watch" in request.url.query:
        return await send(request)
    request.url = request.url.update_query(fieldSelector=_NOTHING)
    request.headers["Accept"] = port.JSON  # PartialObjectMetadata is a form of single objects
    response = await send(request)
    if response.ok:
        listed(ours + path)
    return response


def registry(
    deliver: Deliver, logins: Logins, note_ending: Callable[[], None]
) -> kopf.OperatorRegistry:
    """The handlers for one life of kopf's operator; all arguments are used in kopf's thread."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.cleanup(registry=handlers)
    async def end(**_: Any) -> None:  # noqa: ANN401 - kopf's keywords
        note_ending()

    @kopf.on.login(registry=handlers)
    async def log_in(**_: Any) -> kopf.AiohttpSession:  # noqa: ANN401 - kopf's keywords
        return await logins.current()

    for plural in PLURALS:
        kopf.on.event(
            schedules.GROUP, schedules.VERSION, plural, registry=handlers, param=plural, id=plural
        )(functools.partial(changed, deliver))
    return handlers


async def changed(deliver: Deliver, *, event: kopf.RawEvent, param: str, **_: Any) -> None:  # noqa: ANN401
    """The handler: an event of the watch, with the metadata of its object."""
    deliver(ObservedChange(param, observed.of_change(event["type"], event["object"]["metadata"])))
