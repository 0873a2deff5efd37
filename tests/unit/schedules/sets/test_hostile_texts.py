"""Texts of rows that are made to take long: each is read in time that is linear in its bytes.

A search that begins again at each quote within a string took a minute for 64 KiB, in the event loop
of the API and of the leader; for these it would take minutes.
"""

from __future__ import annotations

import json

import pytest

from duepoint.controller.schedulesets import setreconcile
from duepoint.schedules import jsontext
from duepoint.schedules.sets import members, setspec

LONG = 100_000
QUOTES = b'\\"' * LONG


@pytest.mark.parametrize(
    "text",
    [
        b'{"id": "' + QUOTES + b'"}',
        b'{"id": "' + QUOTES,
        b'{"id": "' + QUOTES + b"\\",
        b'{"id": "' + b"\\\\" * LONG + b'"}',
        b'{"id": "a"' + b" " * LONG + b"}",
        b'{"id": ' + b'"a" ,' * LONG + b"}",
        b'{"id" ' + b": " * LONG + b"}",
        b"[] " * 101 + b'"' + QUOTES,
        b"[] " * 101 + b'"' + QUOTES + b'"',
    ],
    ids=lambda text: text[:12].decode() + "..." + text[-6:].decode(),
)
def test_what_is_wrong_with_a_hostile_text_is_soon_found(text):
    assert jsontext.problem(text) is None
    assert jsontext.too_deep(text) == ""
    jsontext.clipped(text)


@pytest.mark.parametrize(
    "text",
    [
        r'{"a": "\"", "b": 1, "a": 2}',
        r'{"x": "\\", "a": 1, "a": 2}',
        r'{"x": "a\": 1, ", "a": 1, "a" : 2}',
        '{"a": 1, "b": {"c": [{"a" \n:1, "a":2}]}}',
        r'{"a": 1, "\u0061": 2}',
    ],
)
def test_equal_keys_are_found_behind_all_kinds_of_strings(text):
    assert jsontext.problem(text.encode()) == "has the key 'a' twice; write it once"


@pytest.mark.parametrize(
    "value",
    [
        {"a": 'b": 1, "a": 2', "c": "\\"},
        {"a": '"a": 1', "b": ['"a":', "a", '\\"a\\":']},
        {"a": {"a": {"a": []}}},
    ],
)
def test_what_only_looks_like_a_key_is_none(value):
    assert jsontext.problem(json.dumps(value).encode()) is None


def test_a_row_that_is_too_long_is_refused_unread_and_the_others_are_read():
    found = setreconcile.ReadRows()
    texts = [
        ("rows: line 1", b'{"id": "a", "schedule": "@daily"}'),
        ("rows: line 2", b'{"id": "b", "schedule": "@daily"' + b" " * LONG + b"}"),
    ]
    setreconcile.read_some(found, members.RowReader(setspec.SetSettings()), texts, now_us=0)
    assert found.rows.keys() == {"a"}
    assert found.wrong == ["rows: line 2: has 100033 bytes; write at most 65536"]
