"""What the HTTP API refuses: every case is sent to the real process, and nothing is stored."""

from __future__ import annotations

import asyncio
import json
import time

from duepoint.schedules.sets import setspec
from tests.support import apiscene

AT = b'{"at":"2090-12-24T18:00:00Z"'
JSON = {"Content-Type": "application/json"}


def with_payload(text: bytes) -> bytes:
    return AT + b',"payload":' + text + b"}"


BODIES = {
    "nothing": (b"", "BadRequest"),
    "no JSON": (b"at: tomorrow", "BadRequest"),
    "cut JSON": (AT, "BadRequest"),
    "a list": (b"[]", "InvalidField"),
    "a number": (b"7", "InvalidField"),
    "null": (b"null", "InvalidField"),
    "byte order mark": (b"\xef\xbb\xbf" + AT + b"}", "BadRequest"),
    "UTF-16": ((AT + b"}").decode().encode("utf-16"), "BadRequest"),
    "no UTF-8": (with_payload(b'"\xff"'), "BadRequest"),
    "NaN": (with_payload(b"NaN"), "BadRequest"),
    "Infinity": (with_payload(b"-Infinity"), "BadRequest"),
    "10^400": (with_payload(b"1e400"), "BadRequest"),
    "400 digits": (with_payload(b"1" * 400), "BadRequest"),
    "5000 digits": (with_payload(b"1" * 5000), "BadRequest"),
    "equal keys": (AT + b',"at":"2091-12-24T18:00:00Z"}', "BadRequest"),
    "equal keys below": (with_payload(b'{"a":1,"b":{"a":1,"a":2}}'), "BadRequest"),
    "equal keys by an escape": (with_payload(b'{"a":1,"\\u0061":2}'), "BadRequest"),
    "3,000 levels": (with_payload(b"[" * 3_000 + b"]" * 3_000), "BadRequest"),
    "1,000 levels of objects": (with_payload(b'{"a":' * 1_000), "BadRequest"),
    "40,000 levels of objects": (with_payload(b'{"a":' * 40_000), "PayloadTooLarge"),
    "a million levels": (with_payload(b"[" * 1_000_000 + b"]" * 1_000_000), "PayloadTooLarge"),
    "half a surrogate": (with_payload(b'"\\ud800"'), "BadRequest"),
    "unknown field": (AT + b',"prioritty":1}', "InvalidField"),
    "unknown field below": (AT + b',"dst":{"gapp":"Skip"}}', "InvalidField"),
    "a row's condition": (AT + b',"ifMatch":"00000000"}', "InvalidField"),
    "wrong type": (AT + b',"suspend":"yes"}', "InvalidField"),
    "a float": (AT + b',"catchUpLimit":1.5}', "InvalidField"),
    "too much catch-up": (AT + b',"catchUpLimit":1000000}', "InvalidField"),
    "negative deadline": (AT + b',"startingDeadlineSeconds":-1}', "InvalidField"),
    "2^70 as deadline": (
        AT + b',"startingDeadlineSeconds":1180591620717411303424}',
        "InvalidField",
    ),
    "unknown policy": (AT + b',"catchUpPolicy":"Some"}', "InvalidField"),
    "another id": (AT + b',"id":"other"}', "InvalidField"),
    "no time at all": (b'{"payload":1}', "InvalidField"),
    "two times": (AT + b',"schedule":"@daily"}', "InvalidField"),
    "no offset": (b'{"at":"2090-12-24T18:00:00"}', "InvalidField"),
    "year 9999": (b'{"at":"9999-12-24T18:00:00Z"}', "InvalidField"),
    "unix seconds": (b'{"at":1800000000}', "InvalidField"),
    "endless delay": (b'{"delay":"999999999999h"}', "InvalidField"),
    "negative delay": (b'{"delay":"-5s"}', "InvalidField"),
    "too late": (b'{"at":"2020-01-01T00:00:00Z","startingDeadlineSeconds":60}', "TooLate"),
    "no expression": (b'{"schedule":"61 * * * *"}', "InvalidSchedule"),
    "never": (b'{"schedule":"0 0 30 2 *"}', "InvalidSchedule"),
    "no zone": (b'{"schedule":"@daily","timeZone":"Mars/Phobos"}', "InvalidSchedule"),
    "long expression": (b'{"schedule":"' + b"1," * 500 + b'1 * * * *"}', "InvalidSchedule"),
    "long payload": (with_payload(b'"' + b"x" * 5000 + b'"'), "PayloadTooLarge"),
    "long body": (with_payload(b'"' + b"x" * 300_000 + b'"'), "PayloadTooLarge"),
}

IDS = {
    "two dots": ("%2e%2e", 404),
    "one dot": ("%2e", 404),
    "a slash": ("a%2Fb", 404),
    "a null": ("a%00b", 404),
    "a line break": ("a%0d%0ab", 404),
    "no UTF-8": ("a%ff", 404),
    "a look-alike": ("%D0%B0pple", 400),
    "a space": ("a%20b", 400),
    "a leading dot": (".hidden", 400),
    "129 characters": ("a" * 129, 400),
    "3,000 characters": ("a" * 3_000, 400),
    "10 kB": ("a" * 10_000, 431),
}

PATHS = {
    "dots": "/v1/namespaces/x/schedulesets/../schedules/a",
    "two slashes": "/v1//namespaces/x/schedulesets/y/schedules/a",
    "a name in capitals": "/v1/namespaces/X/schedulesets/y/schedules/a",
    "an empty id": "/v1/namespaces/x/schedulesets/y/schedules/",
    "beyond": "/v1/namespaces/x/schedulesets/y/schedules/a/next/b",
    "another version": "/v2/namespaces/x/schedulesets/y/schedules/a",
    "the root": "/",
}

PARAMETERS = {
    "limit=-1": "InvalidParameter",
    "limit=0": "InvalidParameter",
    "limit=1000000000": "InvalidParameter",
    "limit=1e3": "InvalidParameter",
    "limit=%D9%A1": "InvalidParameter",
    "limit=1&limit=2": "InvalidParameter",
    "limits=5": "InvalidParameter",
    "cursor=abc": "InvalidParameter",
    "cursor=" + "A" * 600: "InvalidParameter",
    "prefix=%2F": "InvalidParameter",
    "prefix=a&dueFrom=2090-01-01T00:00:00Z": "InvalidParameter",
    "dueFrom=yesterday": "InvalidParameter",
    "dueUntil=2090-01-01T00:00:00": "InvalidParameter",
    "a=%FF": "InvalidParameter",
}


async def test_no_bad_body_is_stored(scene):
    for what, (body, code) in BODIES.items():
        answer = await scene.ask("PUT", scene.member("a"), body, headers=JSON)
        assert answer.code == code, (what, answer)
        assert answer.status < 500
        assert len(answer.body) < 700, what
    assert await scene.members() == {}


async def test_no_bad_row_is_stored_and_each_is_answered_in_its_place(scene):
    cases = {what: case for what, case in BODIES.items() if b"\n" not in case[0]}
    skipped = (
        "another id",
        "nothing",
        "a row's condition",
        "long body",
        "40,000 levels of objects",
        "a million levels",
    )
    cases = {what: case for what, case in cases.items() if what not in skipped}
    rows, expected = [], []
    for body, code in cases.values():
        rows.append(b'{"id":"bad",' + body[1:] if body.startswith(b"{") else body)
        expected.append(code)
    rows.append(b'{"id":"good",' + AT[1:] + b"}")
    headers = {"Content-Type": "application/x-ndjson"}
    body = b"\n".join(rows)
    answer = await scene.ask("POST", f"{scene.base}/schedules:bulkUpsert", body, headers=headers)
    assert len(answer.lines) == len(rows)
    for what, line, code in zip(cases, answer.lines, expected, strict=False):
        assert line["error"]["code"] == code or what in ("negative delay", "endless delay"), what
    assert answer.lines[-1]["outcome"] == "Created"
    assert list(await scene.members()) == ["good"]


async def test_ids_and_paths_that_some_proxy_reads_otherwise_lead_nowhere(scene):
    for what, (id_, status) in IDS.items():
        for method in ("PUT", "POST"):
            path = scene.member(id_) + ("/trigger" if method == "POST" else "")
            answer = await scene.ask(method, path, {"at": "2090-12-24T18:00:00Z"}, within=5)
            assert answer.status in (status, 404), (what, method, answer)
    for what, path in PATHS.items():
        answer = await scene.ask("GET", path)
        assert (answer.status, answer.code) == (404, "NotFound"), what
    said = await asyncio.to_thread(scene.raw, scene.head("GET", scene.member("a\0b")))
    assert said.startswith(b"HTTP/1.1 400 ")
    assert await scene.members() == {}


async def test_parameters_are_known_once_and_within_bounds(scene):
    for query, code in PARAMETERS.items():
        answer = await scene.ask("GET", f"{scene.base}/schedules?{query}")
        assert answer.code == code, query
    for path in ("/schedules", "/deadletters"):
        answer = await scene.ask("GET", f"{scene.base}{path}?limit=-1")
        assert answer.code == "InvalidParameter", path


async def test_methods_types_and_codings_that_are_not_taken(scene):
    path = scene.member("a")
    refused = await scene.ask("POST", path, {})
    assert refused.code == "MethodNotAllowed"
    assert refused.headers["allow"] == "DELETE, GET, HEAD, PATCH, PUT"
    for method in ("OPTIONS", "TRACE"):
        assert (await scene.ask(method, path)).status == 405
    for kind in ("text/plain", "application/x-ndjson", "application/json; charset=utf-16"):
        headers = {"Content-Type": kind}
        answer = await scene.ask("PUT", path, AT + b"}", headers=headers)
        assert answer.code == "UnsupportedMediaType", kind
    packed = {**JSON, "Content-Encoding": "gzip"}
    assert (await scene.ask("PUT", path, AT + b"}", headers=packed)).code == "UnsupportedMediaType"
    for key in ("", "a b", "x" * 256):
        answer = await scene.ask("PUT", path, AT + b"}", headers={**JSON, "Idempotency-Key": key})
        assert answer.code == "InvalidParameter", key
    assert await scene.members() == {}


async def test_what_is_no_proper_http_is_answered_once_and_cut(scene):
    path = scene.member("a")
    chunked = "Transfer-Encoding: chunked"
    kind = "Content-Type: application/json"
    body = AT + b"}"
    heads = {
        "both lengths": scene.head("PUT", path, kind, f"Content-Length: {len(body)}", chunked),
        "two lengths": scene.head("PUT", path, kind, "Content-Length: 4", "Content-Length: 29"),
        "a length of words": scene.head("PUT", path, kind, "Content-Length: +29"),
        "another coding": scene.head("PUT", path, kind, "Transfer-Encoding: gzip, chunked"),
        "two codings": scene.head("PUT", path, kind, chunked, chunked),
        "two hosts": scene.head("PUT", path, kind, "Host: y", f"Content-Length: {len(body)}"),
        "two tokens": scene.head("GET", path, "Authorization: Bearer x"),
        "a space before the colon": scene.head("GET", path, "Content-Length : 5"),
        "a folded line": scene.head("GET", path, "X-A: b", " folded"),
        "no host": b"GET / HTTP/1.1\r\n\r\n",
        "HTTP/0.9": b"GET /\r\n\r\n",
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 40,
        "an upgrade": scene.head("GET", path, "Upgrade: websocket", "Connection: Upgrade"),
        "a tunnel": b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    }
    for what, head in heads.items():
        said = await asyncio.to_thread(scene.raw, head + body)
        assert said.count(b"HTTP/1.1 ") == 1, (what, said)
        assert said.split()[1] in (b"400", b"404", b"405"), (what, said)
        assert b"Connection: close" in said, what
    many = scene.head("GET", path, *(f"X-{number}: 1" for number in range(200)))
    assert (await asyncio.to_thread(scene.raw, many)).split()[1] == b"431"
    large = scene.head("GET", path, "X-A: " + "x" * 40_000)
    assert (await asyncio.to_thread(scene.raw, large)).split()[1] == b"431"
    long = scene.head("GET", f"{scene.base}?{'x' * 8192}")
    assert (await asyncio.to_thread(scene.raw, long)).split()[1] == b"431"
    assert await scene.members() == {}


async def test_a_smuggled_request_is_never_carried_out(scene):
    """A front end that goes by one length, and we by the other, would see different requests."""
    hidden = scene.head("DELETE", scene.member("kept"))
    await scene.ask("PUT", scene.member("kept"), {"at": "2090-12-24T18:00:00Z"})
    kind = "Content-Type: application/json"
    chunk = b"0\r\n\r\n" + hidden
    head = scene.head(
        "PUT",
        scene.member("a"),
        kind,
        f"Content-Length: {len(chunk)}",
        "Transfer-Encoding: chunked",
    )
    said = await asyncio.to_thread(scene.raw, head + chunk)
    assert said.count(b"HTTP/1.1 ") == 1
    broken = scene.head("PUT", scene.member("a"), kind, "Transfer-Encoding: chunked")
    said = await asyncio.to_thread(scene.raw, broken + b"5\r\n{}\r\n0\r\n\r\n" + hidden)
    assert said.count(b"HTTP/1.1 ") == 1
    assert list(await scene.members()) == ["kept"]


async def test_clients_that_dawdle_are_cut(scene):
    kind = "Content-Type: application/json"
    kinds = {
        "head": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ",
        "body": scene.head("PUT", scene.member("a"), kind, "Content-Length: 400") + AT,
        "chunks": scene.head("PUT", scene.member("a"), kind, "Transfer-Encoding: chunked")
        + b"1d\r\n" + AT,
        "bulk": scene.head(
            "POST",
            f"{scene.base}/schedules:bulkUpsert",
            "Transfer-Encoding: chunked",
            "Content-Type: application/x-ndjson",
        )
        + b"5\r\n{}\n{}",
    }  # fmt: skip
    began = time.monotonic()
    cut = await asyncio.gather(*(asyncio.to_thread(scene.raw, sent) for sent in kinds.values()))
    assert 8 < time.monotonic() - began < 16
    answers = dict(zip(kinds, cut, strict=True))
    bulk = answers.pop("bulk")
    assert b'"fatal":true' in bulk
    assert b"RequestTimeout" in bulk
    for what, said in answers.items():
        assert said.startswith(b"HTTP/1.1 408 "), what
    assert await scene.members() == {}


async def test_ten_times_the_rate_is_refused_with_the_time_to_wait(
    control_plane, kube_namespace, own_server, tmp_path
):
    limits = setspec.SetLimits(changes_per_second=20)
    async with apiscene.open_scene(
        control_plane, kube_namespace, own_server, tmp_path, limits=limits
    ) as scene:
        asked = [
            scene.ask("PUT", scene.member(f"m{number}"), {"at": "2090-12-24T18:00:00Z"})
            for number in range(200)
        ]
        began = time.monotonic()
        answers = await asyncio.gather(*asked)
        seconds = time.monotonic() - began
        taken = [answer for answer in answers if answer.status == 201]
        refused = [answer for answer in answers if answer.status != 201]
        assert len(taken) <= 20 * (seconds + 2)
        assert refused
        for answer in refused:
            assert answer.code == "TooManyRequests"
            assert 1 <= int(answer.headers["retry-after"]) <= 2
        # the same number of rows in a stream waits instead
        rows = b"".join(
            json.dumps({"id": f"r{number}", "at": "2090-12-24T18:00:00Z"}).encode() + b"\n"
            for number in range(60)
        )
        began = time.monotonic()
        headers = {"Content-Type": "application/x-ndjson"}
        path = f"{scene.base}/schedules:bulkUpsert"
        answer = await scene.ask("POST", path, rows, headers=headers)
        assert [line["outcome"] for line in answer.lines] == ["Created"] * 60
        assert 1 < time.monotonic() - began < 10


async def test_a_full_set_takes_changes_of_members_it_has(
    control_plane, kube_namespace, own_server, tmp_path
):
    limits = setspec.SetLimits(members=3)
    async with apiscene.open_scene(
        control_plane, kube_namespace, own_server, tmp_path, limits=limits
    ) as scene:
        row = {"at": "2090-12-24T18:00:00Z"}
        for number in range(3):
            assert (await scene.ask("PUT", scene.member(f"m{number}"), row)).status == 201
        assert (await scene.ask("PUT", scene.member("m9"), row)).code == "SetFull"
        assert (await scene.ask("POST", f"{scene.base}/schedules", row)).code == "SetFull"
        changed = await scene.ask("PUT", scene.member("m1"), {"schedule": "@daily"})
        assert changed.status == 200
        rows = b'{"id":"m0","schedule":"@hourly"}\n{"id":"new","schedule":"@hourly"}'
        headers = {"Content-Type": "application/x-ndjson"}
        path = f"{scene.base}/schedules:bulkUpsert"
        lines = (await scene.ask("POST", path, rows, headers=headers)).lines
        assert lines[0]["outcome"] == "Replaced"
        assert lines[1]["error"]["code"] == "SetFull"
        assert (await scene.ask("DELETE", scene.member("m0"))).status == 204
        assert (await scene.ask("PUT", scene.member("m9"), row)).status == 201
