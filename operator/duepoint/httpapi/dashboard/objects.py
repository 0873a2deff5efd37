"""Operations on objects: the caller, lists, one Schedule; trigger, suspend and resume it.

A change is one request to the API server with the caller's own token and a field manager of our
own, so that managed fields and audit log tell who changed the object and with what. If the API
server refuses, the problem has its own message, which says best which right is missing.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, TypeVar

import msgspec

from duepoint.httpapi import access, calls, members, views
from duepoint.httpapi.calls import Call, is_namespace
from duepoint.httpapi.dashboard import rows
from duepoint.httpapi.problems import OperationProblem
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, schedules
from duepoint.model.vocabulary import Fields, Keywords
from duepoint.net.httpserver import HttpResponse

_LONGEST_CURSOR: Final = 2_048
_MOST_NAMESPACES: Final = 5_000
#: A page shows what its user may see now, so no browser or proxy may cache it.
FRESH: Final = (("Cache-Control", "no-store"),)

ItemT = TypeVar("ItemT", bound=port.KubeObject)


class _Named(msgspec.Struct, frozen=True):
    """An object decoded for its name only."""

    metadata: port.Metadata


_decoder = msgspec.json.Decoder(schedules.Schedule)


def answer(status: int, value: object) -> HttpResponse:
    """Return an answer that must not be cached."""
    return views.json(status, value, FRESH)


_MOST_WORDS: Final = 400


def namespace_of(call: Call) -> str | None:
    """Return the value of the parameter ``namespace``; None = all namespaces."""
    text = call.text("namespace")
    if text and not is_namespace(text):
        message = "no namespace can have this name"
        raise OperationProblem("InvalidParameter", message, field="namespace")
    return text or None


async def may(
    call: Call, verb: str, namespace: str | None, name: str = "", *, of: str = schedules.PLURAL
) -> bool:
    """Whether the caller has this right on the Schedules of a namespace; None = of all."""
    wanted = access.Attributes(namespace or "", verb, of, name)
    return await call.shared.rights.may(call.caller, wanted)


async def check_list(call: Call, namespace: str | None) -> None:
    """Raise Problem Forbidden if the caller may not list these Schedules."""
    if not await may(call, "list", namespace):
        where = "of all namespaces" if namespace is None else "of this namespace"
        message = f"you may not list schedules (group duepoint.dev) {where}"
        raise OperationProblem("Forbidden", message)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn errors of the API server into problems of the caller's request."""
    try:
        yield
    except kube_errors.ApiError as error:
        raise _problem_of(error) from error


#: Errors whose own message explains them, with their codes.
_IN_ITS_WORDS: Final = (
    (kube_errors.Forbidden, "Forbidden"),
    (kube_errors.NotFound, "NotFound"),
    (kube_errors.Conflict, "Conflict"),
    (kube_errors.Invalid, "InvalidSchedule"),
)


def _problem_of(error: kube_errors.ApiError) -> OperationProblem:
    """Return the problem for an error of the API server."""
    for kind, code in _IN_ITS_WORDS:
        if isinstance(error, kind):
            return OperationProblem(code, (error.server_message or str(error))[:_MOST_WORDS])
    if isinstance(error, kube_errors.Gone):
        message = "the list took too long; begin again without a cursor"
        return OperationProblem("InvalidParameter", message, field="cursor")
    if isinstance(error, kube_errors.Unauthorized):
        message = (
            "the Kubernetes API server refuses this token; the dashboard needs one whose "
            "audience is the API server, such as one from kubectl create token"
        )
        return OperationProblem("Unauthenticated", message, headers=access.CHALLENGE)
    if isinstance(error, kube_errors.Throttled):
        wait = error.retry_after_seconds or 1
        message = "the Kubernetes API server is busy; repeat it later"
        return OperationProblem("TooManyRequests", message, retry_after_seconds=wait)
    message = "the Kubernetes API server does not answer; repeat it"
    return OperationProblem("Unavailable", message, retry_after_seconds=1)


class Whoami(Fields, kw_only=True):
    """The caller of a request."""

    user: str
    namespaces: Annotated[
        tuple[str, ...] | None, "those of the cluster; null: they may not be listed"
    ]
    may_list_all: Annotated[bool, "Schedules of all namespaces may be listed"]


class CreatedRun(Fields, kw_only=True):
    """The ScheduleRun that a trigger created."""

    run: Annotated[str, "name of the ScheduleRun"]
    uid: str


class Suspended(Fields, kw_only=True):
    """Whether a Schedule is suspended now."""

    suspend: bool


async def whoami(call: Call) -> HttpResponse:
    """Return the caller's name and the cluster's namespaces, if they may list them."""
    namespaces = None
    with refusals(), contextlib.suppress(kube_errors.Forbidden):
        page = await call.api.page("/api/v1/namespaces", _Named, limit=_MOST_NAMESPACES)
        namespaces = tuple(each.metadata.name for each in page.items)
    user, may_list_all = call.caller.user.username, await may(call, "list", None)
    return answer(200, Whoami(user=user, namespaces=namespaces, may_list_all=may_list_all))


async def list_schedules(call: Call) -> HttpResponse:
    path, now_us = schedules.collection(namespace_of(call)), call.shared.clock.now_us()
    return await _page(call, path, schedules.Schedule, lambda item: rows.schedule(item, now_us))


async def list_sets(call: Call) -> HttpResponse:
    path = schedules.set_collection(namespace_of(call))
    return await _page(call, path, schedules.ScheduleSet, rows.schedule_set)


async def _page(
    call: Call, path: str, item_type: type[ItemT], shown: Callable[[ItemT], Fields]
) -> HttpResponse:
    cursor = call.text("cursor")
    if len(cursor) > _LONGEST_CURSOR:
        message = "is not from this list; begin again without one"
        raise OperationProblem("InvalidParameter", message, field="cursor")
    with refusals():
        page = await call.api.page(path, item_type, limit=call.limit, continue_token=cursor)
    items = [shown(item) for item in page.items]
    return answer(200, {"items": items, "next": page.metadata.continue_token})


async def get_schedule(call: Call) -> HttpResponse:
    """Return a Schedule and the caller's rights, which the API server checks again later."""
    namespace, name, item = call.namespace, call.id, await _read(call)
    may_run = await may(call, "run", namespace, name)
    rights = rows.Rights(
        suspend=await may(call, "patch", namespace, name),
        trigger=may_run and await may(call, "create", namespace, of=schedules.RUN_PLURAL),
        replay=may_run,
    )
    return answer(200, rows.detail(item, call.shared.clock.now_us(), rights))


async def _read(call: Call) -> schedules.Schedule:
    with refusals():
        body = await call.api.request("GET", schedules.path(call.namespace, call.id))
    return _decoder.decode(body)


MANAGER: Final = "duepoint-dashboard"
#: How long a ScheduleRun stays after it has ended, as with ``duepoint trigger``.
_TTL_SECONDS: Final = 3_600


class Suspension(Fields, forbid_unknown_fields=True):
    """Why, and until when, a Schedule is suspended."""

    reason: Annotated[str | None, Keywords(maxLength=256), "For the others who see it."] = None
    until: Annotated[dt.datetime | None, "It resumes by itself then."] = None


async def trigger(call: Call) -> HttpResponse:
    """Create a ScheduleRun, which runs the Schedule once."""
    payload = members.trigger_payload(call)
    what = {"payload": msgspec.Raw(payload)} if payload else {}
    spec = {"trigger": what, "ttlSecondsAfterFinished": _TTL_SECONDS}
    run = schedules.new_run(call.namespace, call.id, spec)
    with refusals():
        made = await schedules.create_run(call.api, run, manager=MANAGER)
    return answer(201, CreatedRun(run=made.metadata.name, uid=made.metadata.uid))


async def suspend(call: Call) -> HttpResponse:
    """Suspend the Schedule: no slot runs until it resumes."""
    shape = "{}, perhaps with reason and until"
    wanted = calls.decoded(call.body or b"{}", Suspension, shape)
    await _check_not_suspended(call)
    held = {"suspendReason": wanted.reason or None, "suspendUntil": wanted.until}
    return await _write(call, {"suspend": True, **held})


async def _check_not_suspended(call: Call) -> None:
    """Raise Problem Conflict if someone else has suspended the Schedule meanwhile.

    Their reason and end time would be lost, and the Schedule would resume at the new end time.
    """
    found = msgspec.json.decode((await _read(call)).spec, type=rows.Spec)
    if schedules.is_suspended(found.suspend, found.suspend_until, call.shared.clock.now_us()):
        why = f": {found.suspend_reason}" if found.suspend_reason else ""
        message = f"the Schedule is suspended already{why}; it stays as it is"
        raise OperationProblem("Conflict", message)


async def resume(call: Call) -> HttpResponse:
    """Resume the Schedule: later slots run, those of the suspension do not."""
    return await _write(call, {"suspend": False, "suspendReason": None, "suspendUntil": None})


async def _write(call: Call, fields: dict[str, Any]) -> HttpResponse:
    with refusals():
        await call.api.request(
            "PATCH",
            schedules.path(call.namespace, call.id),
            {"spec": fields},
            query={"fieldManager": MANAGER},
            content_type=port.MERGE_PATCH,
            accept=port.JSON_METADATA,
        )
    return answer(200, Suspended(suspend=fields["suspend"]))
