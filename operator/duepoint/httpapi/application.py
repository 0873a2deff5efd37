"""A request from its head to its answer: the order of the checks, and what each error becomes.

What is cheap and says nothing about anybody's data comes first. Whatever goes wrong inside is a
problem with code 500 and one line in the log, without what the request held.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from duepoint import errors, faults, telemetry
from duepoint.delayqueue import errors as queue_errors
from duepoint.faults import FaultPoint
from duepoint.httpapi import (
    access,
    bulk,
    calls,
    idempotency,
    operations,
    ownsets,
    problems,
    views,
)
from duepoint.httpapi.dashboard import dashboard as dashboards
from duepoint.httpapi.problems import OperationProblem
from duepoint.net.requests import BodyCut, BodyTooLarge, HttpRequest, HttpResponse

#: Carries an operation out. None: it was answered by a stream.
Operate = Callable[[calls.OperationCall], Awaitable[HttpResponse | None]]
#: What an operation chooses by itself.
Choose = Callable[[], dict[str, Any]]

_MOST_UNDER_WAY = 2_000
#: Of a whole body, however it trickles.
_BODY_SECONDS = 30.0
#: Read closely at once: it takes a millisecond.
_SHORT_BYTES = 1_024


class Application:
    """Answers requests."""

    def __init__(
        self,
        *,
        rights: access.Access,
        sets: ownsets.OwnSets,
        repeats: idempotency.Idempotency,
        limits: ownsets.Rates,
        reading: calls.Turns,
        promise: idempotency.Promise,
        operate: Mapping[str, Operate],
        choose: Mapping[str, Choose],
        document: bytes,
        pages: dashboards.Dashboard | None = None,
    ) -> None:
        """``operate`` and ``choose`` by names of operations; ``pages`` None: none are served."""
        self._rights = rights
        self._sets = sets
        self._repeats = repeats
        self._rates = limits
        self._turns = reading
        self._promise = promise
        self._operate = operate
        self._choose = choose
        self._document = document
        self._pages = pages
        self._routes = operations.Routes(
            (*operations.OPERATIONS, *(operations.PAGES if pages is not None else ()))
        )
        self._under_way = 0
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._metrics: dict[tuple[str, int], Any] = {}
        self._seconds: dict[str, Any] = {}

    def refusal(self, status: int, message: str) -> HttpResponse:
        """The answer to what is no request."""
        self._count("none", status)
        return problems.response(problems.of_status(status, message), self._new_id())

    async def __call__(self, request: HttpRequest) -> HttpResponse | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        request_id = self._new_id()
        name, status = "none", 500
        self._under_way += 1
        try:
            response: HttpResponse | None
            try:
                self._check_load()
                path, _, query = request.target.partition("?")
                if path == "/openapi.json":
                    response = self._describe(request)
                elif (file := self._file(request, path)) is not None:
                    name, response = "file", file
                else:
                    route = self._routes.find(request.method, path)
                    name = route.operation.name
                    response = await self._carry_out(request, request_id, route, query)
            except Exception as error:  # noqa: BLE001 - every error has an answer
                problem = self._problem(error, request_id, name)
                response = problems.response(problem, request_id)
            status = 200 if response is None else response.status
        finally:
            self._under_way -= 1
            self._count(name, status)
            self._observe(name, loop.time() - began)
        telemetry.logger.debug("answered", operation=name, status=status, request=request_id)
        return response

    def _check_load(self) -> None:
        if self._under_way > _MOST_UNDER_WAY:
            raise OperationProblem("Unavailable", "too many requests", retry_after_seconds=1)

    def _new_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers):x}"

    def _file(self, request: HttpRequest, path: str) -> HttpResponse | None:
        return None if self._pages is None else self._pages.file(request, path)

    def _describe(self, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            headers = (("Allow", "GET, HEAD"),)
            raise OperationProblem("MethodNotAllowed", "GET it", headers=headers)
        return views.json_text(200, self._document)

    async def _carry_out(
        self, request: HttpRequest, request_id: str, route: operations.ApiRoute, query: str
    ) -> HttpResponse | None:
        operation = route.operation
        headers = request.headers
        _check_origin(request)
        caller = await self._rights.caller(headers.get("authorization", ""), request.peer)
        await faults.reach(FaultPoint.AFTER_CALLER_KNOWN)
        is_of_pages = operation.needs is operations.Needs.OWN
        if not is_of_pages:
            verbs = operation.verbs(headers)
            await self._rights.check(caller, route.namespace, route.set_name, verbs)
            await faults.reach(FaultPoint.AFTER_RIGHTS_CHECKED)
        call = calls.OperationCall(
            request,
            request_id,
            route.namespace,
            route.set_name,
            route.id,
            calls.parameters_of(query, frozenset(operation.parameters)),
            operation.limit,
        )
        operation.check_deciding(headers)
        self._check_body(operation, request)
        if is_of_pages and self._pages is not None:
            await self._read_body(operation, call, caller.asker, calls.MOST_BODY_BYTES)
            return await self._pages.answer(operation, call, caller)
        call.own(await self._sets.find(route.namespace, route.set_name))
        if operation.is_change:
            await self._rates.take(call.owned.owner, call.owned.changes_per_second)
        if not operation.is_bulk:
            most = call.owned.reader.most_row_bytes
            await self._read_body(operation, call, route.namespace, most)
        if operation.is_bulk:
            call.look_again = lambda: self._look_again(call, operation)
        if operation.method != "GET" and (safety := call.safety()) is not None:
            await self._promise.check(safety)
        if (choose := self._choose.get(operation.name)) is not None:
            call.chosen = choose()
        if operation.is_change and (key := call.idempotency_key):
            return await self._once(operation, caller, call, key)
        return await self._operate[operation.name](call)

    async def _read_body(
        self, operation: operations.Operation, call: calls.OperationCall, owner: str, most: int
    ) -> None:
        """The body, within a bound and a time; as JSON that can be read in one way only."""
        request = call.request
        if (request.length or 0) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                call.body = await request.body.read(most)
        except BodyTooLarge:
            raise _too_large(most) from None
        except TimeoutError:
            raise BodyCut("the body did not come in time", 408) from None
        if not call.body or not operation.body:
            return
        if len(call.body) <= _SHORT_BYTES:
            calls.check_strictly(call.body)
            return
        async with self._turns.of(owner):
            calls.check_strictly(call.body)

    async def _look_again(self, call: calls.OperationCall, operation: operations.Operation) -> None:
        """A stream that takes long has no more rights than a request that comes now."""
        headers, namespace, name = call.request.headers, call.namespace, call.set_name
        caller = await self._rights.caller(headers.get("authorization", ""), call.request.peer)
        await self._rights.check(caller, namespace, name, operation.verbs(headers))
        found = await self._sets.find(namespace, name)
        if found.record.uid != call.owned.record.uid:
            message = "the set was removed, and another one has its name now; begin again"
            raise OperationProblem("NotFound", message)
        call.own(found)
        found.check_open()

    async def _once(
        self,
        operation: operations.Operation,
        caller: access.Caller,
        call: calls.OperationCall,
        key: str,
    ) -> HttpResponse:
        owner = f"{call.owned.owner}/{caller.identity.hex()}"
        headers = call.request.headers
        conditions = (headers.get("if-match"), headers.get("if-none-match"))
        asked: tuple[object, ...] = (operation.name, call.id, call.body, *conditions)
        if (safety := headers.get("duepoint-durability")) is not None:
            asked = (*asked, safety)

        async def attempt(chosen: dict[str, Any]) -> HttpResponse:
            call.chosen = chosen
            response = await self._operate[operation.name](call)
            assert response is not None  # noqa: S101 - no change is answered by a stream
            return response

        return await self._repeats.once(
            owner, key, asked, call.chosen, attempt, namespace=call.namespace
        )

    @staticmethod
    def _check_body(operation: operations.Operation, request: HttpRequest) -> None:
        headers = request.headers
        if headers.get("content-encoding", "identity").lower() != "identity":
            message = "send the body without a content coding"
            raise OperationProblem("UnsupportedMediaType", message, field="Content-Encoding")
        if operation.method in ("GET", "DELETE"):  # no page of another site can send DELETE
            return
        types = operation.body_types or (calls.JSON,)
        if not calls.has_type(headers.get("content-type"), *types):
            message = f"send {' or '.join(types)} in UTF-8, with an empty body too"
            raise OperationProblem("UnsupportedMediaType", message, field="Content-Type")

    def _problem(self, error: Exception, request_id: str, operation: str) -> OperationProblem:
        """What an error is to the client."""
        match error:
            case OperationProblem():
                return error
            case BodyCut():
                return problems.of_status(error.status or 400, str(error))
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
                return bulk.unavailable(error)
        telemetry.logger.error(
            "request failed", operation=operation, request=request_id, exc_info=error
        )
        return OperationProblem("InternalError", "the API failed; its log names this request")

    # -- metrics -------------------------------------------------------------------------------

    def _count(self, operation: str, status: int) -> None:
        key = operation, status
        metric = self._metrics.get(key)
        if metric is None:
            metric = telemetry.http_requests_total.labels(operation, str(status))
            self._metrics[key] = metric
        metric.inc()

    def _observe(self, operation: str, seconds: float) -> None:
        metric = self._seconds.get(operation)
        if metric is None:
            metric = self._seconds[operation] = telemetry.http_seconds.labels(operation)
        metric.observe(seconds)


def _check_origin(request: HttpRequest) -> None:
    """A page of another site must not make a browser change something here.

    A proxy that signs people in by a cookie adds their token to all that their browser sends. Old
    browsers, and all over plain http, do not say which site a request comes from, but its origin.
    """
    headers = request.headers
    if request.method in ("GET", "HEAD"):
        return
    came_from, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if came_from is None and origin is not None:
        # A proxy may have put its own name into Host; no page can set the other header.
        ours = {_place(headers.get(name, "")) for name in ("host", "x-forwarded-host")}
        came_from = "same-origin" if _place(origin.partition("://")[2]) in ours - {""} else "other"
    if came_from not in (None, "none", "same-origin"):
        raise OperationProblem("Forbidden", "a page of another site may not change anything here")


def _place(authority: str) -> str:
    """A host, with its port where that is not the usual one."""
    return re.sub(r":(80|443)?$", "", authority.strip().lower())


def _too_large(most: int) -> OperationProblem:
    return OperationProblem("PayloadTooLarge", f"the body has more than {most} bytes")
