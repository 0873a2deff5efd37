"""The client for programs without asyncio, made of ``asyncclient``.

Do not edit: change ``asyncclient`` and run ``make generate``. A client may be used by
many threads at once, and is made after a fork.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Self, TypeVar

import httpx2
import msgspec
from msgspec import UNSET

import duepoint
from duepoint.client import (
    batches,
    calls,
    members,
    problems,
    transport,
)
from duepoint.model import answers

AnswerT = TypeVar("AnswerT")

#: Longest answer that is read, in bytes: more than the largest page.
_LONGEST_ANSWER = 64 * 1024 * 1024
_DEFAULT_RETRIES = transport.Retries()


class Client:
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
        self._http = httpx2.Client(
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

    def schedule_set(self, namespace: str, name: str) -> SetClient:
        """The set of this name; nothing is asked yet."""
        return SetClient(self, calls.SetCalls(namespace, name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(
        self, call: calls.ApiCall[AnswerT], *, retries: transport.Retries | None = None
    ) -> AnswerT:
        """The answer to a request, repeated as ``retries`` says; raises problems.ClientError."""
        attempts = transport.Attempts(retries or self._retries, self._token)
        while True:
            try:
                return transport.decoded(call, self._whole_answer(call))
            except problems.ClientError as error:
                wait_seconds = attempts.after(error)
                if wait_seconds is None:
                    raise
            time.sleep(wait_seconds)

    def send_rows(
        self,
        set_: calls.SetCalls,
        lines: Sequence[bytes],
        *,
        delete: bool,
        durability: str = "",
        retries: transport.Retries | None = None,
    ) -> list[members.RowAnswer]:
        """What became of rows that go in one request, in their order.

        Rows without an answer, and rows that the API could not take at the moment, are sent again.

        Raises:
            problems.ClientError: the request was refused, or rows are still without an answer.
        """
        attempts = transport.Attempts(retries or self._retries, self._token)
        answers: dict[int, members.RowAnswer] = {}
        waiting = list(range(len(lines)))
        while waiting:
            sent = waiting
            call = set_.bulk([lines[n] for n in sent], delete=delete, durability=durability)
            arrived, error = self._arrived(call)
            answers.update(zip(sent, arrived, strict=False))
            if len(arrived) > len(sent):
                raise batches.miscounted(arrived, sent)
            if error is None and len(arrived) < len(sent):
                error = batches.miscounted(arrived, sent)
            waiting = [n for n in sent if n not in answers or batches.is_passing(answers[n])]
            if not waiting:
                break
            if len(waiting) < len(sent):
                attempts.begin_anew()  # rows went through, so the API is there
            wait_seconds = attempts.after(error or batches.error_of(answers[waiting[0]]))
            if wait_seconds is None:
                if error is not None:
                    raise error
                break  # each row says why by itself
            time.sleep(wait_seconds)
        return [answers[n] for n in range(len(lines))]

    def _arrived(
        self, call: calls.ApiCall[None]
    ) -> tuple[list[members.RowAnswer], problems.ClientError | None]:
        """The answers to rows that came, and what stopped more of them from coming."""
        arrived: list[members.RowAnswer] = []
        lines = batches.AnswerLines()
        try:
            with contextlib.closing(self._pieces(call)) as pieces:
                for piece in pieces:
                    arrived += lines.feed(piece)
            arrived += lines.end()
            batches.raise_if_fatal(arrived)
        except problems.ClientError as error:
            return [answer for answer in arrived if not answer.fatal], error
        return arrived, None

    def _whole_answer(self, call: calls.ApiCall[AnswerT]) -> bytes:
        body = bytearray()
        with contextlib.closing(self._pieces(call)) as pieces:
            for piece in pieces:
                body += piece
                if len(body) > _LONGEST_ANSWER:
                    raise problems.ServiceUnreachable(
                        f"the answer is longer than {_LONGEST_ANSWER} bytes: no Duepoint API"
                    )
        return bytes(body)

    def _pieces(self, call: calls.ApiCall[AnswerT]) -> Generator[bytes, None, None]:
        """The body of a success as it comes; raises problems.ClientError for all else."""
        headers = dict(call.headers)
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.current()}"
        try:
            with self._http.stream(
                call.method, call.path, params=call.query, headers=headers, content=call.body
            ) as answer:
                if answer.is_success:
                    for piece in answer.iter_bytes():
                        yield piece
                    return
                body = b""
                for piece in answer.iter_bytes():
                    body += piece
                    if len(body) >= problems.LONGEST_PROBLEM_BYTES:
                        break
        except httpx2.HTTPError as error:
            raise transport.unreachable(call.method, self.server, error) from error
        raise problems.of_answer(answer.status_code, body, answer.headers.get("Retry-After"))


class SetClient:
    """One set, and what can be asked of it.

    Every method raises problems.ClientError. ``options`` of a change say under which condition and
    how safely it is made.
    """

    def __init__(
        self,
        client: Client,
        set_calls: calls.SetCalls,
        retries: transport.Retries | None = None,
    ) -> None:
        self._client = client
        self._retries = retries
        self.server = client.server
        self.calls = set_calls

    def with_retries(self, retries: transport.Retries) -> SetClient:
        """The same set, with more or less patience than the client's own."""
        return SetClient(self._client, self.calls, retries)

    def info(self) -> answers.SetView:
        """The set's state and its counts."""
        return self._send(self.calls.info())

    # -- one member ------------------------------------------------------------------------------

    def get(self, id_: str) -> answers.MemberView:
        """The member of this id; raises problems.NothingThere where there is none."""
        return self._send(self.calls.get(id_))

    def put(
        self, id_: str, spec: members.MemberSpec, *, options: calls.ChangeOptions = calls.ALWAYS
    ) -> answers.MemberView:
        """The member is as the spec says; the same again changes nothing."""
        return self._send(self.calls.put(id_, spec, options))

    def patch(
        self, id_: str, changes: Mapping[str, Any], *, options: calls.ChangeOptions = calls.ALWAYS
    ) -> answers.MemberView:
        """Some fields of a member are others; None removes one (RFC 7396).

        Args:
            changes: by the names of ``MemberSpec``, or by those of the API (``timeZone``).
        """
        return self._send(self.calls.patch(id_, changes, options))

    def delete(self, id_: str, *, options: calls.ChangeOptions = calls.ALWAYS) -> bool:
        """There is no member of this id; False where there was none before.

        After a lost answer False may also mean that the first attempt removed it.
        """
        try:
            self._send(self.calls.delete(id_, options))
        except problems.NothingThere as error:
            if error.code != calls.NO_MEMBER:
                raise
            return False
        return True

    def create(
        self, spec: members.MemberSpec, *, options: calls.ChangeOptions = calls.ALWAYS
    ) -> answers.MemberView:
        """A new one-off, whose id the API chooses: a ULID."""
        return self._send(self.calls.create(spec, options))

    def trigger(
        self, id_: str, payload: object = UNSET, *, options: calls.ChangeOptions = calls.ALWAYS
    ) -> str:
        """The member fires once now; the id of that run. UNSET = with its own payload."""
        return (self._send(self.calls.trigger(id_, payload, options))).run

    def next_times(self, id_: str, count: int = 5) -> tuple[str, ...]:
        """The next slots of a member, RFC 3339 in UTC."""
        return (self._send(self.calls.next_times(id_, count))).items

    # -- many ------------------------------------------------------------------------------------

    def upsert(
        self, rows: batches.Rows, *, durability: str = ""
    ) -> Generator[members.RowAnswer, None, None]:
        """Write many members; an answer for each row, in their order.

        Rows are MemberRows, or lines of JSON as ``export`` gives them. They are taken a batch at a
        time, so there may be any number of them. A row that is refused stops none of the others.
        The same rows again change nothing, so a call that failed may be repeated from its start.
        """
        for lines in batches.in_batches(rows):
            for answer in self.send_rows(lines, durability=durability):
                yield answer

    def delete_many(
        self, ids: batches.Rows, *, durability: str = ""
    ) -> Generator[members.RowAnswer, None, None]:
        """Delete the members of these ids; an answer for each, in their order."""
        for lines in batches.in_batches(ids):
            for answer in self.send_rows(lines, delete=True, durability=durability):
                yield answer

    def send_rows(
        self, lines: Sequence[bytes], *, delete: bool = False, durability: str = ""
    ) -> list[members.RowAnswer]:
        """What became of lines that go in one request; see ``batches.batches`` for its size."""
        return self._client.send_rows(self.calls, lines, delete=delete, durability=durability)

    def iterate(
        self, prefix: str = "", *, page_size: int = 500
    ) -> Generator[answers.MemberView, None, None]:
        """All members whose id begins with the prefix, a page at a time, in no certain order."""
        cursor = ""
        while True:
            page = self.page(cursor, prefix=prefix, limit=page_size)
            for member in page.items:
                yield member
            if not (cursor := page.next):
                return

    def page(
        self, cursor: str = "", *, limit: int = 100, prefix: str = ""
    ) -> members.ItemPage[answers.MemberView]:
        """A page of the members, which may be empty and not the last; '' begins."""
        return self._send(self.calls.page(cursor, limit=limit, prefix=prefix))

    def due(
        self, since: str, until: str, cursor: str = "", *, limit: int = 100
    ) -> members.ItemPage[answers.MemberView]:
        """A page of the members that are due from ``since`` until before ``until``."""
        return self._send(self.calls.due(cursor, since=since, until=until, limit=limit))

    def export(self, cursor: str = "", *, limit: int = 1000) -> members.ItemPage[msgspec.Raw]:
        """A page of whole members as JSON; ``members.row_of`` makes a row for ``upsert`` of one."""
        return self._send(self.calls.export(cursor, limit=limit))

    def unacknowledged(self, *, limit: int = 100) -> tuple[answers.UnfinishedSlot, ...]:
        """Slots that a worker has claimed, or that wait for their next attempt."""
        return (self._send(self.calls.unacknowledged(limit=limit))).items

    def dead_letters(
        self, cursor: str = "", *, limit: int = 100
    ) -> members.ItemPage[answers.LetterView]:
        """A page of the slots that were given up, newest first."""
        return self._send(self.calls.dead_letters(cursor, limit=limit))

    def replay(self, letters: Sequence[str]) -> tuple[str, ...]:
        """Up to 100 dead letters fire once more, each under the id that its event had.

        Gives those that were not there.
        """
        return (self._send(self.calls.replay(letters))).missing

    def _send(self, call: calls.ApiCall[AnswerT]) -> AnswerT:
        return self._client.send(call, retries=self._retries)
