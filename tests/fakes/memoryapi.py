"""The HTTP API over sets in memory, in a thread of its own: a real server, for clients' tests.

It keeps members and answers as the API does; what is due fires nowhere. ``faults`` are taken one a
request: a function that answers in place of the API, or None to let one through.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import secrets
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator

from aiohttp import web

READ_ONLY = ("etag", "uid", "state", "createdTime", "nextDueTime", "claimed")
KNOWN = {
    "id", "schedule", "at", "delay", "payload", "timeZone", "suspend", "startingDeadlineSeconds",
    "catchUpPolicy", "catchUpLimit", "concurrencyPolicy", "jitter", "dst",
}  # fmt: skip
BASE = "/v1/namespaces/{ns}/schedulesets/{set}"

Fault = Callable[[web.Request], Awaitable[web.StreamResponse]]


def problem(status: int, code: str, detail: str, field: str = "", **headers: str) -> web.Response:
    body = {"type": f"urn:{code}", "title": code, "status": status, "code": code, "detail": detail}
    return web.Response(
        status=status, headers=headers, content_type="application/problem+json",
        text=json.dumps(body | ({"field": field} if field else {})),
    )  # fmt: skip


class Refusal(Exception):
    def __init__(self, status: int, code: str, detail: str, field: str = "") -> None:
        super().__init__(code)
        self.body = {"status": status, "code": code, "detail": detail, "field": field}


def busy(status: int = 503, retry_after: str | None = None) -> Fault:
    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        return problem(status, "Busy", "not now", **headers)

    return answer


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Close the connection without a word."""
    request.transport.close()
    return web.Response()


class MemoryApi:
    """One server with one set, ``shop/reminders``.

    Attributes:
        members: by id, as they are answered.
        requests: method and path of each request, with its headers.
        cut_after: a bulk answer ends after so many rows, once.
        refused: rows of these ids are refused with this code, once for each entry.
    """

    def __init__(self) -> None:
        self.members: dict[str, dict] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.faults: collections.deque[Fault | None] = collections.deque()
        self.tokens = {"good"}
        self.cut_after: list[int] = []
        self.refused: dict[str, list[tuple[int, str]]] = {}
        self.triggered: list[tuple[str, object]] = []
        self.letters: list[dict] = []
        self.answers: dict[str, tuple[int, str]] = {}
        self.on_stored: Callable[[dict], None] = lambda _: None
        self.most_in_flight = 0
        self._in_flight = 0

    # -- the thread ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def serving(self, tls: ssl.SSLContext | None = None) -> Iterator[str]:
        self._tls = tls
        started = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        thread.start()
        assert started.wait(10)
        try:
            yield self.url
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(10)

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        application = web.Application(middlewares=[self._outer], client_max_size=64 << 20)
        route = application.router.add_route
        route("GET", BASE, self._info)
        route("GET", f"{BASE}/schedules", self._list)
        route("POST", f"{BASE}/schedules", self._create)
        route("POST", f"{BASE}/schedules:bulkUpsert", self._bulk)
        route("POST", f"{BASE}/schedules:bulkDelete", self._bulk)
        route("POST", BASE + "/schedules/{id}/trigger", self._trigger)
        route("GET", BASE + "/schedules/{id}/next", self._next)
        for method, handler in (
            ("GET", self._get), ("PUT", self._put), ("PATCH", self._patch),
            ("DELETE", self._delete),
        ):  # fmt: skip
            route(method, BASE + "/schedules/{id}", handler)
        route("GET", f"{BASE}/deadletters", self._letters)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await self._stop.wait()
        await runner.cleanup()

    @web.middleware
    async def _outer(self, request: web.Request, handler) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs, dict(request.headers)))
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            if self.faults and (fault := self.faults.popleft()) is not None:
                return await fault(request)
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if given not in self.tokens:
                return problem(401, "Unauthenticated", "the token is not known")
            where = (request.match_info.get("ns"), request.match_info.get("set"))
            if where not in (("shop", "reminders"), (None, None)):
                return problem(404, "NotFound", f"there is no ScheduleSet {where[0]}/{where[1]}")
            return await self._once(request, handler)
        except Refusal as refusal:
            body = refusal.body
            return problem(body["status"], body["code"], body["detail"], body["field"])
        finally:
            self._in_flight -= 1

    async def _once(self, request: web.Request, handler) -> web.StreamResponse:
        """A repetition under the same Idempotency-Key gets the same answer."""
        key = request.headers.get("Idempotency-Key")
        if key in self.answers:
            status, text = self.answers[key]
            return web.Response(status=status, text=text, content_type="application/json")
        answer = await handler(request)
        if key is not None and isinstance(answer, web.Response):
            self.answers[key] = (answer.status, answer.text or "")
        return answer

    # -- members ---------------------------------------------------------------------------------

    def store(self, id_: str, spec: dict) -> str:
        """Created, Replaced or Unchanged."""
        unknown = set(spec) - KNOWN
        if unknown:
            name = min(unknown)
            raise Refusal(400, "InvalidField", f"{name} is not a field of a member", name)
        if sum(name in spec for name in ("schedule", "at", "delay")) != 1:
            raise Refusal(400, "InvalidMember", "write one of schedule, at and delay", "schedule")
        if spec.get("at") == "1970-01-01T00:00:00Z":
            raise Refusal(422, "TooLate", "1970-01-01T00:00:00Z is past its deadline", "at")
        wanted = {name: spec[name] for name in spec if name != "id"}
        if "delay" in wanted:
            wanted["at"] = f"in {wanted.pop('delay')}"
        known = self.members.get(id_)
        if (
            known is not None
            and {n: known[n] for n in known if n not in (*READ_ONLY, "id")} == wanted
        ):
            return "Unchanged"
        self.members[id_] = {
            "id": id_, "etag": secrets.token_hex(4), "uid": secrets.token_hex(16), **wanted,
            "state": "Suspended" if wanted.get("suspend") else "Armed",
            "createdTime": "2026-11-26T12:00:00Z",
            "nextDueTime": wanted.get("at") or "2026-11-27T09:00:00Z", "claimed": False,
        }  # fmt: skip
        self.on_stored(self.members[id_])
        return "Created" if known is None else "Replaced"

    def _known(self, request: web.Request) -> dict:
        id_ = request.match_info["id"]
        if id_ not in self.members:
            raise Refusal(404, "NoSuchMember", f"there is no member {id_} in shop/reminders")
        return self.members[id_]

    def _condition(self, request: web.Request) -> None:
        known = self.members.get(request.match_info["id"])
        wanted = request.headers.get("If-Match")
        if wanted is not None and (known is None or wanted.strip('"') != known["etag"]):
            raise Refusal(412, "PreconditionFailed", "the member is another version")
        if request.headers.get("If-None-Match") == "*" and known is not None:
            raise Refusal(412, "PreconditionFailed", "there is such a member")

    async def _info(self, _: web.Request) -> web.Response:
        return web.json_response({
            "namespace": "shop", "name": "reminders", "state": "Ready",
            "members": len(self.members), "armed": len(self.members), "inFlight": 0,
            "nextDueTime": "2026-11-27T09:00:00Z", "lagSeconds": 0, "new": 1,
            "limits": {"members": 1000},
        })  # fmt: skip

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self._known(request))

    async def _put(self, request: web.Request) -> web.Response:
        self._condition(request)
        id_ = request.match_info["id"]
        outcome = self.store(id_, json.loads(await request.read()))
        return web.json_response(self.members[id_], status=201 if outcome == "Created" else 200)

    async def _patch(self, request: web.Request) -> web.Response:
        self._condition(request)
        known = self._known(request)
        spec = {n: known[n] for n in known if n not in (*READ_ONLY, "id")}
        for name, value in json.loads(await request.read()).items():
            if value is None:
                spec.pop(name, None)
            else:
                spec[name] = value
        self.store(known["id"], spec)
        return web.json_response(self.members[known["id"]])

    async def _delete(self, request: web.Request) -> web.Response:
        self._condition(request)
        del self.members[self._known(request)["id"]]
        return web.Response(status=204)

    async def _create(self, request: web.Request) -> web.Response:
        id_ = "01J" + secrets.token_hex(12).upper()[:23]
        self.store(id_, json.loads(await request.read()))
        return web.json_response(self.members[id_], status=201)

    async def _trigger(self, request: web.Request) -> web.Response:
        known = self._known(request)
        self.triggered.append((known["id"], json.loads(await request.read()).get("payload")))
        return web.json_response({"run": f"run-{len(self.triggered)}"}, status=202)

    async def _next(self, request: web.Request) -> web.Response:
        self._known(request)
        count = int(request.query["count"])
        return web.json_response({"items": [f"2026-11-{27 + n}T09:00:00Z" for n in range(count)]})

    async def _list(self, request: web.Request) -> web.Response:
        chosen = sorted(
            (
                m
                for m in self.members.values()
                if m["id"].startswith(request.query.get("prefix", ""))
            ),
            key=lambda member: member["id"],
        )
        since, until = request.query.get("dueFrom"), request.query.get("dueUntil")
        if since is not None:
            chosen = sorted(
                (m for m in chosen if since <= m["nextDueTime"] < until),
                key=lambda member: member["nextDueTime"],
            )
        return self._page(request, chosen)

    def _page(self, request: web.Request, listed: list[dict]) -> web.Response:
        limit, after = int(request.query["limit"]), request.query.get("cursor", "")
        if after:
            names = [member["id"] for member in listed]
            listed = listed[sum(name <= after for name in names) if "dueFrom" not in request.query
                            else names.index(after) + 1 :]  # fmt: skip
        page = listed[:limit]
        more = page[-1]["id"] if len(listed) > limit else ""
        return web.json_response({"items": page, "next": more})

    async def _letters(self, _: web.Request) -> web.Response:
        return web.json_response({"items": self.letters, "next": ""})

    async def _bulk(self, request: web.Request) -> web.StreamResponse:
        lines = [line for line in (await request.read()).split(b"\n") if line.strip()]
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        cut = self.cut_after.pop(0) if self.cut_after else len(lines) + 1
        for number, line in enumerate(lines):
            if number == cut:
                request.transport.close()
                return answer
            row = self._row(line, delete=request.path.endswith("Delete"))
            if "error" in row:
                row["line"] = number + 1
            await answer.write(json.dumps(row).encode() + b"\n")
        await answer.write_eof()
        return answer

    def _maybe_refuse(self, id_: str) -> None:
        if self.refused.get(id_):
            status, code = self.refused[id_].pop(0)
            raise Refusal(status, code, "not this one")

    def _row(self, line: bytes, *, delete: bool) -> dict:
        id_ = None
        try:
            try:
                row = json.loads(line)
                id_ = row["id"]
            except (ValueError, KeyError, TypeError) as error:
                raise Refusal(400, "InvalidRow", f"the row is not a member: {error!r}") from None
            self._maybe_refuse(id_)
            _check_row(row)
            if delete:
                gone = self.members.pop(id_, None)
                return {"id": id_, "outcome": "Absent" if gone is None else "Removed"}
            outcome = self.store(id_, row)
            known = self.members[id_]
            due = known["nextDueTime"]
            return {"id": id_, "outcome": outcome, "etag": known["etag"], "dueTime": due}
        except Refusal as refusal:
            return {"id": id_, "error": refusal.body}


def _check_row(row: dict) -> None:
    if "delay" in row:
        message = "counts from a request, and a row may be sent twice; write at"
        raise Refusal(400, "InvalidField", message, "delay")
