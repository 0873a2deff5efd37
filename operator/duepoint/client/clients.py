"""The two clients of the HTTP API: for programs without asyncio, and with it.

A generator of ``Steps``, the same for both, says which requests to send and how long to wait
between them. ``Client`` and ``AsyncClient`` own the connections and carry the steps out.
``SetClient`` and ``AsyncSetClient`` have the requests about one set; each is a method of
``calls.SetCalls``, and a method of both by the same name. Many threads, or tasks, may use a client
at once; it opens at most ``connections`` connections. Make it after a fork, and close it by leaving
its ``with``.
"""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import time
import types
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import httpx2
import msgspec

import duepoint
from duepoint.client import calls, problems, transport
from duepoint.client.calls import ApiCall, MemberRow, RowAnswer, SetCalls
from duepoint.model import answers

AnswerT = TypeVar("AnswerT")
P = ParamSpec("P")

#: The steps to an answer: send a request with these arguments and take its response, or wait this
#: many seconds.
Steps = Generator[dict[str, Any] | float, httpx2.Response, AnswerT]

_DEFAULT_RETRIES = transport.Retries()


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

    def attempts(self, retries: transport.Retries | None) -> transport.Attempts:
        """Return the attempts of one request."""
        return transport.Attempts(retries or self._retries, self._token)

    def answered(
        self, call: ApiCall[AnswerT], retries: transport.Retries | None = None
    ) -> Steps[AnswerT]:
        """Return an answer, retried as ``retries`` says; raises problems.ClientError."""
        attempts = self.attempts(retries)
        while True:
            try:
                return (yield from self.exchange(call))
            except problems.ClientError as error:
                if call.means_absent(error):
                    answer: AnswerT = call.absent
                    return answer
                wait_seconds = attempts.after(error)
            yield wait_seconds

    def exchange(self, call: ApiCall[AnswerT]) -> Steps[AnswerT]:
        """Send a request once and return its answer; raises problems.ClientError."""
        headers = dict(call.headers)
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.current()}"
        try:
            answer = yield {
                "method": call.method, "url": call.path, "params": call.query, "headers": headers,
                "content": call.body,
            }  # fmt: skip
        except httpx2.HTTPError as error:
            raise transport.unreachable(call.method, self.server, error) from error
        if not answer.is_success:
            raise problems.of_answer(answer)
        try:
            return call.read(answer.content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise problems.ServiceUnreachable(
                f"{call.method} {call.path}: the answer is not what a Duepoint API says ({error})"
            ) from error


class Client(_Connection):
    __doc__ = _Connection.__doc__
    _KIND = httpx2.Client
    _http: httpx2.Client

    def schedule_set(self, namespace: str, name: str) -> SetClient:
        """Return the set of this name; nothing is asked yet."""
        return SetClient(self, SetCalls(namespace, name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: ApiCall[AnswerT], *, retries: transport.Retries | None = None) -> AnswerT:
        """Return an answer, retried as ``retries`` says; raises problems.ClientError."""
        return self.carry_out(self.answered(call, retries))

    def carry_out(self, steps: Steps[AnswerT]) -> AnswerT:
        """Send the requests and wait the times that the steps ask for; return their result."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, float):
                    time.sleep(step)
                    step = next(steps)
                    continue
                try:
                    answer = self._http.request(**step)
                except httpx2.HTTPError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            found: AnswerT = done.value
            return found


class AsyncClient(_Connection):
    __doc__ = _Connection.__doc__
    _KIND = httpx2.AsyncClient
    _http: httpx2.AsyncClient

    def schedule_set(self, namespace: str, name: str) -> AsyncSetClient:
        """Return the set of this name; nothing is asked yet."""
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
        """Return an answer, retried as ``retries`` says; raises problems.ClientError."""
        return await self.carry_out(self.answered(call, retries))

    async def carry_out(self, steps: Steps[AnswerT]) -> AnswerT:
        """Send the requests and wait the times that the steps ask for; return their result."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                    step = next(steps)
                    continue
                try:
                    answer = await self._http.request(**step)
                except httpx2.HTTPError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            found: AnswerT = done.value
            return found


ClientT = TypeVar("ClientT", bound=_Connection)


class _Request(Generic[P, AnswerT]):
    """A method of both kinds of set: it sends the request of the same method of ``SetCalls``."""

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
    """The calls about one set that take one request each.

    Every method raises problems.ClientError. ``options`` of a change set its conditions and its
    durability.
    """

    def __init__(
        self, client: ClientT, set_calls: SetCalls, retries: transport.Retries | None = None
    ) -> None:
        self._client, self._retries = client, retries
        self.server, self.calls = client.server, set_calls

    def with_retries(self, retries: transport.Retries) -> Self:
        """Return the same set with other retries than the client's own."""
        return type(self)(self._client, self.calls, retries)

    def _rows_sent(
        self, lines: Sequence[bytes], *, delete: bool, durability: str
    ) -> Steps[list[RowAnswer]]:
        """Send lines in one request, and return the result of each.

        Rows without an answer, and rows that the API could not accept at the moment, are retried.
        """
        found: dict[int, RowAnswer] = {}
        waiting = list(range(len(lines)))
        attempts = self._client.attempts(self._retries)
        while waiting:
            sent = [lines[place] for place in waiting]
            came: list[RowAnswer] = []
            error: problems.ClientError | None = None
            try:
                call = self.calls.bulk(sent, delete=delete, durability=durability)
                came = yield from self._client.exchange(call)
            except problems.ClientError as wrong:
                error = wrong
            if came and came[-1].fatal:  # the API stopped reading here
                error = came.pop().problem()
            elif error is None and len(came) != len(sent):
                message = f"{len(sent)} rows were sent and {len(came)} answers came"
                error = problems.ServiceUnreachable(message)
                if len(came) > len(sent):
                    raise error
            found.update(zip(waiting, came, strict=False))
            left = [at for at in waiting if at not in found or found[at].is_passing]
            if len(left) < len(sent):  # rows went through, so the API works: count attempts anew
                attempts = self._client.attempts(self._retries)
            waiting = left
            if waiting:
                try:
                    wait_seconds = attempts.after(error or found[waiting[0]].problem())
                except problems.ClientError:
                    if error is not None:
                        raise
                    break  # the result of each row says why
                yield wait_seconds
        return [found[place] for place in range(len(lines))]

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
    dead_letters = _Request(SetCalls.dead_letters)
    replay = _Request(SetCalls.replay)


class SetClient(_SetRequests[Client]):
    """A client for one set."""

    def send(self, call: ApiCall[AnswerT]) -> AnswerT:
        return self._client.send(call, retries=self._retries)

    def upsert(
        self, rows: Iterable[MemberRow] | Iterable[bytes], *, durability: str = ""
    ) -> Generator[RowAnswer, None, None]:
        """Write many members; see ``AsyncSetClient.upsert``."""
        for lines in calls.batches(rows):
            yield from self.send_rows(lines, durability=durability)

    def delete_many(
        self, ids: Iterable[str], *, durability: str = ""
    ) -> Generator[RowAnswer, None, None]:
        """Delete the members of these ids; an answer for each, in their order."""
        for lines in calls.batches(ids):
            yield from self.send_rows(lines, delete=True, durability=durability)

    def send_rows(
        self, lines: Sequence[bytes], *, delete: bool = False, durability: str = ""
    ) -> list[RowAnswer]:
        """Send lines in one request, and return their results; see ``AsyncSetClient.send_rows``."""
        return self._client.carry_out(self._rows_sent(lines, delete=delete, durability=durability))

    def iterate(
        self, prefix: str = "", *, page_size: int = 500
    ) -> Generator[answers.MemberView, None, None]:
        """Yield the members whose id begins with the prefix, page by page, in no certain order."""
        cursor = ""
        while True:
            page = self.page(cursor, prefix=prefix, limit=page_size)
            yield from page.items
            if not (cursor := page.next):
                return


class AsyncSetClient(_SetRequests[AsyncClient]):
    """A client for one set."""

    async def send(self, call: ApiCall[AnswerT]) -> AnswerT:
        return await self._client.send(call, retries=self._retries)

    async def upsert(
        self, rows: Iterable[MemberRow] | Iterable[bytes], *, durability: str = ""
    ) -> AsyncGenerator[RowAnswer, None]:
        """Write many members, and yield a result for each row, in their order.

        Rows are MemberRows, or lines of JSON from ``export``. They are read a batch at a time, so
        there may be any number of them. A refused row does not stop the others. Writing the same
        rows again changes nothing, so a call that failed may be repeated from its start.
        """
        for lines in calls.batches(rows):
            for answer in await self.send_rows(lines, durability=durability):
                yield answer

    async def delete_many(
        self, ids: Iterable[str], *, durability: str = ""
    ) -> AsyncGenerator[RowAnswer, None]:
        """Delete the members of these ids; an answer for each, in their order."""
        for lines in calls.batches(ids):
            for answer in await self.send_rows(lines, delete=True, durability=durability):
                yield answer

    async def send_rows(
        self, lines: Sequence[bytes], *, delete: bool = False, durability: str = ""
    ) -> list[RowAnswer]:
        """Send lines in one request, and return their results; see ``calls.batches`` for the size.

        Rows without an answer, and rows that the API could not accept at the moment, are retried.

        Raises:
            problems.ClientError: the request was refused, or rows are still without an answer.
        """
        steps = self._rows_sent(lines, delete=delete, durability=durability)
        return await self._client.carry_out(steps)

    async def iterate(
        self, prefix: str = "", *, page_size: int = 500
    ) -> AsyncGenerator[answers.MemberView, None]:
        """Yield the members whose id begins with the prefix, page by page, in no certain order."""
        cursor = ""
        while True:
            page = await self.page(cursor, prefix=prefix, limit=page_size)
            for member in page.items:
                yield member
            if not (cursor := page.next):
                return
