"""What one client, one address or one namespace does to the API's process, and to the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import ssl
import time
import urllib.request
import uuid

import msgspec

from duepoint.delayqueue import apirequests
from duepoint.delayqueue import errors as queue_errors
from duepoint.model import member
from duepoint.schedules.sets import setspec
from tests.support import apiscene, queueing
from tests.support.tlsfiles import Authority
from tests.support.waiting import LONGEST_SECONDS

AT = "2090-12-24T18:00:00Z"
JSON = "Content-Type: application/json"
NDJSON = "Content-Type: application/x-ndjson"
CHUNKED = "Transfer-Encoding: chunked"


def connected(port, address="127.0.0.1", timeout=60):
    return socket.create_connection(("127.0.0.1", port), timeout, (address, 0))


def said_to(connection, data=b""):
    """Everything that is said to these bytes, until the server closes."""
    connection.sendall(data)
    said = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        while piece := connection.recv(65536):
            said += piece
    return said


def status_of(said):
    return int(said.split()[1])


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def resident_mib(process):
    lines = open(f"/proc/{process.pid}/status").read().splitlines()  # noqa: SIM115, PTH123
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


# -- connections ---------------------------------------------------------------------------------


async def test_unfinished_handshakes_take_little_memory_and_keep_no_other_address_out(
    control_plane, kube_namespace, own_server, tmp_path
):
    """1,300 of one address took the process to 566 MiB."""
    authority = Authority(tmp_path / "tls")
    files = authority.issue("api", "127.0.0.1")
    async with apiscene.open_scene(
        control_plane, kube_namespace, own_server, tmp_path,
        tls_cert_file=str(files.certificate),
    ) as scene:  # fmt: skip
        client = ssl.create_default_context(cafile=str(authority.file))

        def hello():
            sent, made = ssl.MemoryBIO(), ssl.MemoryBIO()
            with contextlib.suppress(ssl.SSLWantReadError):
                client.wrap_bio(sent, made, server_hostname="127.0.0.1").do_handshake()
            return made.read()

        def ask():
            request = scene.head("GET", scene.base, "Connection: close")
            with client.wrap_socket(
                connected(scene.port), server_hostname="127.0.0.1"
            ) as connection:
                return status_of(said_to(connection, request))

        def attack():
            begun = []
            for _ in range(1_300):
                begun.append(connected(scene.port, "127.0.0.2"))
                with contextlib.suppress(ConnectionError):
                    begun[-1].sendall(hello())
            return begun

        before = resident_mib(scene.process)
        begun = await asyncio.to_thread(attack)
        assert await asyncio.to_thread(ask) == 200
        assert resident_mib(scene.process) < before + 40
        for each in begun:
            each.close()
        assert await asyncio.to_thread(ask) == 200


async def test_connections_without_a_token_of_five_addresses_keep_no_other_address_out(
    control_plane, kube_namespace, own_server, tmp_path
):
    async with apiscene.open_scene(control_plane, kube_namespace, own_server, tmp_path) as scene:

        def attack():
            return [
                connected(scene.port, f"127.0.0.{last}") for last in range(2, 7) for _ in range(300)
            ]

        def ask(address):
            request = scene.head("GET", scene.base, "Connection: close")
            with connected(scene.port, address) as connection:
                return status_of(said_to(connection, request))

        held = await asyncio.to_thread(attack)
        for last in range(7, 17):
            assert await asyncio.to_thread(ask, f"127.0.0.{last}") == 200
        for each in held:
            each.close()


# -- HTTP ----------------------------------------------------------------------------------------


async def test_a_page_of_another_site_changes_nothing_where_the_browser_names_no_site(scene):
    """Over plain http, or in an old one: behind a proxy that adds the token to what it sends."""
    ours = f"http://127.0.0.1:{scene.port}"
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{scene.port + 1}", "http://"):
        answer = await scene.ask("PUT", scene.member("a"), {"at": AT}, headers={"Origin": origin})
        assert (answer.status, answer.code) == (403, "Forbidden"), origin
    # Forms and texts need no leave of ours, nor do requests that say no type.
    trigger = f"{scene.member('a')}/trigger"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"Content-Type": kind} if kind else {}
        for method, path in (("PUT", scene.member("a")), ("POST", trigger)):
            body = json.dumps({"at": AT}).encode() if method == "PUT" else b""
            answer = await scene.ask(method, path, body, headers=headers)
            assert answer.code == "UnsupportedMediaType", (kind, method)
    assert await scene.members() == {}
    proxied = {"Origin": "https://reminders.example", "X-Forwarded-Host": "reminders.example:443"}
    for headers in ({"Origin": ours}, proxied, {}):
        answer = await scene.ask("PUT", scene.member("a"), {"at": AT}, headers=headers)
        assert answer.status in (200, 201), headers


# -- bodies --------------------------------------------------------------------------------------


def hostile(size):
    """JSON of so many bytes that takes long to be read closely, and is refused."""
    deep = b'{"\\u0061":' * 90 + b"1" + b"}" * 90
    return b'{"at":"x","payload":[' + b",".join([deep] * (size // len(deep) - 1)) + b"]}"


async def test_bodies_that_are_refused_keep_no_other_tenant_waiting(
    control_plane, kube_namespace, own_server, tmp_path
):
    """16 connections made another one wait for 27 s, and the probes for six."""
    limits = setspec.SetLimits(payload_bytes=member.MOST_PAYLOAD_BYTES)
    async with apiscene.open_scene(
        control_plane, kube_namespace, own_server, tmp_path, limits=limits
    ) as scene:
        over, under_way = asyncio.Event(), asyncio.Event()
        refused = []

        async def attack(size):
            body = hostile(size)
            while not over.is_set():
                with contextlib.suppress(ConnectionError):  # cut while it still sends
                    head = {"Content-Type": "application/json"}
                    answer = await scene.ask(
                        "PUT", scene.member("a"), body, headers=head, within=120
                    )
                    refused.append(answer.status)
                if len(refused) > 16:
                    under_way.set()

        sizes = [16_000, 250_000] * 8
        attacking = [asyncio.create_task(attack(size)) for size in sizes]
        async with asyncio.timeout(LONGEST_SECONDS):
            await under_way.wait()
        waits = []
        for _ in range(5):
            began = time.monotonic()
            assert (await scene.ask("GET", scene.base, as_="viewer")).status == 200
            waits.append(time.monotonic() - began)
            began = time.monotonic()
            await asyncio.to_thread(lambda: urllib.request.urlopen(f"{scene.process.http}/healthz"))
            waits.append(time.monotonic() - began)
        over.set()
        await asyncio.gather(*attacking)
        assert set(refused) <= {400, 413, 429}
        assert max(waits) < 5, waits
        assert await scene.members() == {}


async def test_a_body_is_refused_by_its_length_before_it_is_read(scene):
    """At most the payload of the set, and some more for the other fields."""
    head = scene.head("PUT", scene.member("a"), JSON, "Content-Length: 200000")
    said = await asyncio.to_thread(scene.raw, head)  # nothing of it was sent
    assert status_of(said) == 413
    path = f"{scene.base}/schedules:bulkUpsert"
    rows = b'{"id":"a","at":"%b","payload":"%b"}\n{"id":"b","at":"%b"}'
    sent = rows % (AT.encode(), b"x" * 9_000, AT.encode())
    answer = await scene.ask("POST", path, sent, headers={"Content-Type": "application/x-ndjson"})
    assert answer.lines[0]["error"]["code"] == "PayloadTooLarge"
    assert answer.lines[1]["outcome"] == "Created"


async def test_refused_bodies_count_as_changes(control_plane, kube_namespace, own_server, tmp_path):
    limits = setspec.SetLimits(changes_per_second=5)
    async with apiscene.open_scene(
        control_plane, kube_namespace, own_server, tmp_path, limits=limits
    ) as scene:
        asked = [scene.ask("PUT", scene.member("a"), {"no": "member"}) for _ in range(100)]
        codes = [answer.code for answer in await asyncio.gather(*asked)]
        assert set(codes) == {"InvalidField", "TooManyRequests"}


async def test_a_stream_without_rows_ends(scene):
    """Empty lines held its place for as long as the client liked."""
    head = scene.head("POST", f"{scene.base}/schedules:bulkUpsert", CHUNKED, NDJSON)

    def talk():
        with connected(scene.port, timeout=0.5) as connection:
            connection.sendall(head)
            said, deadline = b"", time.monotonic() + 60
            while b'"fatal":true' not in said and time.monotonic() < deadline:
                connection.sendall(chunk(b"\n" * 1_024))
                with contextlib.suppress(TimeoutError):
                    said += connection.recv(65536)
            return said

    said = await asyncio.to_thread(talk)
    assert b"RequestTimeout" in said
    path = f"{scene.base}/schedules:bulkUpsert"
    head = scene.head("POST", path, CHUNKED, NDJSON, "Connection: close")
    said = await asyncio.to_thread(scene.raw, head + chunk(b"\n" * 120_000) + b"0\r\n\r\n")
    assert b"PayloadTooLarge" in said


async def test_a_stream_of_refused_rows_ends_with_the_rights_of_its_caller(scene):
    head = scene.head("POST", f"{scene.base}/schedules:bulkUpsert", CHUNKED, NDJSON)

    def talk():
        with connected(scene.port) as connection:
            connection.sendall(head + chunk(b"no row\n"))
            said, deadline = b"", time.monotonic() + 60
            while b'"error"' not in said:
                said += connection.recv(65536)
            scene.roles.revoke(scene.namespace, "editor")
            connection.settimeout(0.5)
            while b'"fatal":true' not in said and time.monotonic() < deadline:
                with contextlib.suppress(ConnectionError):
                    # It ends by itself at 100,000 rows: fewer than that in the whole time.
                    connection.sendall(chunk(b"no row\n" * 20))
                time.sleep(0.02)
                with contextlib.suppress(TimeoutError, ConnectionError):
                    said += connection.recv(65536)
            return said

    said = await asyncio.to_thread(talk)
    assert b'"NotFound"' in said[said.index(b'"fatal":true') - 500 :]


# -- tokens --------------------------------------------------------------------------------------


async def test_made_up_tokens_of_an_address_are_not_all_asked_about(scene):
    """776 a second reached the API server."""
    assert (await scene.ask("GET", scene.base)).status == 200

    def request(token, last):
        lines = f"GET {scene.base} HTTP/1.1", "Host: x", f"Connection: {last}"
        return "\r\n".join([*lines, f"Authorization: Bearer {token}", "", ""]).encode()

    def ask(token, address):
        with connected(scene.port, address) as connection:
            return status_of(said_to(connection, request(token, "close")))

    def attack():
        """200 on one connection."""
        sent = [request(secrets.token_hex(16), "keep-alive") for _ in range(199)]
        sent.append(request(secrets.token_hex(16), "close"))
        with connected(scene.port, "127.0.0.2", 120) as connection:
            said = said_to(connection, b"".join(sent))
        return [int(each[:3]) for each in said.split(b"HTTP/1.1 ")[1:]]

    began = time.monotonic()
    found = await asyncio.gather(*(asyncio.to_thread(attack) for _ in range(8)))
    seconds = time.monotonic() - began
    statuses = [status for each in found for status in each]
    assert len(statuses) == 1_600
    assert set(statuses) <= {401, 429}
    # A hundred at once and twenty a second; those under way together are some more.
    assert statuses.count(401) <= 100 + 20 * seconds + 16
    assert ask(scene.tokens["editor"], "127.0.0.2") == 200  # known from before
    assert ask(scene.tokens["viewer"], "127.0.0.3") == 200


# -- what is stored ------------------------------------------------------------------------------


async def test_answers_kept_for_repeated_requests_are_small(scene):
    """Kept whole, 3,000 of them took 48 MiB."""
    payload = "x" * 4_000
    headers = {"Idempotency-Key": "once"}
    first = await scene.ask(
        "PUT", scene.member("a"), {"at": AT, "payload": payload}, headers=headers
    )
    assert first.json["payload"] == payload
    again = await scene.ask(
        "PUT", scene.member("a"), {"at": AT, "payload": payload}, headers=headers
    )
    assert again.headers["idempotency-replayed"] == "true"
    assert again.status == first.status == 201
    assert again.headers["etag"] == first.headers["etag"]
    assert again.json == {name: value for name, value in first.json.items() if name != "payload"}
    kept = [key async for key in scene.harness.server.redis.scan_iter(match="*:request:*")]
    assert len(kept) == 1
    assert await scene.harness.server.redis.strlen(kept[0]) < 1_500


async def test_a_namespace_has_a_quota_of_what_is_kept_for_repeats(scene):
    server = scene.harness.server
    headers = {"Idempotency-Key": "first"}
    assert (await scene.ask("PUT", scene.member("a"), {"at": AT}, headers=headers)).status == 201
    (counted,) = [key async for key in server.redis.scan_iter(match="*:requests:*")]
    kept = [key async for key in server.redis.scan_iter(match="*:request:*")]
    bytes_ = int(await server.redis.hget(counted, "b"))
    assert bytes_ >= await server.redis.strlen(kept[0])
    for field, most in (("b", apirequests.MOST_BYTES), ("n", apirequests.MOST_REQUESTS)):
        before = await server.redis.hget(counted, field)
        await server.redis.hset(counted, field, most)
        headers = {"Idempotency-Key": f"beyond-{field}"}
        refused = await scene.ask("PUT", scene.member("b"), {"at": AT}, headers=headers)
        assert (refused.status, refused.code) == (429, "TooManyRequests")
        await server.redis.hset(counted, field, before)
    assert (await scene.ask("PUT", scene.member("b"), {"at": AT})).status == 201


async def test_a_receiver_that_is_down_does_not_keep_any_number_of_runs(scene):
    """2,000 of one member stayed armed, with 16 KiB each."""
    await scene.ask("PUT", scene.member("a"), {"at": AT})
    trigger = f"{scene.member('a')}/trigger"
    answers = [await scene.ask("POST", trigger, {"payload": n}) for n in range(103)]
    assert [answer.status for answer in answers] == [202] * 100 + [429] * 3
    assert answers[-1].code == "TooManyRequests"
    assert int(answers[-1].headers["retry-after"]) >= 1
    await scene.ask("PUT", scene.member("b"), {"at": AT})
    other = await scene.ask("POST", f"{scene.member('b')}/trigger", {"payload": 1})
    assert other.status == 202


async def test_runs_that_wait_are_bounded_for_a_namespace_and_no_other_one_is_affected(scene):
    """Many sets of one namespace had as many times the bound of a set."""
    members = scene.harness.queue.members
    store = scene.harness.queue.sets.store

    async def a_set(namespace, number):
        """With one hundred members, as many as runs of each may wait."""
        record = msgspec.structs.replace(
            scene.record, namespace=namespace, name=f"set-{number}", uid=str(uuid.uuid4())
        )
        await store(record, apiscene.BLOB, queueing.EPOCH)
        path = f"/v1/namespaces/{namespace}/schedulesets/{record.name}/schedules"
        head = {"Content-Type": "application/x-ndjson"}
        rows = b"\n".join(b'{"id":"m%d","at":"%b"}' % (n, AT.encode()) for n in range(100))
        answer = await scene.ask("POST", f"{path}:bulkUpsert", rows, headers=head, as_=namespace)
        assert all(line["outcome"] == "Created" for line in answer.lines[:100])
        return record, f"{path}/m0/trigger"

    async def fill(record):
        """With runs as requests make them, which would take minutes; for how many is room."""

        async def trigger(name):
            try:
                await members.trigger(record, name, run_uid=str(uuid.uuid4()), payload=b"1")
            except queue_errors.TooManyWaiting:
                return False
            return True

        made = 0
        while taken := sum([await trigger(f"m{number}") for number in range(100)]):
            made += taken
        return made

    ours, other = scene.namespace, scene.plane.create_namespace()
    try:
        scene.roles.bind(other, "editor", "edit")
        scene.tokens[ours] = scene.tokens["editor"]
        scene.tokens[other] = scene.plane.service_account_token(other, "editor")
        full = [await a_set(ours, number) for number in range(3)]
        last, trigger = await a_set(ours, 3)
        _, trigger_of_other = await a_set(other, 0)
        made = [await fill(record) for record, _ in full]
        assert sum(made) > 4_096  # more than of a set
        refused = await scene.ask("POST", trigger, {"payload": 1}, as_=ours)
        assert (refused.status, refused.code) == (429, "TooManyRequests")
        assert "namespace" in refused.json["detail"]
        taken = await scene.ask("POST", trigger_of_other, {"payload": 1}, as_=other)
        assert taken.status == 202
        # Those of a set that is emptied wait no longer.
        for record, path in full[:2]:
            for number in range(100):
                gone = path.replace("m0/trigger", f"m{number}")
                assert (await scene.ask("DELETE", gone, as_=ours)).status in (200, 204), record
        async with asyncio.timeout(LONGEST_SECONDS):
            while (await scene.ask("POST", trigger, {"payload": 1}, as_=ours)).status != 202:
                pass
        assert last.namespace == ours
    finally:
        scene.plane.discard_namespace(other)
