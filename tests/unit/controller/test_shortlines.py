"""Changes of a watch, read many at a time from its bytes."""

from __future__ import annotations

import asyncio
import contextvars
import json

import kopf._cogs.clients.api as kopf_api
import pytest

from duepoint.controller.watching import shortlines

SPEC = {"schedule": "* * * * *", "payload": {"big": 2**70, "text": "<&>\u2028"}}


class Content:
    """As much of aiohttp's StreamReader as is used."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def iter_chunked(self, _size):
        for chunk in self._chunks:
            yield chunk


def a_line(kind: str, number: int, **fields) -> bytes:
    metadata = {"name": f"s{number}", "namespace": "team", "uid": f"u{number}", "generation": 1,
                "resourceVersion": str(number), "managedFields": [{"manager": "x"}],
                "creationTimestamp": "2026-01-01T00:00:00Z"}  # fmt: skip
    body = {"metadata": metadata, "spec": SPEC, **fields}
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


async def _read(content: Content, *, is_short: bool = True, plural_is_ours: bool = True):
    """Sightings by the calls that told them, and the lines that kopf gets."""
    taken, found = [], []

    async def read():
        reading = shortlines.Reading(taken.append, is_short=is_short)
        shortlines.use(reading if plural_is_ours else None)
        async for line in kopf_api.iter_jsonlines(content):
            event = json.loads(line)
            found.append((event["type"], event["object"]["metadata"].get("resourceVersion")))
            reading.is_short |= event["type"] == "BOOKMARK"

    await asyncio.create_task(read(), context=contextvars.copy_context())
    return taken, found


async def test_what_is_there_together_is_handed_over_together():
    text = b"".join(a_line("ADDED", number) for number in range(5))
    cut = len(text) // 2
    taken, found = await _read(Content(text[:cut], text[cut:]))
    assert [[one.name for one in together] for together in taken] == [
        ["s0", "s1"],
        ["s2", "s3", "s4"],
    ]
    assert found == [("BOOKMARK", "1"), ("BOOKMARK", "4")]


async def test_a_sighting_has_what_a_list_would_show():
    (first,), gone = (
        (await _read(Content(a_line("MODIFIED", 7, status={"a": 1}))))[0],
        (await _read(Content(a_line("DELETED", 7))))[0][0][0],
    )
    (seen,) = first
    assert (seen.namespace, seen.name, seen.uid, seen.generation) == ("team", "s7", "u7", 1)
    assert seen.created_us > 0
    assert json.loads(seen.spec) == SPEC
    assert json.loads(seen.status) == {"a": 1}
    assert not seen.deleted
    assert gone.deleted
    assert gone.status == b"{}"


async def test_an_object_on_its_way_out_is_deleted():
    line = json.loads(a_line("MODIFIED", 1))
    line["object"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    taken, _ = await _read(Content(json.dumps(line).encode() + b"\n"))
    assert taken[0][0].deleted


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n',
        b'{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":7,"resourceVersion":"9"}}}\n',
    ],
    ids=["bookmark", "error", "unreadable"],
)
async def test_everything_else_is_kopfs_in_its_place(line):
    taken, found = await _read(Content(a_line("ADDED", 1) + line + a_line("ADDED", 2)))
    assert [one.name for together in taken for one in together] == ["s1", "s2"]
    event = json.loads(line)
    assert found == [
        ("BOOKMARK", "1"),
        (event["type"], event["object"]["metadata"].get("resourceVersion")),
        ("BOOKMARK", "2"),
    ]


@pytest.mark.parametrize("levels", [101, 900, 1_500, 5_000, 9_990])
async def test_an_object_nested_too_deeply_is_kopfs_and_hides_no_other(levels):
    deep = a_line("ADDED", 1).replace(b'"* * * * *"', b"[" * levels + b"]" * levels)
    read = [shortlines._read(line) for line in (deep, a_line("ADDED", 2))]
    assert read[0] is None
    assert read[1] is not None


async def test_kopf_gets_every_line_until_its_list_has_ended():
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}\n'
    content = Content(a_line("ADDED", 1) + bookmark + a_line("ADDED", 6) + a_line("ADDED", 7))
    taken, found = await _read(content, is_short=False)
    assert found == [("ADDED", "1"), ("BOOKMARK", "5"), ("BOOKMARK", "7")]
    assert [one.name for together in taken for one in together] == ["s6", "s7"]


async def test_other_watches_are_read_as_kopf_does():
    taken, found = await _read(Content(a_line("ADDED", 1)), plural_is_ours=False)
    assert (taken, found) == ([], [("ADDED", "1")])


@pytest.mark.parametrize(("count", "rests"), [(100, 1), (1, 0)], ids=["many", "one"])
async def test_after_many_nobody_looks_for_a_moment(monkeypatch, count, rests):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(shortlines.asyncio, "sleep", sleep)
    taken, _ = await _read(Content(b"".join(a_line("ADDED", number) for number in range(count))))
    assert sum(len(together) for together in taken) == count
    assert slept == [shortlines._REST_SECONDS] * rests
