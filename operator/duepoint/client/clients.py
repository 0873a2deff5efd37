"""Both clients: for programs without asyncio, and for those with it.

``Client`` and ``AsyncClient`` have the connections, the token and the repetition of requests; a
``SetClient`` and an ``AsyncSetClient`` are what can be asked about one set. What one request asks
is a method of ``calls.SetCalls``, and a method of both by the same name. A client may be used by
many threads, or tasks, at once; it opens at most ``connections`` connections, is made after a fork
and is closed by leaving its ``with``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import ssl
import time
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import httpx2

import duepoint
from duepoint.client import batches, problems, transport
from duepoint.client.calls import ApiCall, RowAnswer, SetCalls
from duepoint.model import answers

AnswerT = TypeVar("AnswerT")
P = ParamSpec("P")

_DEFAULT_RETRIES = transport.Retries()


class _Connection:
    """A connection to the API of one installation.

    Args:
        server: its URL, such as ``https://duepoint-api.duepoint-system.svc:8443``.
        token: a bearer token of Kubernetes, or where it comes from; None sends none.
        ca_file: PEM of the authorities to trust; None = those of the system.
        retries: what is repeated; ``transport.NEVER`` for a caller that does it itself.
        timeout_seconds: for a connection, and for each wait for a part of an answer.
        connections: open at once, at most.
        tls: a context of your own, in place of ``ca_file``.

    Raises:
        ValueError: the URL or the token is none.
        OSError: ``ca_file`` cannot be read.
    """

    _KIND: ClassVar[type[Any]]

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
        self._token = transport.TokenSource(token) if isinstance(token, str) else token
        self._retries = retries
        self._http = self._KIND(
            base_url=self.server,
            verify=tls or transport.tls_context(self.server, ca_file),
            timeout=httpx2.Timeout(timeout_seconds, connect=min(timeout_seconds, 5.0)),
            limits=httpx2.Limits(
                max_connections=connections, max_keepalive_connections=connections
            ),
            headers={"User-Agent": f"duepoint-client/{duepoint.__version__}"},
            follow_redirects=False,  # a token goes to no other server
        )

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str] = os.environ,
        *,
        retries: transport.Retries = _DEFAULT_RETRIES,
    ) -> Self:
        """A client as ``DUEPOINT_API_URL`` and its companions describe it.

        ``DUEPOINT_API_TOKEN``, or the file that ``DUEPOINT_API_TOKEN_FILE`` names, or the token of
        the Pod's own ServiceAccount; ``DUEPOINT_API_CA_FILE``.

        Raises:
            ValueError: there is no URL, or a value of these is wrong.
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

    def attempts(self, retries: transport.Retries | None) -> transport.Attempts:
        """Of one request."""
        return transport.Attempts(retries or self._retries, self._token)

    def _sent(self, call: ApiCall[Any]) -> dict[str, Any]:
        """What the library is to send."""
        headers = dict(call.headers)
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.current()}"
        return {
            "method": call.method, "url": call.path, "params": call.query, "headers": headers,
            "content": call.body,
        }  # fmt: skip


class Client(_Connection):
    __doc__ = _Connection.__doc__
    _KIND = httpx2.Client
    _http: httpx2.Client

    def schedule_set(self, namespace: str, name: str) -> SetClient:
        """The set of this name; nothing is asked yet."""
        return SetClient(self, SetCalls(namespace, name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: ApiCall[AnswerT], *, retries: transport.Retries | None = None) -> AnswerT:
        """The answer to a request, repeated as ``retries`` says; raises problems.ClientError."""
        attempts = self.attempts(retries)
        while True:
            try:
                body = transport.Body(call)
                with contextlib.closing(self.pieces(call)) as pieces:
                    for piece in pieces:
                        body.add(piece)
                return body.decoded()
            except problems.ClientError as error:
                if call.means_absent(error):
                    answer: AnswerT = call.absent
                    return answer
                wait_seconds = attempts.after(error)
            time.sleep(wait_seconds)

    def pieces(self, call: ApiCall[Any]) -> Generator[bytes, None, None]:
        """The body of a success as it comes; raises problems.ClientError for all else."""
        try:
            with self._http.stream(**self._sent(call)) as answer:
                refused = None if answer.is_success else problems.Refusal(answer)
                for piece in answer.iter_bytes():
                    if refused is None:
                        yield piece
                    elif refused.has_all(piece):
                        break
        except httpx2.HTTPError as error:
            raise transport.unreachable(call.method, self.server, error) from error
        if refused is not None:
            raise refused.problem()


class AsyncClient(_Connection):
    __doc__ = _Connection.__doc__
    _KIND = httpx2.AsyncClient
    _http: httpx2.AsyncClient

    def schedule_set(self, namespace: str, name: str) -> AsyncSetClient:
        """The set of this name; nothing is asked yet."""
        return AsyncSetClient(self, SetCalls(namespace, name))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(
        self, call: ApiCall[AnswerT], *, retries: transport.Retries | None = None
    ) -> AnswerT:
        """The answer to a request, repeated as ``retries`` says; raises problems.ClientError."""
        attempts = self.attempts(retries)
        while True:
            try:
                body = transport.Body(call)
                async with contextlib.aclosing(self.pieces(call)) as pieces:
                    async for piece in pieces:
                        body.add(piece)
                return body.decoded()
            except problems.ClientError as error:
                if call.means_absent(error):
                    answer: AnswerT = call.absent
                    return answer
                wait_seconds = attempts.after(error)
            await asyncio.sleep(wait_seconds)

    async def pieces(self, call: ApiCall[Any]) -> AsyncGenerator[bytes, None]:
        """The body of a success as it comes; raises problems.ClientError for all else."""
        try:
            async with self._http.stream(**self._sent(call)) as answer:
                refused = None if answer.is_success else problems.Refusal(answer)
                async for piece in answer.aiter_bytes():
                    if refused is None:
                        yield piece
                    elif refused.has_all(piece):
                        break
        except httpx2.HTTPError as error:
            raise transport.unreachable(call.method, self.server, error) from error
        if refused is not None:
            raise refused.problem()


ClientT = TypeVar("ClientT", bound=_Connection)


class _Request(Generic[P, AnswerT]):
    """A method of both kinds of set: it sends what the method of ``SetCalls`` makes."""

    def __init__(self, make: Callable[Concatenate[SetCalls, P], ApiCall[AnswerT]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, asked: None, owner: type[object]) -> Self: ...

    @overload
    def __get__(self, asked: SetClient, owner: type[object]) -> Callable[P, AnswerT]: ...

    @overload
    def __get__(
        self, asked: AsyncSetClient, owner: type[object]
    ) -> Callable[P, Coroutine[Any, Any, AnswerT]]: ...

    def __get__(self, asked: SetClient | AsyncSetClient | None, owner: type[object]) -> object:
        if asked is None:
            return self
        make = types.MethodType(self._make, asked.calls)

        def request(*given: P.args, **named: P.kwargs) -> object:
            return asked.send(make(*given, **named))

        return functools.update_wrapper(request, make)


class _SetRequests(Generic[ClientT]):
    """What is one request about one set.

    Every method raises problems.ClientError. ``options`` of a change say under which condition and
    how safely it is made.
    """

    def __init__(
        self, client: ClientT, set_calls: SetCalls, retries: transport.Retries | None = None
    ) -> None:
        self._client, self._retries = client, retries
        self.server, self.calls = client.server, set_calls

    def with_retries(self, retries: transport.Retries) -> Self:
        """The same set, with more or less patience than the client's own."""
        return type(self)(self._client, self.calls, retries)

    info = _Request(SetCalls.info)
    get = _Request(SetCalls.get)
    put = _Request(SetCalls.put)
    patch = _Request(SetCalls.patch)
    delete = _Request(SetCalls.delete)
    create = _Request(SetCalls.create)
    trigger = _Request(SetCalls.trigger)
    next_times = _Request(SetCalls.next_times)
    page = _Request(SetCalls.page)
    due = _Request(SetCalls.due)
    export = _Request(SetCalls.export)
    unacknowledged = _Request(SetCalls.unacknowledged)
    dead_letters = _Request(SetCalls.dead_letters)
    replay = _Request(SetCalls.replay)


class SetClient(_SetRequests[Client]):
    """One set, and what can be asked of it."""

    def send(self, call: ApiCall[AnswerT]) -> AnswerT:
        return self._client.send(call, retries=self._retries)

    def upsert(
        self, rows: batches.Rows, *, durability: str = ""
    ) -> Generator[RowAnswer, None, None]:
        """Write many members; see ``AsyncSetClient.upsert``."""
        for lines in batches.in_batches(rows):
            yield from self.send_rows(lines, durability=durability)

    def delete_many(
        self, ids: batches.Rows, *, durability: str = ""
    ) -> Generator[RowAnswer, None, None]:
        """Delete the members of these ids; an answer for each, in their order."""
        for lines in batches.in_batches(ids):
            yield from self.send_rows(lines, delete=True, durability=durability)

    def send_rows(
        self, lines: Sequence[bytes], *, delete: bool = False, durability: str = ""
    ) -> list[RowAnswer]:
        """What became of lines that go in one request; see ``AsyncSetClient.send_rows``."""
        sending = batches.Sending(lines, self._client.attempts(self._retries))
        while sending.waiting:
            arrived = batches.Arrived()
            call = self.calls.bulk(sending.lines(), delete=delete, durability=durability)
            with arrived, contextlib.closing(self._client.pieces(call)) as pieces:
                for piece in pieces:
                    arrived.feed(piece)
            time.sleep(sending.take(arrived))
        return sending.in_order()

    def iterate(
        self, prefix: str = "", *, page_size: int = 500
    ) -> Generator[answers.MemberView, None, None]:
        """All members whose id begins with the prefix, a page at a time, in no certain order."""
        cursor = ""
        while True:
            page = self.page(cursor, prefix=prefix, limit=page_size)
            yield from page.items
            if not (cursor := page.next):
                return


class AsyncSetClient(_SetRequests[AsyncClient]):
    """One set, and what can be asked of it."""

    async def send(self, call: ApiCall[AnswerT]) -> AnswerT:
        return await self._client.send(call, retries=self._retries)

    async def upsert(
        self, rows: batches.AsyncRows, *, durability: str = ""
    ) -> AsyncGenerator[RowAnswer, None]:
        """Write many members; an answer for each row, in their order.

        Rows are MemberRows, or lines of JSON as ``export`` gives them. They are taken a batch at a
        time, so there may be any number of them. A row that is refused stops none of the others.
        The same rows again change nothing, so a call that failed may be repeated from its start.
        """
        async for lines in batches.async_in_batches(rows):
            for answer in await self.send_rows(lines, durability=durability):
                yield answer

    async def delete_many(
        self, ids: batches.AsyncRows, *, durability: str = ""
    ) -> AsyncGenerator[RowAnswer, None]:
        """Delete the members of these ids; an answer for each, in their order."""
        async for lines in batches.async_in_batches(ids):
            for answer in await self.send_rows(lines, delete=True, durability=durability):
                yield answer

    async def send_rows(
        self, lines: Sequence[bytes], *, delete: bool = False, durability: str = ""
    ) -> list[RowAnswer]:
        """What became of lines that go in one request; see ``batches.batches`` for its size.

        Rows without an answer, and rows that the API could not take at the moment, are sent again.

        Raises:
            problems.ClientError: the request was refused, or rows are still without an answer.
        """
        sending = batches.Sending(lines, self._client.attempts(self._retries))
        while sending.waiting:
            arrived = batches.Arrived()
            call = self.calls.bulk(sending.lines(), delete=delete, durability=durability)
            with arrived:
                async with contextlib.aclosing(self._client.pieces(call)) as pieces:
                    async for piece in pieces:
                        arrived.feed(piece)
            await asyncio.sleep(sending.take(arrived))
        return sending.in_order()

    async def iterate(
        self, prefix: str = "", *, page_size: int = 500
    ) -> AsyncGenerator[answers.MemberView, None]:
        """All members whose id begins with the prefix, a page at a time, in no certain order."""
        cursor = ""
        while True:
            page = await self.page(cursor, prefix=prefix, limit=page_size)
            for member in page.items:
                yield member
            if not (cursor := page.next):
                return
