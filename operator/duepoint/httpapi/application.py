"""The HTTP application: checks a request in order, carries it out, and turns errors into problems.

Checks that are cheap and reveal nothing about anybody's data come first. An unexpected error is a
problem with status 500 and one line in the log, without the request's content.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import re
import secrets

import msgspec

from duepoint import errors, faults, telemetry
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.wire import nodes
from duepoint.faults import FaultPoint
from duepoint.httpapi import access, calls, idempotency, members, openapi, operations, problems
from duepoint.httpapi.dashboard import files
from duepoint.httpapi.problems import OperationProblem
from duepoint.net.httpserver import HttpRequest, HttpResponse, Refused

#: Time for a whole body, however it trickles.
_BODY_SECONDS = 30.0
#: How long a user of the dashboard waits for a connection to the API server.
_PLACE_SECONDS = 10.0
#: A lookup of a metric costs more than counting.
_count_of = functools.cache(telemetry.http_requests_total.labels)
_seconds_of = functools.cache(telemetry.http_seconds.labels)


class Application:
    """Answers the requests of the HTTP server."""

    def __init__(self, shared: calls.Shared) -> None:
        self._shared = shared
        has_dashboard = shared.users is not None
        document = msgspec.json.encode(openapi.document(dashboard=has_dashboard))
        self._files = files.WebFiles(document, has_dashboard=has_dashboard)
        self._routes = operations.Routes(
            (*operations.OPERATIONS, *(operations.PAGES if has_dashboard else ()))
        )
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    def refusal(self, status: int, message: str) -> HttpResponse:
        """Return the answer to something that is not a valid request."""
        _count_of("none", str(status)).inc()
        return problems.response(problems.of_status(status, message), self._new_id())

    async def __call__(self, request: HttpRequest) -> HttpResponse | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        request_id = self._new_id()
        name, status = "none", 500
        try:
            path, _, query = request.target.partition("?")
            response = self._files.answer(request, path)
            if response is not None:
                name = "file"
            else:
                operation, names = self._routes.find(request.method, path)
                name = operation.name
                response = await self._carry_out(request, request_id, operation, names, query)
            status = 200 if response is None else response.status
        except Exception as error:  # noqa: BLE001 - every error has an answer
            response = problems.response(self._problem(error, request_id, name), request_id)
            status = response.status
        finally:
            _count_of(name, str(status)).inc()
            _seconds_of(name).observe(loop.time() - began)
        telemetry.logger.debug("answered", operation=name, status=status, request=request_id)
        return response

    def _new_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers):x}"

    async def _carry_out(
        self,
        request: HttpRequest,
        request_id: str,
        operation: calls.Operation,
        names: dict[str, str],
        query: str,
    ) -> HttpResponse | None:
        shared = self._shared
        _check_origin(request)
        caller = await shared.rights.caller(request.headers.get("authorization", ""), request.peer)
        await faults.reach(FaultPoint.AFTER_CALLER_KNOWN)
        call = calls.Call(
            request=request,
            request_id=request_id,
            shared=shared,
            operation=operation,
            caller=caller,
            namespace=names.get("namespace", ""),
            set_name=names.get("set", ""),
            id=names.get("id") or names.get("schedule", ""),
        )
        if operation.is_of_set:
            await shared.rights.check(caller, call.namespace, call.set_name, call.verbs)
            await faults.reach(FaultPoint.AFTER_RIGHTS_CHECKED)
        call.parameters = calls.parameters_of(query, operation.parameters)
        call.check_headers()
        if not operation.is_of_set:
            await _read_body(call, calls.MOST_BODY_BYTES)
            return await _for_user(call)
        call.owned = await shared.sets.find(call.namespace, call.set_name)
        if operation.is_change:
            await shared.sets.take(call.owned)
        if not operation.is_bulk:
            await _read_body(call, call.owned.reader.most_row_bytes)
        if operation.method != "GET" and (safety := call.safety()) is not None:
            await _check_promise(shared, safety)
        if operation.is_change:
            call.chosen = members.choose(shared.clock.now_us())
            if key := call.idempotency_key:
                return await idempotency.once(call, key)
        return await operation.handle(call)

    def _problem(self, error: Exception, request_id: str, operation: str) -> OperationProblem:
        """Return the problem that the client gets for an error; log what is not its fault."""
        match error:
            case OperationProblem():
                return error
            case Refused():
                return problems.of_status(error.status, str(error))
            case queue_errors.InvalidCursor():
                message = "the cursor is not from this list; begin again without one"
                return OperationProblem("InvalidParameter", message, field="cursor")
            case errors.TryLater() | errors.WorldChanged():
                telemetry.logger.warning(
                    "queue unavailable",
                    operation=operation,
                    request=request_id,
                    error=str(error)[:300],
                )
                return problems.unavailable(error)
        telemetry.logger.error(
            "request failed", operation=operation, request=request_id, exc_info=error
        )
        return OperationProblem("InternalError", "the API failed; its log names this request")


def _check_origin(request: HttpRequest) -> None:
    """Raise Problem Forbidden if a page of another site makes a browser change something here.

    A proxy that signs people in by cookie adds their token to every request of their browser. Old
    browsers, and all browsers over plain http, send no Sec-Fetch-Site, but an Origin.
    """
    headers = request.headers
    if request.method in ("GET", "HEAD"):
        return
    came_from, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if came_from is None and origin is not None:
        # A proxy may have replaced Host; no page can set X-Forwarded-Host.
        ours = {_place(headers.get(name, "")) for name in ("host", "x-forwarded-host")}
        came_from = "same-origin" if _place(origin.partition("://")[2]) in ours - {""} else "other"
    if came_from not in (None, "none", "same-origin"):
        raise OperationProblem("Forbidden", "a page of another site may not change anything here")


def _place(authority: str) -> str:
    """Return a host with its port, without the default ports."""
    return re.sub(r":(80|443)?$", "", authority.strip().lower())


async def _for_user(call: calls.Call) -> HttpResponse | None:
    """Carry out an operation of the dashboard with the caller's own token."""
    shared = call.shared
    assert shared.users is not None  # noqa: S101 - without users there is no such route
    call.api = await shared.users.of(access.token_of(call.request.headers["authorization"]))
    async with access.place_of(call.caller.asker, shared.places, _PLACE_SECONDS):
        return await call.operation.handle(call)


async def _read_body(call: calls.Call, most: int) -> None:
    """Read the body within a bound and a time."""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            call.body = await call.request.body.read(most)
    except TimeoutError:
        raise Refused(408, "the body did not come in time") from None


async def _check_promise(shared: calls.Shared, safety: nodes.Safety) -> None:
    """Refuse a durability that the servers cannot give, before the change is stored.

    The servers' durability is read at most every few seconds.
    """
    known = await shared.durability.find(None, shared.queue.health.durability)
    wanted = why = ""
    if safety.on_disk and "aof" not in known.persistence:
        wanted, why = "aof", "no server has an append-only file (appendonly yes)"
    elif safety.replicas > known.replicas:
        wanted = f"replicas={safety.replicas}"
        why = f"{known.replicas} replicas are connected"
    if wanted:
        message = f"{wanted} cannot be given: {why}; leave the header out"
        raise OperationProblem("DurabilityUnavailable", message, field="Duepoint-Durability")
