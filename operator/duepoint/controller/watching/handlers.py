"""What kopf calls: a login, and a handler for changes of ScheduleRuns and for its own lists.

``on.event`` only: it writes nothing to the object and sees its newest state. (Handlers for create
and update would patch an annotation onto every object, an index is quadratic.) The handlers decide
nothing: they turn kopf's dicts into values and hand them over.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import kopf

from duepoint.controller import sighting
from duepoint.controller.manual import runsighting
from duepoint.controller.manual.runsighting import RunSighting
from duepoint.controller.sighting import Sighting
from duepoint.kube import schedules
from duepoint.kube.credentials import Login

#: Told of each object; the flag says that it comes from a list, so kopf has just listed.
Deliver = Callable[[Sighting | RunSighting, bool], None]

#: Credentials are asked for again this often, so that a rotated token is used in time.
_LOGIN_SECONDS = 300


def registry(deliver: Deliver, login: Callable[[], Awaitable[Login]]) -> kopf.OperatorRegistry:
    """The handlers for one life of kopf's operator; both arguments are used in kopf's thread."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:  # noqa: ANN401 - kopf's keywords
        return connection(await login(), dt.datetime.now(tz=dt.UTC))

    @kopf.on.event(schedules.GROUP, schedules.VERSION, schedules.PLURAL, registry=handlers)
    async def schedule_changed(event: Mapping[str, Any], **_: Any) -> None:  # noqa: ANN401
        deliver(sighting.of_watched(event["type"], event["object"]), event["type"] is None)

    @kopf.on.event(schedules.GROUP, schedules.VERSION, schedules.RUN_PLURAL, registry=handlers)
    async def run_changed(event: Mapping[str, Any], **_: Any) -> None:  # noqa: ANN401
        deliver(runsighting.of_watched(event["type"], event["object"]), event["type"] is None)

    return handlers


def connection(login: Login, now: dt.datetime) -> kopf.ConnectionInfo:
    """Our login in kopf's words.

    The expiry is the same for all logins of one period: kopf tells by comparing them whether a
    login after a 401 has brought anything new, and gives up where it has not.
    """
    periods = int(now.timestamp()) // _LOGIN_SECONDS + 2
    return kopf.ConnectionInfo(
        server=login.server,
        token=login.token,
        ca_path=login.ca_file,
        ca_data=base64.b64encode(login.ca_data.encode()).decode() if login.ca_data else None,
        certificate_path=login.certificate_file,
        private_key_path=login.key_file,
        insecure=login.insecure,
        proxy_url=login.proxy,
        default_namespace=login.namespace,
        expiration=dt.datetime.fromtimestamp(periods * _LOGIN_SECONDS, tz=dt.UTC),
    )
