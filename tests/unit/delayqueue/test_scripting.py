from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis.exceptions as redis_errors

import duepoint
from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.wire import scripting

ERRORS = {
    "uninitialised": (redis_errors.ResponseError("UNINIT no index"), queue_errors.Uninitialised),
    "another layout": (redis_errors.ResponseError("WRONGLAYOUT x"), queue_errors.LayoutChanged),
    "fenced": (redis_errors.ResponseError("FENCED term 1"), queue_errors.Fenced),
    "wrong type": (redis_errors.ResponseError("WRONGTYPE Operation"), queue_errors.Damaged),
    "full": (redis_errors.OutOfMemoryError("command not allowed"), queue_errors.WriteRefused),
    "full, in a script": (redis_errors.ResponseError("OOM command"), queue_errors.WriteRefused),
    "busy": (redis_errors.ResponseError("BUSY Redis is busy"), errors.QueueUnavailable),
    "loading": (redis_errors.BusyLoadingError("loading"), errors.QueueUnavailable),
    "read-only": (redis_errors.ReadOnlyError("You can't write"), errors.QueueUnavailable),
    "disk": (redis_errors.ResponseError("MISCONF Redis is"), errors.QueueUnavailable),
    "slot moving": (redis_errors.TryAgainError("Multiple keys"), queue_errors.ShardMoving),
    "cluster down": (redis_errors.ClusterDownError("CLUSTERDOWN x"), errors.QueueUnavailable),
    "master down": (redis_errors.ResponseError("MASTERDOWN Link"), errors.QueueUnavailable),
    "no password": (redis_errors.AuthenticationError("NOAUTH"), errors.QueueUnavailable),
    "wrong password": (redis_errors.AuthenticationError("invalid"), errors.QueueUnavailable),
    "no right": (redis_errors.NoPermissionError("no permissions"), queue_errors.WriteRefused),
    "too many clients": (redis_errors.MaxConnectionsError("max"), errors.QueueUnavailable),
    "refused": (redis_errors.ConnectionError("refused"), errors.QueueUnavailable),
    "timed out": (redis_errors.TimeoutError("slow"), errors.QueueUnavailable),
    "time limit": (TimeoutError(), errors.QueueUnavailable),
    "reset": (ConnectionResetError("reset"), errors.QueueUnavailable),
    "protected mode": (redis_errors.ResponseError("DENIED Redis is"), errors.QueueUnavailable),
    "a code of tomorrow": (redis_errors.ResponseError("HEADLESS x"), errors.QueueUnavailable),
    "a renamed command": (
        redis_errors.ResponseError("unknown command 'EVALSHA'", status_code="ERR"),
        errors.QueueUnavailable,
    ),
    "another number of databases": (
        redis_errors.ResponseError("DB index is out of range", status_code="ERR"),
        errors.Bug,
    ),
    "our mistake": (redis_errors.ResponseError("ERR wrong number of arguments"), errors.Bug),
}


@pytest.mark.parametrize("case", ERRORS, ids=list(ERRORS))
def test_an_error_is_translated_by_what_to_do_next(case):
    error, kind = ERRORS[case]
    translated = scripting.translated(error, "claim")
    assert type(translated) is kind
    assert str(translated).startswith("could not claim: ")


def test_a_refusal_is_named_by_its_code_though_the_library_cuts_it_off():
    error = redis_errors.AuthenticationError("Authentication required.", status_code="NOAUTH")
    assert "NOAUTH Authentication required." in str(scripting.translated(error, "claim"))


def test_every_script_fits_its_neighbours_limits():
    sizes = {name: len(scripting.source(name)) for name in scripting.names()}
    assert sizes
    assert {name for name, size in sizes.items() if size >= 44_000} == set()


def test_every_script_that_is_called_is_there_and_every_one_is_called():
    folder = Path(duepoint.__file__).parent
    text = "".join(each.read_text() for each in folder.rglob("*.py"))
    called = set(re.findall(r"""(?:index\.call|ScriptCall)\(\s*"(\w+)\"""", text))
    assert called <= set(scripting.names())
    assert [name for name in scripting.names() if f'"{name}"' not in text] == []
