"""The two clients of the HTTP API: for programs without asyncio, and with it.

Every request is written once, as a coroutine: ``AsyncSetClient`` has those about one set. A
``Client`` sends and sleeps without an event loop, so that a coroutine of its requests ends at its
first step; ``SetClient`` carries each out like that. Many threads, or tasks, may use a client at
once; it opens at most ``connections`` connections. Make it after a fork, and close it by leaving
its ``with``.

Ids and names are percent-encoded as a whole, so no id can name another path. A change that must not
be made twice carries an ``Idempotency-Key``, made once for all attempts.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import secrets
import ssl
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar
from urllib import parse

import httpx2
import msgspec

import duepoint
from duepoint.client import problems, rows, transport
from duepoint.client.rows import ItemPage, MemberRow, MemberSpec, RowAnswer
from duepoint.model import answers, vocabulary
from duepoint.model.answers import MemberView

AnswerT = TypeVar("AnswerT")
P = ParamSpec("P")

_JSON, _NDJSON = "application/json", "application/x-ndjson"
_MERGE_PATCH = "application/merge-patch+json"
_DEFAULT_RETRIES = transport.Retries()
#: The API's names of the fields of a spec.
_FIELDS = dict(vocabulary.names(MemberSpec))
_row_answers = msgspec.json.Decoder(RowAnswer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """The conditions of a change, and the durability that it needs before the answer.

    Attributes:
        if_match: only if the member's etag is this one.
        if_absent: only if there is no such member.
        durability: answer only when the change is this safe: ``replicas=1``, ``aof`` or both with
            a comma; refused if the servers cannot provide it.
        idempotency_key: unset: a random one if a retry would matter. Set your own if another
            process may repeat the call, up to a day later.
    """

    if_match: str = ""
    if_absent: bool = False
    durability: str = ""
    idempotency_key: str = ""

    def headers(self, *, is_repeatable: bool) -> dict[str, str]:
        """Return the headers of a change; a key costs the API two round trips, so not all have one.

        Args:
            is_repeatable: without conditions, repeating the request changes nothing; not so with
                a ``delay``, which counts from each request.
        """
        found: dict[str, str] = {}
        if self.idempotency_key or self.if_match or self.if_absent or not is_repeatable:
            found["Idempotency-Key"] = self.idempotency_key or secrets.token_hex(16)
        if self.if_match:
            found["If-Match"] = f'"{self.if_match}"'
        if self.if_absent:
            found["If-None-Match"] = "*"
        if self.durability:
            found["Duepoint-Durability"] = self.durability
        return found


ALWAYS = ChangeOptions()


class _Connection:
    """A connection to the API of one installation.

    Args:
        server: its URL, such as ``https://duepoint-api.duepoint-system.svc:8443``.
        token: a bearer token of Kubernetes, or its source; None sends none.
        ca_file: PEM of the CAs to trust; None = those of the system.
        retries: how to retry; ``transport.NEVER`` for a caller that retries by itself.
        timeout_seconds: for a connection, and for each wait for a part of an answer.
        connections: the most connections open at once.
        tls: a context of your own, in place of ``ca_file``.

    Raises:
        ValueError: the URL or the token is not valid.
        OSError: ``ca_file`` cannot be read.
    """

    _KIND: ClassVar[type[httpx2.Client | httpx2.AsyncClient]]

    def __init__(
        self,
        server: str,
        *,
        token: str | transport.TokenSource | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        retries: transport.Retries = _DEFAULT_RETRIES,
        timeout_seconds: float = 30.0,
        connections: int = 20,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.server = transport.checked_server(server)
        self.token = transport.TokenSource(token) if isinstance(token, str) else token
        self.retries = retries
        self._http = self._KIND(
            base_url=self.server,
            verify=tls or transport.tls_context(self.server, ca_file),
            timeout=httpx2.Timeout(timeout_seconds, connect=min(timeout_seconds, 5.0)),
            limits=httpx2.Limits(
                max_connections=connections, max_keepalive_connections=connections
            ),
            headers={"User-Agent": f"duepoint-client/{duepoint.__version__}"},
            follow_redirects=False,  # the token must not go to another server
        )

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] = os.environ,
        *,
        retries: transport.Retries = _DEFAULT_RETRIES,
    ) -> Self:
        """Return a client for ``DUEPOINT_API_URL``, with ``DUEPOINT_API_CA_FILE``.

        The token is ``DUEPOINT_API_TOKEN``, the content of the file ``DUEPOINT_API_TOKEN_FILE``,
        or that of the Pod's own ServiceAccount.

        Raises:
            ValueError: there is no URL, or one of these values is wrong.
            OSError: a file cannot be read.
        """
        server = environment.get("DUEPOINT_API_URL", "")
        if not server:
            raise ValueError(
                "DUEPOINT_API_URL is not set; write the URL of the API, such as"
                " https://duepoint-api.duepoint-system.svc:8443"
            )
        return cls(
            server,
            token=transport.of_environment(environment),
            ca_file=environment.get("DUEPOINT_API_CA_FILE") or None,
            retries=retries,
        )

    async def pause(self, seconds: float) -> None:
        """Wait between two attempts."""
        raise NotImplementedError

    async def send(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], AnswerT],
        *,
        retries: transport.Retries | None = None,
        **content: Any,  # noqa: ANN401 - the library's arguments
    ) -> AnswerT:
        """Return an answer, retried as ``retries`` says; raises problems.ClientError."""
        attempts = transport.Attempts(retries or self.retries, self.token)
        while True:
            try:
                return await self.exchange(method, path, read, **content)
            except problems.ClientError as error:
                wait_seconds = attempts.after(error)
            await self.pause(wait_seconds)

    async def exchange(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], AnswerT],
        *,
        headers: Mapping[str, str] | None = None,
        **content: Any,  # noqa: ANN401 - the library's arguments
    ) -> AnswerT:
        """Send a request once and return its answer; raises problems.ClientError.

        Args:
            path: the encoded path below the server's URL.
            read: turns the body of a success into the answer.
        """
        given = dict(headers or {})
        if self.token is not None:
            given["Authorization"] = f"Bearer {self.token.current()}"
        try:
            answer = self._http.request(method, path, headers=given, **content)
            if inspect.isawaitable(answer):
                answer = await answer
        except httpx2.HTTPError as error:
            is_late = isinstance(error, httpx2.TimeoutException)
            what = "no answer in time" if is_late else "no answer"
            why = (str(error) or type(error).__name__)[:200]
            raise problems.ServiceUnreachable(
                f"{method} at {self.server}: {what} ({why})"
            ) from error
        if not answer.is_success:
            raise problems.of_answer(answer)
        try:
            return read(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise problems.ServiceUnreachable(
                f"{method} {path}: the answer is not what a Duepoint API says ({error})"
            ) from error


class AsyncClient(_Connection):
    __doc__ = _Connection.__doc__
    _KIND = httpx2.AsyncClient
    _http: httpx2.AsyncClient

    def schedule_set(self, namespace: str, name: str) -> AsyncSetClient:
        """Return the set of this name; nothing is asked yet."""
        return AsyncSetClient(self, namespace, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # -- dead letters of Schedules ---------------------------------------------------------------

    async def schedule_letters(self, namespace: str, cursor: str) -> ItemPage[answers.LetterView]:
        """Read the dead letters of a namespace's Schedules, newest first."""
        query = {"namespace": namespace, "limit": "200", "cursor": cursor}
        read = _as(ItemPage[answers.LetterView])
        return await self.send("GET", "/v1/deadletters", read, params=query)

    async def replay_schedule_letters(self, namespace: str, ids: Sequence[str]) -> dict[str, str]:
        """Run up to 100 of them again, each once; return the result of each in one word."""
        path = f"/v1/namespaces/{_segment(namespace)}/deadletters:replay"
        content, headers = rows.encoded({"ids": ids}), {"Content-Type": _JSON}
        read = _as(answers.Replayed)
        return (await self.send("POST", path, read, headers=headers, content=content)).results


class AsyncSetClient:
    """A client for one set.

    Every method raises problems.ClientError. ``options`` of a change set its conditions and its
    durability.

    Attributes:
        retries: how to retry requests about this set; at first as the client does.
    """

    def __init__(self, client: _Connection, namespace: str, name: str) -> None:
        self.server, self.namespace, self.name = client.server, namespace, name
        self._client, self.retries = client, client.retries

    async def info(self) -> answers.SetView:
        """Read the set's state and its counts."""
        return await self._read("", answers.SetView)

    # -- one member ------------------------------------------------------------------------------

    async def get(self, id_: str) -> MemberView:
        """Read the member with this id; raises problems.NothingThere if there is none."""
        return await self._read(_member(id_), MemberView)

    async def put(
        self, id_: str, spec: MemberSpec, *, options: ChangeOptions = ALWAYS
    ) -> MemberView:
        """Create or replace a member; repeating the call changes nothing."""
        headers = options.headers(is_repeatable=spec.delay is None)
        return await self._change("PUT", _member(id_), MemberView, spec, headers)

    async def patch(
        self, id_: str, changes: Mapping[str, Any], *, options: ChangeOptions = ALWAYS
    ) -> MemberView:
        """Change some fields of a member; None removes a field (RFC 7396).

        Args:
            changes: by the names of ``MemberSpec``, or by those of the API (``timeZone``).
        """
        headers = options.headers(is_repeatable=changes.get("delay") is None)
        named = {_FIELDS.get(name, name): value for name, value in changes.items()}
        headers["Content-Type"] = _MERGE_PATCH
        return await self._change("PATCH", _member(id_), MemberView, named, headers)

    async def delete(self, id_: str, *, options: ChangeOptions = ALWAYS) -> bool:
        """Delete the member with this id; False if there was none.

        After a lost answer False may also mean that the first attempt deleted it.
        """
        headers = options.headers(is_repeatable=True)
        try:
            return await self._send("DELETE", _member(id_), lambda _: True, headers=headers)
        except problems.NothingThere as missing:
            if missing.code != problems.NO_MEMBER:
                raise
            return False

    async def create(self, spec: MemberSpec, *, options: ChangeOptions = ALWAYS) -> MemberView:
        """Create a one-off, whose id the API chooses: a ULID."""
        headers = options.headers(is_repeatable=False)
        return await self._change("POST", "/schedules", MemberView, spec, headers)

    async def trigger(
        self, id_: str, payload: object = None, *, options: ChangeOptions = ALWAYS
    ) -> str:
        """Fire the member once now; returns the id of that run. None = with its own payload."""
        headers, body = options.headers(is_repeatable=False), {"payload": payload}
        path = f"{_member(id_)}/trigger"
        return (await self._change("POST", path, answers.Triggered, body, headers)).run

    async def next_times(self, id_: str, count: int = 5) -> tuple[str, ...]:
        """Read the next slots of a member, RFC 3339 in UTC."""
        return (await self._read(f"{_member(id_)}/next", ItemPage[str], count=count)).items

    # -- many ------------------------------------------------------------------------------------

    async def page(
        self, cursor: str = "", *, limit: int = 100, prefix: str = ""
    ) -> ItemPage[MemberView]:
        """Read a page of members, '' = the first; a page may be empty without being the last."""
        query = {"limit": limit, "cursor": cursor, "prefix": prefix}
        return await self._read("/schedules", ItemPage[MemberView], **query)

    async def due(
        self, since: str, until: str, cursor: str = "", *, limit: int = 100
    ) -> ItemPage[MemberView]:
        """Read a page of the members that are due from ``since`` until before ``until``."""
        query = {"limit": limit, "cursor": cursor, "dueFrom": since, "dueUntil": until}
        return await self._read("/schedules", ItemPage[MemberView], **query)

    async def export(self, cursor: str = "", *, limit: int = 1000) -> ItemPage[msgspec.Raw]:
        """Read a page of whole members as JSON; ``row_of`` turns one into a row for ``upsert``."""
        return await self._read("/schedules", ItemPage[msgspec.Raw], limit=limit, cursor=cursor)

    async def dead_letters(
        self, cursor: str = "", *, limit: int = 100
    ) -> ItemPage[answers.LetterView]:
        """Read a page of the dead letters, newest first."""
        kind = ItemPage[answers.LetterView]
        return await self._read("/deadletters", kind, limit=limit, cursor=cursor)

    async def replay(self, letters: Sequence[str]) -> tuple[str, ...]:
        """Fire up to 100 dead letters once more, each with the id that its event had.

        Returns the ids that do not exist.
        """
        path, headers = "/deadletters:replay", ALWAYS.headers(is_repeatable=False)
        body = {"ids": letters}
        return (await self._change("POST", path, answers.Replayed, body, headers)).missing

    async def upsert(
        self, members: Iterable[MemberRow] | Iterable[bytes], *, durability: str = ""
    ) -> AsyncGenerator[RowAnswer, None]:
        """Write many members, and yield a result for each row, in their order.

        Rows are MemberRows, or lines of JSON from ``export``. They are read a batch at a time, so
        there may be any number of them. A refused row does not stop the others. Writing the same
        rows again changes nothing, so a call that failed may be repeated from its start.
        """
        for lines in rows.batches(members):
            for answer in await self.send_rows(lines, durability=durability):
                yield answer

    async def delete_many(
        self, ids: Iterable[str], *, durability: str = ""
    ) -> AsyncGenerator[RowAnswer, None]:
        """Delete the members of these ids; an answer for each, in their order."""
        for lines in rows.batches(ids):
            for answer in await self.send_rows(lines, delete=True, durability=durability):
                yield answer

    async def iterate(
        self, prefix: str = "", *, page_size: int = 500
    ) -> AsyncGenerator[MemberView, None]:
        """Yield the members whose id begins with the prefix, page by page, in no certain order."""
        cursor = ""
        while True:
            page = await self.page(cursor, prefix=prefix, limit=page_size)
            for member in page.items:
                yield member
            if not (cursor := page.next):
                return

    async def send_rows(
        self, lines: Sequence[bytes], *, delete: bool = False, durability: str = ""
    ) -> list[RowAnswer]:
        """Send lines in one request, and return their results; see ``rows.batches`` for the size.

        Rows without an answer, and rows that the API could not accept at the moment, are retried.

        Raises:
            problems.ClientError: the request was refused, or rows are still without an answer.
        """
        path = f"{self._base}/schedules:{'bulkDelete' if delete else 'bulkUpsert'}"
        headers = {"Content-Type": _NDJSON, "Accept": f"{_NDJSON}, application/problem+json"}
        if durability:
            headers["Duepoint-Durability"] = durability
        found: dict[int, RowAnswer] = {}
        waiting = list(range(len(lines)))
        attempts = transport.Attempts(self.retries, self._client.token)
        while waiting:
            content = b"".join(lines[place] + b"\n" for place in waiting)
            came: list[RowAnswer] = []
            error: problems.ClientError | None = None
            try:
                came = await self._client.exchange(
                    "POST", path, _row_answers.decode_lines, headers=headers, content=content
                )
            except problems.ClientError as wrong:
                error = wrong
            if came and came[-1].fatal:  # the API stopped reading here
                error = came.pop().problem()
            elif error is None and len(came) != len(waiting):
                message = f"{len(waiting)} rows were sent and {len(came)} answers came"
                error = problems.ServiceUnreachable(message)
                if len(came) > len(waiting):
                    raise error
            found.update(zip(waiting, came, strict=False))
            left = [at for at in waiting if at not in found or found[at].is_passing]
            if len(left) < len(waiting):  # rows went through, so the API works: count anew
                attempts = transport.Attempts(self.retries, self._client.token)
            waiting = left
            if waiting:
                try:
                    wait_seconds = attempts.after(error or found[waiting[0]].problem())
                except problems.ClientError:
                    if error is not None:
                        raise
                    break  # the result of each row says why
                await self._client.pause(wait_seconds)
        return [found[place] for place in range(len(lines))]

    # -- how -------------------------------------------------------------------------------------

    @property
    def _base(self) -> str:
        return f"/v1/namespaces/{_segment(self.namespace)}/schedulesets/{_segment(self.name)}"

    async def _read(self, path: str, kind: type[AnswerT], **query: object) -> AnswerT:
        given = {name: str(value) for name, value in query.items() if value}
        return await self._send("GET", path, _as(kind), params=given)

    async def _change(
        self, method: str, path: str, kind: type[AnswerT], body: object, headers: dict[str, str]
    ) -> AnswerT:
        headers, content = {"Content-Type": _JSON, **headers}, rows.encoded(body)
        return await self._send(method, path, _as(kind), headers=headers, content=content)

    async def _send(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], AnswerT],
        **content: Any,  # noqa: ANN401 - the library's arguments
    ) -> AnswerT:
        path = f"{self._base}{path}"
        return await self._client.send(method, path, read, retries=self.retries, **content)


def _as(kind: type[AnswerT]) -> Callable[[bytes], AnswerT]:
    """Return a reader for JSON of this type."""
    return functools.partial(msgspec.json.decode, type=kind)


def _member(id_: str) -> str:
    return f"/schedules/{_segment(id_)}"


def _segment(text: str) -> str:
    """Return one segment of a path; raises ValueError for a text that would change the path."""
    if text in ("", ".", ".."):
        raise ValueError(f'"{text}" is neither an id nor a name')
    return parse.quote(text, safe="")


# -- without asyncio -------------------------------------------------------------------------------


class Client(_Connection):
    __doc__ = _Connection.__doc__
    _KIND = httpx2.Client
    _http: httpx2.Client

    def schedule_set(self, namespace: str, name: str) -> SetClient:
        """Return the set of this name; nothing is asked yet."""
        return SetClient(AsyncSetClient(self, namespace, name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop to hold up


def _ended(steps: Awaitable[AnswerT]) -> AnswerT:
    """Return the result of a coroutine that waits for nothing."""
    try:
        next(steps.__await__())
    except StopIteration as done:
        answer: AnswerT = done.value
        return answer
    raise RuntimeError("a request without a loop cannot wait for one")


def _blocking(
    method: Callable[Concatenate[AsyncSetClient, P], Coroutine[Any, Any, AnswerT]],
) -> Callable[Concatenate[SetClient, P], AnswerT]:
    """Return the method that waits for the answer of this one."""

    @functools.wraps(method)
    def request(asked: SetClient, /, *given: P.args, **named: P.kwargs) -> AnswerT:
        return _ended(method(asked.requests, *given, **named))

    return request


def _blocking_each(
    method: Callable[Concatenate[AsyncSetClient, P], AsyncGenerator[AnswerT, None]],
) -> Callable[Concatenate[SetClient, P], Generator[AnswerT, None, None]]:
    """Return the method that yields the same without a loop."""

    @functools.wraps(method)
    def each(
        asked: SetClient, /, *given: P.args, **named: P.kwargs
    ) -> Generator[AnswerT, None, None]:
        items = method(asked.requests, *given, **named)
        try:
            while True:
                try:
                    item = _ended(anext(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            _ended(items.aclose())

    return each


class SetClient:
    """A client for one set, without asyncio; its methods are those of ``AsyncSetClient``."""

    def __init__(self, requests: AsyncSetClient) -> None:
        self.requests = requests

    info = _blocking(AsyncSetClient.info)
    get = _blocking(AsyncSetClient.get)
    put = _blocking(AsyncSetClient.put)
    patch = _blocking(AsyncSetClient.patch)
    delete = _blocking(AsyncSetClient.delete)
    create = _blocking(AsyncSetClient.create)
    trigger = _blocking(AsyncSetClient.trigger)
    next_times = _blocking(AsyncSetClient.next_times)
    page = _blocking(AsyncSetClient.page)
    due = _blocking(AsyncSetClient.due)
    export = _blocking(AsyncSetClient.export)
    dead_letters = _blocking(AsyncSetClient.dead_letters)
    replay = _blocking(AsyncSetClient.replay)
    send_rows = _blocking(AsyncSetClient.send_rows)
    upsert = _blocking_each(AsyncSetClient.upsert)
    delete_many = _blocking_each(AsyncSetClient.delete_many)
    iterate = _blocking_each(AsyncSetClient.iterate)
