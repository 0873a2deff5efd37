"""A connection over which requests are asked and answered in turn, and the connector that makes it.

The pool, the dialling and the parser are aiohttp's. What this adds to its protocol: the head of an
answer is handed to the parser by itself, because what comes behind it in the same packet may be no
HTTP at all, and the parser would forget the head with it; and it is known whether a connection has
served before and whether anything was heard since, which decides whether a request that was cut
may simply be sent once more.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from typing import Any, cast

import aiohttp
import yarl
from aiohttp import client_proto, http_exceptions, streams

#: Most that is read of an answer's body; the receiver is held up at about as much.
BODY_LIMIT_BYTES = 64 * 1024
#: Answers before the answer (RFC 9110, 15.2); whoever sends more of them only keeps us busy.
MOST_INTERIM = 32

_SWITCHING_PROTOCOLS = 101
_VERSION, _END_OF_HEAD = b"HTTP/", b"\r\n\r\n"

Head = tuple[int, Mapping[str, str], streams.StreamReader]
"""Status, headers, and the body to come."""


class NotHttp(aiohttp.ClientError):
    """What came is no answer to a request."""


class Line(aiohttp.ClientRequest):
    """Where to: which host and port, whether and how with TLS, and whose name is verified.

    It is what the connector wants to see of a request, and nothing more of one is made.
    """

    proxy = proxy_auth = proxy_headers = None

    def __init__(  # the parent's would make a request
        self, url: yarl.URL, tls: ssl.SSLContext | None = None, server_name: str | None = None
    ) -> None:
        self.url = url
        self._ssl = tls or True
        self.server_hostname = server_name


class Conversation(client_proto.ResponseHandler):
    """One connection's side of the talk."""

    #: Requests sent over it, and whether something came since the last of them.
    asked = 0
    was_heard = False

    def ask(self, content: bytes) -> None:
        """Send a request; raises ServerDisconnectedError where the connection is gone."""
        if self.transport is None:
            raise aiohttp.ServerDisconnectedError
        self.set_response_params(
            read_until_eof=True, auto_decompress=False, read_bufsize=BODY_LIMIT_BYTES
        )
        self.asked += 1
        self.was_heard = False
        self.transport.write(content)

    async def wait_for_head(self) -> Head:
        """The first answer that is one; raises NotHttp, aiohttp.ClientError, OSError."""
        try:
            for _ in range(MOST_INTERIM + 1):
                message, content = await self.read()
                if not 100 <= message.code < 200 or message.code == _SWITCHING_PROTOCOLS:
                    return message.code, message.headers, content
        except http_exceptions.HttpProcessingError as error:
            raise NotHttp from error
        raise NotHttp

    def expire(self) -> None:
        """The time is over: whoever waits for the head gets a TimeoutError."""
        self.set_exception(TimeoutError())

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Nothing more will come, neither a head nor the rest of a body."""
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(aiohttp.ClientPayloadError())
        super().set_exception(exc, *cause)

    def data_received(self, data: bytes) -> None:
        """A head, and then the rest."""
        self.was_heard = True
        while data.startswith(_VERSION) and self.exception() is None:
            end = data.find(_END_OF_HEAD) + len(_END_OF_HEAD)
            if end < len(_END_OF_HEAD) or end == len(data):
                break
            super().data_received(data[:end])
            data = data[end:]
        if self.exception() is None:
            super().data_received(data)


class Connector(aiohttp.TCPConnector):
    """Makes conversations; needs a running loop."""

    def __init__(self, **wanted: Any) -> None:  # noqa: ANN401 - as the parent takes them
        super().__init__(**wanted)
        factory = functools.partial(Conversation, loop=self._loop)
        self._factory = cast("functools.partial[client_proto.ResponseHandler]", factory)
