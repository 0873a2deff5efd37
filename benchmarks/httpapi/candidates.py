# ruff: noqa: PLC0415 - a process imports one candidate
"""One PUT and one GET of a member, written for one server or framework each; no queue behind.

``python candidates.py NAME PORT`` serves until it is ended. Each takes the path apart, wants a
bearer token, reads a body of at most 256 KiB into a typed value, keeps it, and answers with an
ETag, as its documentation has it. It runs in an environment of its own, with nothing of duepoint
but in ``ours``.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import uvloop

MOST_BYTES = 256 * 1024
PATH = "/v1/namespaces/{namespace}/schedulesets/{set_name}/schedules/{member}"


class Fields(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    at: str | None = None
    schedule: str | None = None
    timeZone: str | None = None  # noqa: N815 - as the body has it
    payload: Any = None


members: dict[tuple[str, str, str], Fields] = {}
_decode = msgspec.json.Decoder(Fields).decode
_encode = msgspec.json.Encoder().encode
ETAG = '"1f0a33c2"'


def put(namespace: str, set_name: str, id_: str, fields: Fields) -> tuple[int, bytes]:
    key = namespace, set_name, id_
    status = 200 if key in members else 201
    members[key] = fields
    return status, _encode(fields)


def get(namespace: str, set_name: str, id_: str) -> tuple[int, bytes]:
    fields = members.get((namespace, set_name, id_))
    return (404, b'{"code":"NoSuchMember"}') if fields is None else (200, _encode(fields))


def ours(port: int) -> None:
    import asyncio

    from duepoint.httpapi import operations
    from duepoint.net import httpserver, requests

    json = ("Content-Type", "application/json")

    async def handle(request: requests.HttpRequest) -> requests.HttpResponse:
        path, _, _ = request.target.partition("?")
        where = operations.route(request.method, path)
        if not request.headers.get("authorization", "").startswith("Bearer "):
            return requests.HttpResponse(401)
        place = where.namespace, where.set_name, where.id
        body = await request.body.read(MOST_BYTES)
        if request.method == "PUT":
            status, text = put(*place, _decode(body))
        else:
            status, text = get(*place)
        return requests.HttpResponse(status, (json, ("ETag", ETAG)), text)

    async def run() -> None:
        limits = requests.ServerLimits()
        server = httpserver.HttpServer(
            handle, lambda status, _: requests.HttpResponse(status), limits
        )
        await server.start("127.0.0.1", port, None)
        await asyncio.Event().wait()

    uvloop.run(run())


def litestar(port: int) -> None:
    from litestar import Litestar, Response
    from litestar import get as read
    from litestar import put as write
    from litestar.connection import ASGIConnection
    from litestar.exceptions import NotAuthorizedException
    from litestar.handlers import BaseRouteHandler

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if not connection.headers.get("authorization", "").startswith("Bearer "):
            raise NotAuthorizedException

    path = PATH.replace("}", ":str}")

    @write(path, guards=[guard])
    async def put_member(
        namespace: str,
        set_name: str,
        member: str,
        data: Fields,
    ) -> Response[bytes]:
        status, text = put(namespace, set_name, member, data)
        return Response(
            text, status_code=status, media_type="application/json", headers={"ETag": ETAG}
        )

    @read(path, guards=[guard])
    async def get_member(namespace: str, set_name: str, member: str) -> Response[bytes]:
        status, text = get(namespace, set_name, member)
        return Response(
            text, status_code=status, media_type="application/json", headers={"ETag": ETAG}
        )

    application = Litestar(
        [put_member, get_member], request_max_body_size=MOST_BYTES, openapi_config=None,
        signature_types=[Response, Fields],
    )  # fmt: skip
    _uvicorn(application, port)


def starlette(port: int) -> None:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        if not request.headers.get("authorization", "").startswith("Bearer "):
            return Response(status_code=401)
        where = request.path_params
        place = where["namespace"], where["set_name"], where["member"]
        if request.method == "PUT":
            whole = bytearray()
            async for piece in request.stream():
                whole += piece
                if len(whole) > MOST_BYTES:
                    return Response(status_code=413)
            status, text = put(*place, _decode(whole))
        else:
            status, text = get(*place)
        return Response(
            text, status_code=status, media_type="application/json", headers={"ETag": ETAG}
        )

    _uvicorn(Starlette(routes=[Route(PATH, answer, methods=["GET", "PUT"])]), port)


def aiohttp(port: int) -> None:
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        if not request.headers.get("Authorization", "").startswith("Bearer "):
            return web.Response(status=401)
        where = request.match_info
        place = where["namespace"], where["set_name"], where["member"]
        if request.method == "PUT":
            status, text = put(*place, _decode(await request.read()))
        else:
            status, text = get(*place)
        return web.Response(
            body=text, status=status, content_type="application/json", headers={"ETag": ETAG}
        )

    uvloop.install()
    application = web.Application(client_max_size=MOST_BYTES)
    application.router.add_put(PATH, answer)
    application.router.add_get(PATH, answer)
    web.run_app(application, host="127.0.0.1", port=port, access_log=None, print=None)


def _uvicorn(application: Any, port: int) -> None:
    import uvicorn

    uvicorn.run(
        application, host="127.0.0.1", port=port, loop="uvloop", http="httptools",
        access_log=False, log_level="error", lifespan="off",
    )  # fmt: skip


if __name__ == "__main__":
    {"ours": ours, "litestar": litestar, "starlette": starlette, "aiohttp": aiohttp}[sys.argv[1]](
        int(sys.argv[2])
    )
