"""Answers of a server, whole or in pieces of any size, and what is none."""

from __future__ import annotations

import weakref

import pytest

from duepoint.net import httpclient

CHUNKED = (
    b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n"
    b'4;ext=1\r\n{"a"\r\nA\r\n:"\r\n\r\nbcd"\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n'
)
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nRetry-After: 7\r\n\r\nhello"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"


def read(content: bytes, piece: int) -> httpclient.Response | None:
    reading = httpclient.ResponseParser()
    found = None
    for start in range(0, len(content), piece):
        assert found is None
        found = reading.feed(content[start : start + piece])
    return found


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize(
    ("content", "status", "body"),
    [
        (CHUNKED, 201, b'{"a":"\r\n\r\nbcd"}'),
        (SIZED, 200, b"hello"),
        (INTERIM + INTERIM + SIZED, 200, b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 500\r\nContent-Length: 0\r\n\r\n", 500, b""),
    ],
    ids=["in chunks", "with a length", "after hints", "no content", "without a reason"],
)
def test_an_answer_may_come_in_any_pieces(content: bytes, status: int, body: bytes, piece: int):
    found = read(content, piece)
    assert found is not None
    assert (found.status, found.body, found.keep_alive) == (status, body, True)


def test_a_body_that_was_compressed_unasked_is_no_answer():
    reading = httpclient.ResponseParser()
    assert reading.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc") is None
    assert reading.end() is None


@pytest.mark.parametrize("content", [SIZED, CHUNKED], ids=["with a length", "in chunks"])
def test_an_answer_that_was_cut_is_none(content: bytes):
    for end in range(len(content)):
        reading = httpclient.ResponseParser()
        assert reading.feed(content[:end]) is None
        assert reading.end() is None


@pytest.mark.parametrize(
    "content",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        2_000 * INTERIM,
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * httpclient.HEAD_LIMIT_BYTES,
    ],
    ids=[
        "another protocol", "HTTP/2", "no status", "an upgrade", "hints without end", "no header",
        "a folded header", "a negative length", "a negative chunk", "a prefixed size",
        "a chunk too long", "a head without end",
    ],
)  # fmt: skip
def test_what_is_no_answer_is_refused(content: bytes):
    with pytest.raises(httpclient.NotHttp):
        read(content, 1000)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
#: What a webhook's answer may have.
SHORT = {"most_bytes": 64 * 1024}


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"2\r\nok\r\n0\r\n", b"a: b\r\n"),
        (b"2\r\nok\r\n1;", b"x"),
        (b"2\r\nok\r\n", b"1;" + b"x" * 1_000 + b"\r\n\n\r\n"),
    ],
    ids=["trailers", "an extension", "extensions"],
)
def test_what_frames_a_body_does_not_go_on_for_ever(begin: bytes, piece: bytes):
    """It counts towards no length of the body, and would keep a worker busy."""
    pieces = [piece * (16 * 1024 // len(piece))] * 100
    optional = httpclient.ResponseParser(httpclient.BodyRule(**SHORT, is_optional=True))
    assert optional.feed(CHUNKED + begin) is None
    response = next(filter(None, map(optional.feed, pieces)))
    assert (response.body[:2], response.keep_alive) == (b"ok", False)

    wanted = httpclient.ResponseParser(httpclient.BodyRule(**SHORT))
    wanted.feed(CHUNKED + begin)
    with pytest.raises(httpclient.TooLarge):
        list(map(wanted.feed, pieces))


@pytest.mark.parametrize("content", [b"", SIZED], ids=["none", "whole"])
def test_a_parser_is_gone_with_its_last_reference(content: bytes):
    reading = httpclient.ResponseParser()
    if content:
        reading.feed(content)
    left = weakref.ref(reading)
    del reading
    assert left() is None  # without a garbage collection
