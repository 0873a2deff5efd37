"""The watch through kopf, whose operator runs in a thread and an event loop of its own.

The watch brings metadata only. kopf's documented login accepts a session of our own, and ours asks
for ``PartialObjectMetadata``: an object costs kopf half a kilobyte, whether its spec has 300 bytes
or a megabyte, and a deeply nested JSON text never reaches kopf's recursive parser. The service that
needs a changed object reads it. kopf lists before it watches. A list of 100,000 objects would cost
it a minute, and our own list shows them anyway. So our session narrows kopf's lists to nothing, and
kopf only gets the version to watch from.

We use ``on.event`` only: it writes nothing to the object and sees its newest state. (Handlers for
create and update would patch an annotation onto every object; an index is quadratic.)

kopf, when stopped, cancels every task of its loop that is younger than itself, so it has its own
loop. It exits on 5xx and 403 after its backoffs, on 404, on a repeated 401 and on errors inside the
stream; we start it again after a jittered wait. Changes reach our loop by ``call_soon_threadsafe``;
those that a former kopf delivers after its end are dropped. Once the API server has answered kopf's
list of each collection, a comparison that begins then misses nothing. Each later list follows a
watch that was cut off, and requests a comparison, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import kopf
import msgspec
import uvloop

from duepoint.controller import observed
from duepoint.controller.observed import Observed
from duepoint.controller.term import TermContext
from duepoint.kube import errors, port, schedules
from duepoint.kube.credentials import Credentials, Login

#: The server ends each watch after this; our own timeout is a little longer.
SERVER_TIMEOUT_SECONDS = 300

#: The kinds that are watched.
PLURALS = (schedules.PLURAL, schedules.RUN_PLURAL, schedules.SET_PLURAL)
_KINDS = tuple(f"/{plural}" for plural in PLURALS)
_OUR_GROUP = f"/apis/{schedules.API_VERSION}"


def settings() -> kopf.OperatorSettings:
    """Return new settings for one run of kopf's operator."""
    # kopf warns of each of its ends, and that it ignores signals outside the main thread.
    logging.getLogger("kopf").setLevel(logging.ERROR)
    tuned = kopf.OperatorSettings()
    # Our own events are coalesced and rate-limited elsewhere.
    tuned.posting.enabled = False
    # Scanning would list and watch CRDs and namespaces. We have no rights to these and want none:
    # it would retry 403s for 54 s before the first watch begins.
    tuned.scanning.disabled = True
    tuned.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    tuned.watching.client_timeout = SERVER_TIMEOUT_SECONDS + 30
    # A stalled stream on an open socket is detected after this; then all changes are seen.
    tuned.watching.inactivity_timeout = 70
    # After a 410 kopf lists at once, each time; this is the only wait in that loop.
    tuned.watching.reconnect_backoff = 0.3
    # A worker task per object lives this long after its last event; the default of 5 s keeps
    # 22,000 tasks at 50,000 objects. A limit of workers would multiply with it: left None.
    tuned.queueing.idle_timeout = 0.2
    # After these retries kopf gives up, and we start it again with a backoff of our own.
    tuned.networking.error_backoffs = [0.5, 1, 2, 4, 8, 15]
    tuned.networking.connect_timeout = 5
    tuned.networking.request_timeout = 60
    # Our stop flag ends kopf; its own SIGKILL timer must never end the process.
    tuned.process.ultimate_exiting_timeout = None
    return tuned


#: Called in kopf's thread with the kind (plural) and the metadata of each changed object.
Deliver = Callable[[str, Observed], object]
#: Called in kopf's thread with the path of each collection that the API server has listed.
Listed = Callable[[str], None]
#: No object has this name.
_NOTHING = "metadata.name=-"

#: Objects come as metadata only; discovery, which has none, answers in plain JSON.
_ACCEPT = f"{port.JSON_METADATA}, {port.JSON}"

#: kopf logs in again this often, so that a rotated token is used in time.
_LOGIN_SECONDS = 300


class Logins:
    """Our login for kopf: a session with our own TLS context.

    kopf would create its TLS context from file names, with the flags of the Python that it runs on
    (``tlsrules``), and files with a kubeconfig's certificate no longer exist. kopf closes sessions
    that it has used up; ``close`` closes the current one, with its connections.
    """

    def __init__(self, login: Callable[[], Awaitable[Login]], listed: Listed) -> None:
        self._login = login
        self._listed = listed
        self._current: tuple[Login, kopf.AiohttpSession] | None = None

    async def current(self) -> kopf.AiohttpSession:
        """Return the session; the same object for the same login within one period.

        After a 401 kopf compares the sessions to see whether the login is new, and gives up if it
        is not.
        """
        login = await self._login()
        periods = int(time.time()) // _LOGIN_SECONDS + 2
        expires = dt.datetime.fromtimestamp(periods * _LOGIN_SECONDS, tz=dt.UTC)
        if self._current is not None:
            before, current = self._current
            if (before, current.expiration) == (login, expires):
                return current
        await self.close()
        current = kopf.AiohttpSession(
            server=login.server,
            default_namespace=login.namespace,
            expiration=expires,
            aiohttp_session=_session(login, self._listed),
        )
        self._current = login, current
        return current

    async def close(self) -> None:
        """Close the session; idempotent."""
        if self._current is not None:
            await self._current[1].aiohttp_session.close()


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
    """Narrow kopf's list of one of our kinds to no object, and report the answer."""
    _, ours, path = request.url.path.partition(_OUR_GROUP)  # a server may have a path of its own
    if not path.endswith(_KINDS) or "watch" in request.url.query:
        return await send(request)
    request.url = request.url.update_query(fieldSelector=_NOTHING)
    request.headers["Accept"] = port.JSON  # PartialObjectMetadata is for single objects only
    response = await send(request)
    if response.ok:
        listed(ours + path)
    return response


def registry(
    deliver: Deliver, logins: Logins, note_ending: Callable[[], None]
) -> kopf.OperatorRegistry:
    """Return the handlers for one run of kopf; all arguments are used in kopf's thread."""
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
    """Handle an event of the watch, with the metadata of its object."""
    read = msgspec.convert(event["object"]["metadata"], port.Metadata)
    deliver(param, observed.of_metadata(read, is_deleted=event["type"] == "DELETED"))


#: How long the end of a term waits for the thread; kopf stops in 0.01 s when nothing hangs.
_STOP_SECONDS = 2.5
#: How often tasks that outlive kopf's cancellation are cancelled again.
_CANCEL_SECONDS = 0.2

#: Our name among kopf's operators; a standalone one neither seeks nor informs others. Its type is
#: not among kopf's public names.
_IDENTITY: Any = "duepoint"


async def watch(term: TermContext, *, credentials: Credentials) -> None:
    """Keep kopf running until cancelled; pass each change to its service, in our loop.

    Requests a comparison whenever kopf has listed.
    """
    live = functools.partial(_live_once, term, credentials)
    await term.until_done("watch", live, "watch ended; starting it again")


async def _live_once(term: TermContext, credentials: Credentials) -> None:
    """Run kopf's operator once, until it ends; raises Unavailable with the reason."""
    loop, stop = asyncio.get_running_loop(), threading.Event()
    ended: asyncio.Future[str] = loop.create_future()
    unlisted = {
        schedules.collection(namespace, plural=plural)
        for plural in PLURALS
        for namespace in term.namespaces or (None,)
    }

    def call_if_alive(function: Callable[..., object], *args: object) -> None:
        if not stop.is_set():  # else this run of kopf is over
            function(*args)

    def call(function: Callable[..., object], *args: object) -> None:
        """Call a function in our loop, from kopf's thread."""
        with contextlib.suppress(RuntimeError):  # if our loop is closed, the process is ending
            loop.call_soon_threadsafe(call_if_alive, function, *args)

    def note_listed() -> None:
        term.health.well("watch")
        term.services.resync.request()

    def listed(path: str) -> None:
        unlisted.discard(path)
        if not unlisted:
            call(note_listed)

    async def login() -> Login:
        # The credentials belong to our loop, but this coroutine runs in kopf's.
        asked = asyncio.run_coroutine_threadsafe(credentials.login(), loop)
        return await asyncio.wrap_future(asked)

    async def operate() -> None:
        logins = Logins(login, listed)
        is_ending = asyncio.Event()
        ender = asyncio.create_task(_end_tasks(is_ending, asyncio.all_tasks()))
        try:
            observers = term.services.observers
            handlers = registry(
                lambda plural, seen: call(observers[plural], seen), logins, is_ending.set
            )
            await kopf.operator(**_chosen(handlers, stop, term.namespaces))
        finally:
            ender.cancel()
            stop.set()  # a thread of kopf's waits for this, and the loop for that thread
            await logins.close()

    def live() -> None:
        trouble = "it ended by itself"
        try:
            uvloop.run(operate())
        except BaseException as error:  # noqa: BLE001 - any end of the thread is reported
            trouble = f"{type(error).__name__}: {error}"[:500]
        with contextlib.suppress(RuntimeError):  # if our loop is closed, the process is ending
            loop.call_soon_threadsafe(ended.set_result, trouble)

    threading.Thread(target=live, name="kopf", daemon=True).start()
    try:
        raise errors.Unavailable(await asyncio.shield(ended))
    finally:
        stop.set()
        if not ended.done():
            await asyncio.wait({ended}, timeout=_STOP_SECONDS)


async def rehearse() -> None:
    """Start kopf in a thread, and end it before it does anything; raises what its start raised.

    A standby first needs kopf when it leads. Without this it would count as ready until then, and a
    rolling update could replace a working leader with Pods that cannot start kopf.
    """
    registry, stop = kopf.OperatorRegistry(), threading.Event()

    @kopf.on.startup(registry=registry)
    async def hold(**_: Any) -> None:  # noqa: ANN401 - kopf's keywords
        await asyncio.Event().wait()  # kopf would connect to the cluster after this

    async def start() -> None:
        tasks = await kopf.spawn_tasks(**_chosen(registry, stop, ()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    stop.set()  # else a thread of kopf's would wait for this, and the end for that thread
    await asyncio.to_thread(lambda: uvloop.run(start()))


def _chosen(
    registry: kopf.OperatorRegistry, stop: threading.Event, namespaces: tuple[str, ...]
) -> dict[str, Any]:
    """Return the arguments to start kopf with."""
    return {
        "registry": registry,
        "settings": settings(),
        "standalone": True,
        # Without it, kopf looks up the name of the user, and in a Pod the user has none.
        "identity": _IDENTITY,
        "stop_flag": stop,
        "namespaces": namespaces,
        "clusterwide": not namespaces,
    }


async def _end_tasks(is_ending: asyncio.Event, ours: set[asyncio.Task[Any]]) -> None:
    """Once kopf is ending, cancel its tasks until they end.

    kopf cancels each task once and waits for it without a limit. Its watcher may lose that
    cancellation, because it suppresses any while it ends a task of its own.
    """
    await is_ending.wait()
    while True:
        await asyncio.sleep(_CANCEL_SECONDS)
        for task in asyncio.all_tasks() - ours - {asyncio.current_task()}:
            task.cancel()
