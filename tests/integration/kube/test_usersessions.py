"""Sessions of users carry the user's token and nothing of ours."""

from __future__ import annotations

import asyncio
import dataclasses
import http.server
import json
import threading

import pytest

from duepoint.kube import api, credentials, errors


class Recorder(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append(self.headers.get("Authorization"))
        status = 401 if self.headers.get("Authorization") == "Bearer expired" else 200
        body = json.dumps({"kind": "Status", "code": status}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    recorder = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    recorder.seen = []
    thread = threading.Thread(target=recorder.serve_forever)
    thread.start()
    yield recorder
    recorder.shutdown()
    thread.join()
    recorder.server_close()


def own(server, **more):
    place = f"http://127.0.0.1:{server.server_address[1]}"
    return credentials.Credentials(credentials.Login(server=place, token="ours", **more))


async def test_each_request_carries_the_token_of_its_user_only(server):
    users = api.UserSessions(own(server), component="test")
    try:
        sessions = [await users.of(f"of-{number}") for number in range(20)]
        await asyncio.gather(*(session.request("GET", "/") for session in sessions))
    finally:
        await users.close()
    assert sorted(server.seen) == sorted(f"Bearer of-{number}" for number in range(20))


async def test_a_refused_token_is_not_replaced_by_ours(server):
    users = api.UserSessions(own(server), component="test")
    try:
        with pytest.raises(errors.Unauthorized):
            await (await users.of("expired")).request("GET", "/")
    finally:
        await users.close()
    assert set(server.seen) == {"Bearer expired"}


async def test_our_certificate_stays_behind(monkeypatch):
    """An API server believes a certificate before a token."""
    made = []
    monkeypatch.setattr(
        credentials,
        "with_context",
        lambda login: made.append(login) or dataclasses.replace(login, ssl="a context"),
    )
    access = credentials.Credentials(
        credentials.Login(
            server="https://a.example", token="ours", ca_data="CA", certificate_file="ours.pem",
            key_file="ours.key",
        )
    )  # fmt: skip
    users = api.UserSessions(access, component="test")
    await users.of("theirs")
    await users.of("theirs, again")
    login = made[-1]
    assert len(made) == 2  # ours, and one for all users
    assert (login.certificate_file, login.key_file, login.token) == (None, None, None)
    assert login.ca_data == "CA"
    await users.close()
