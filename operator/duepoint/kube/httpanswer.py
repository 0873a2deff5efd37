"""The bytes of one HTTP/1.1 answer, as they come in -> the answer.

httptools parses: bodies with a length, in chunks, or up to the end of the connection. Interim
answers are passed over. Whatever is no answer raises NotHttp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import httptools

#: Longest head, interim answers included.
HEAD_LIMIT_BYTES = 64 * 1024
_FRAMED_BY = ("content-length", "transfer-encoding")


class NotHttp(OSError):
    """What came is no answer to a request."""


class TooLarge(OSError):
    """The answer has more bytes than whoever asked wants to hold."""


class Answer(NamedTuple):
    """A whole answer; names of headers are in lower case, of one sent twice the last counts.

    ``keeps``: the connection may be used again.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    keeps: bool


class Reading:
    """Of one answer. Feed it what comes, until it gives the answer.

    Args:
        most_bytes: TooLarge is raised where head and body have more; None reads on.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self._most_bytes = most_bytes
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._status = 0
        self._fed_bytes = 0
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._is_body = False
        self._whole: Answer | None = None

    def feed(self, data: bytes) -> Answer | None:
        """The answer, once it is whole.

        Raises NotHttp, also where more comes after that, and TooLarge.
        """
        if self._parser is None:
            raise NotHttp("more came than an answer")
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._whole is None:
                raise NotHttp(f"no answer to a request: {error}: {data[:100]!r}") from error
            self._say_no_more()
        self._fed_bytes += len(data)
        if self._most_bytes is not None and self._fed_bytes > self._most_bytes:
            raise TooLarge(f"an answer of more than {self._most_bytes} bytes")
        if not self._is_body and self._whole is None and self._fed_bytes > HEAD_LIMIT_BYTES:
            raise NotHttp(f"a head of more than {HEAD_LIMIT_BYTES} bytes")
        return self._whole and self._given(self._whole)

    def end(self) -> Answer | None:
        """The connection has ended: the answer, where its body lasts until then."""
        if not self._is_body or any(name in self._headers for name in _FRAMED_BY):
            return None
        return Answer(self._status, self._headers, b"".join(self._parts), keeps=False)

    def _given(self, whole: Answer) -> Answer:
        """Nothing of it stays here: parser and reading hold each other, and with them megabytes.

        Only a collection of garbage, which is rare in a process of many objects, would end that.
        """
        self._parser = self._whole = None
        self._parts = []
        return whole

    def _say_no_more(self) -> None:
        """More came than was asked for: nobody knows what follows."""
        if self._whole is not None:
            self._whole = self._whole._replace(keeps=False)

    # -- what the parser calls -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Of an interim answer, of the answer, or of something behind it."""
        self._say_no_more()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of an answer, or of the trailer behind its chunks."""
        if not self._is_body and self._whole is None:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if self._whole is None and self._parser is not None:
            self._status = self._parser.get_status_code()
            self._is_body = self._status >= 200

    def on_body(self, part: bytes) -> None:
        """A piece of the body."""
        if self._is_body:
            self._parts.append(part)

    def on_message_complete(self) -> None:
        """The answer is whole, or an interim one is over."""
        if not self._is_body:
            self._headers.clear()
            return
        self._is_body = False
        keeps = self._parser is not None and self._parser.should_keep_alive()
        self._whole = Answer(self._status, self._headers, b"".join(self._parts), keeps)
