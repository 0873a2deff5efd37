"""Streams that are cut, and a process that ends while it writes."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import socket
import threading
import time

AT = "2090-12-24T18:00:00Z"
JSON = "Content-Type: application/json"
CHUNKED = ("Transfer-Encoding: chunked", "Content-Type: application/x-ndjson")


def row(number):
    return json.dumps({"id": f"m{number}", "at": AT, "payload": number}).encode() + b"\n"


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def answered(said):
    """The lines of a stream of answers that came whole, of an answer that may be cut."""
    head, _, rest = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    body = b""
    while (size := rest.partition(b"\r\n"))[1]:
        length = int(size[0], 16)
        if not length or len(size[2]) < length:
            break
        body, rest = body + size[2][:length], size[2][length + 2 :]
    return [json.loads(line) for line in body.split(b"\n")[:-1]]


def connected(scene):
    return socket.create_connection(("127.0.0.1", scene.port), timeout=60)


def read_all(connection):
    said = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        while piece := connection.recv(65536):
            said += piece
    return said


# -- a stream that is cut ------------------------------------------------------------------------


async def test_what_was_answered_before_a_cut_is_stored_and_little_else(scene):
    """The client is gone in the middle: of what it did not hear, a batch or two may be stored."""
    count = 4_000

    def send_and_go():
        with connected(scene) as connection:
            head = scene.head("POST", f"{scene.base}/schedules:bulkUpsert", *CHUNKED)
            connection.sendall(head)
            for first in range(0, count, 100):
                rows = b"".join(row(number) for number in range(first, first + 100))
                connection.sendall(chunk(rows))
            connection.sendall(chunk(row(count))[:-20])
            said = b""
            # A busy process answers many rows in one chunk, which counts when it is there whole.
            while b"\r\n\r\n" not in said or len(answered(said)) <= 400:
                said += connection.recv(4096)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return said  # closed with a reset

    lines = answered(await asyncio.to_thread(send_and_go))
    heard = {line["id"] for line in lines}
    assert len(heard) == len(lines) > 400
    stored, before = set(await scene.members()), None
    while stored != before:  # a slow process still has a batch under way
        await asyncio.sleep(2)
        stored, before = set(await scene.members()), stored
    assert heard <= stored
    assert stored <= {f"m{number}" for number in range(count)}
    assert f"m{count}" not in stored
    assert (await scene.ask("GET", scene.base)).json["members"] == len(stored)


# -- a process that ends -------------------------------------------------------------------------


class Writer(threading.Thread):
    """Changes members of its own, one after the other, and notes what was acknowledged.

    ``heard``: by id the last acknowledged payload, None after a deletion. ``asked``: what was
    asked for after that, without an answer.
    """

    def __init__(self, scene, name, stop):
        super().__init__()
        self.scene, self.name, self.stop = scene, name, stop
        self.heard, self.asked = {}, {}
        self.count = 0
        self.trouble = None

    def run(self):
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.trouble = error

    def _write(self):
        for number in itertools.count():
            if self.stop.is_set():
                return
            ids = [f"{self.name}-{(number * 7 + step) % 40}" for step in range(5)]
            kind = number % 4
            try:
                if kind == 3:
                    self._remove(ids[0])
                elif kind == 2:
                    self._stream(ids, number)
                else:
                    self._put(ids[0], number)
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)  # it is down

    def _put(self, id_, number):
        self._asks([id_], number)
        body = {"at": AT, "payload": number}
        answer = self.scene.ask_now("PUT", self.scene.member(id_), body)
        if answer.status in (200, 201):
            self._hears(id_, number)
        else:
            assert answer.status == 503, answer

    def _remove(self, id_):
        self._asks([id_], None)
        answer = self.scene.ask_now("DELETE", self.scene.member(id_))
        if answer.status in (204, 404):
            self._hears(id_, None)
        else:
            assert answer.status == 503, answer

    def _stream(self, ids, number):
        self._asks(ids, number)
        rows = [{"id": id_, "at": AT, "payload": number} for id_ in ids]
        body = b"".join(json.dumps(each).encode() + b"\n" for each in rows)
        path = f"{self.scene.base}/schedules:bulkUpsert"
        headers = {"Content-Type": "application/x-ndjson"}
        answer = self.scene.ask_now("POST", path, body, headers=headers)
        if answer.status == 200:
            for line in answer.lines:
                if "outcome" in line:
                    self._hears(line["id"], number)

    def _asks(self, ids, number):
        for id_ in ids:
            self.asked.setdefault(id_, []).append(number)

    def _hears(self, id_, number):
        self.heard[id_], self.asked[id_] = number, []
        self.count += 1


async def test_no_acknowledged_change_is_lost_when_the_process_is_killed(scene):
    stop = threading.Event()
    writers = [Writer(scene, f"w{number}", stop) for number in range(4)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(3):
            before = sum(writer.count for writer in writers)
            while sum(writer.count for writer in writers) < before + 40:  # noqa: ASYNC110 - threads
                await asyncio.sleep(0.05)
            await scene.process.kill()
            scene.process.start()
            await scene.process.wait_until_ready()
    finally:
        stop.set()
        for writer in writers:
            await asyncio.to_thread(writer.join)
    assert [writer.trouble for writer in writers] == [None] * len(writers)
    stored = {id_: json.loads(one.payload) for id_, one in (await scene.members()).items()}
    for writer in writers:
        for id_ in writer.asked:
            may_be = {writer.heard.get(id_), *writer.asked[id_]}
            assert stored.pop(id_, None) in may_be, id_
    assert stored == {}


async def test_on_sigterm_what_is_under_way_is_answered_and_nothing_more_is_taken(scene):
    body = json.dumps({"at": AT}).encode()
    head = scene.head("PUT", scene.member("a"), JSON, f"Content-Length: {len(body)}")
    stream = scene.head("POST", f"{scene.base}/schedules:bulkUpsert", *CHUNKED)
    idle, single, rows = connected(scene), connected(scene), connected(scene)
    with idle, single, rows:
        idle.sendall(scene.head("GET", scene.base))
        assert idle.recv(65536).startswith(b"HTTP/1.1 200 ")
        single.sendall(head + body[:5])
        rows.sendall(stream + chunk(row(0)))
        assert b'"m0"' in await asyncio.to_thread(rows.recv, 65536) + await asyncio.to_thread(
            rows.recv, 65536
        )
        draining = asyncio.create_task(scene.process.drain())
        assert await asyncio.to_thread(read_all, idle) == b""  # an idle connection is closed
        single.sendall(body[5:])
        rows.sendall(chunk(row(1)) + b"0\r\n\r\n")
        said = await asyncio.to_thread(read_all, single)
        assert said.startswith(b"HTTP/1.1 201 ")
        assert b"Connection: close" in said
        said = await asyncio.to_thread(read_all, rows)
        assert b'"m1"' in said
        assert said.endswith(b"0\r\n\r\n")
        assert await draining == 0
    with contextlib.suppress(OSError):
        connected(scene).close()
        raise AssertionError("a process that has ended still listens")
    assert set(await scene.members()) == {"a", "m0", "m1"}
