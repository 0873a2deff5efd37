"""Streams of rows into a set that takes few changes a second: they wait, and say so row by row."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from duepoint.schedules.sets import setspec
from tests.support import apiscene

AT = "2090-12-24T18:00:00Z"
PER_SECOND = 2


@pytest.fixture
async def scene(control_plane, kube_namespace, own_server, tmp_path):
    limits = setspec.SetLimits(changes_per_second=PER_SECOND)
    async with apiscene.open_scene(
        control_plane, kube_namespace, own_server, tmp_path, limits=limits
    ) as opened:
        yield opened


class Sent:
    """A stream that was sent whole; its answers are read as they come."""

    def __init__(self, scene: apiscene.Scene, verb: str, rows: list[bytes]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", scene.port, timeout=60)
        headers = {
            "Authorization": f"Bearer {scene.tokens['editor']}",
            "Content-Type": "application/x-ndjson",
        }
        path = f"{scene.base}/schedules:{verb}"
        self._connection.request("POST", path, b"".join(row + b"\n" for row in rows), headers)
        self._answer = self._connection.getresponse()

    def lines(self) -> Iterator[dict]:
        return map(json.loads, self._answer)

    def go(self) -> None:
        """As a client that was killed."""
        self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._answer.close()
        self._connection.close()


def row(number: int, **more: object) -> bytes:
    return json.dumps({"id": f"m{number:02}", "at": AT, **more}).encode()


async def test_a_slow_set_answers_the_first_rows_long_before_the_last_are_stored(scene):
    """In order, and with the numbers of the lines that are refused in between."""
    rows = [row(number) for number in range(8)]
    rows[:0] = [b"{"]
    rows[4:4] = [b'{"id": "", "at": 1}', b"[]"]
    rows.append(b"no")
    sent = await asyncio.to_thread(Sent, scene, "bulkUpsert", rows)
    lines = sent.lines()
    first = [await asyncio.to_thread(next, lines) for _ in range(3)]
    assert len(await scene.members()) < 8
    answers = first + await asyncio.to_thread(list, lines)
    assert [one["line"] for one in answers if "error" in one] == [1, 5, 6, 12]
    assert [one["id"] for one in answers if "error" not in one] == [f"m{n:02}" for n in range(8)]
    assert [place for place, one in enumerate(answers, 1) if "error" in one] == [1, 5, 6, 12]
    removals = [json.dumps({"id": f"m{number:02}"}).encode() for number in range(3)]
    removed = await asyncio.to_thread(lambda: list(Sent(scene, "bulkDelete", removals).lines()))
    assert [one["outcome"] for one in removed] == ["Removed"] * 3
    assert sorted(await scene.members()) == [f"m{number:02}" for number in range(3, 8)]
