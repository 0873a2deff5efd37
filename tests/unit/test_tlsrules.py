"""Certificates of authorities as real ones make them: accepted by each of our clients.

Python 3.13 and later refuse some of them by default; here every Python does.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from typing import Any

import pytest

from duepoint import tlsrules
from duepoint.controller.watching import kopfthread
from duepoint.delayqueue.wire import connecting
from duepoint.kube import api, credentials
from tests.support import (
    certificates,
    receiver,
)

OLD = certificates.Authority("old", is_old=True)
ROOT = certificates.Authority("root")
BETWEEN = certificates.Authority("between", signer=ROOT)


@pytest.fixture(autouse=True)
def _as_strict_as_python_3_13(monkeypatch):
    made = ssl.create_default_context

    def strict(*arguments: Any, **named: Any) -> ssl.SSLContext:
        context = made(*arguments, **named)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.verify_flags &= ~ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


@contextlib.asynccontextmanager
async def a_server(folder, authority=OLD, *names, expired=False, client_ca=None):
    """Answers each request with an empty object."""
    pair = authority.signs(*(names or ("127.0.0.1",)), expired=expired)
    serving = pair.serving(folder, client_ca=client_ca)
    answer = receiver.status(200, b"{}", (("Content-Type", "application/json"),))
    async with receiver.listening(answer, tls=serving) as hears:
        yield hears


async def greeted(context, port_):
    """Whether a server is believed who it is; raises ssl.SSLError where it is not."""
    _, writer = await asyncio.open_connection("127.0.0.1", port_, ssl=context)
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


# -- the rules -------------------------------------------------------------------------------------


async def test_an_old_authority_vouches_for_its_servers(tmp_path):
    async with a_server(tmp_path) as hears:
        await greeted(tlsrules.client_context(cadata=OLD.pem.decode()), hears.port)


async def test_an_intermediate_authority_that_is_listed_is_enough(tmp_path):
    async with a_server(tmp_path, BETWEEN) as hears:
        await greeted(tlsrules.client_context(cadata=BETWEEN.pem.decode()), hears.port)


@pytest.mark.parametrize(
    ("authority", "name", "expired", "told"),
    [
        (certificates.Authority("another", is_old=True), "127.0.0.1", False, "self-signed|issuer"),
        (OLD, "127.0.0.2", False, "IP address mismatch"),
        (OLD, "127.0.0.1", True, "expired"),
    ],
    ids=["another authority", "another name", "expired"],
)
async def test_what_proves_who_a_server_is_stays_checked(tmp_path, authority, name, expired, told):
    async with a_server(tmp_path, authority, name, expired=expired) as hears:
        context = tlsrules.client_context(cadata=OLD.pem.decode())
        with pytest.raises(ssl.SSLCertVerificationError, match=told):
            await greeted(context, hears.port)


async def test_a_certificate_that_is_no_authoritys_vouches_for_no_server(tmp_path):
    """Whoever holds one could stand in for every server otherwise."""
    holder = certificates.Authority("holder", signer=OLD, is_old=True, is_entitled=False)
    pair = holder.signs("127.0.0.1")
    chain = certificates.Pair(pair.certificate + holder.pem, pair.key)
    async with receiver.listening(tls=chain.serving(tmp_path)) as hears:
        context = tlsrules.client_context(cadata=OLD.pem.decode())
        with pytest.raises(ssl.SSLCertVerificationError, match="invalid CA"):
            await greeted(context, hears.port)


# -- the API server --------------------------------------------------------------------------------


def a_login(hears, **changes):
    found = credentials.Login(
        server=f"https://127.0.0.1:{hears.port}", token="t", ca_data=OLD.pem.decode(), **changes
    )
    return credentials.Credentials(found)


async def test_a_cluster_of_an_old_authority_is_talked_to(tmp_path):
    async with (
        a_server(tmp_path) as hears,
        api.ApiSession(a_login(hears), component="test") as session,
    ):
        assert await session.request("GET", "/version") == b"{}"


async def test_kopf_talks_to_a_cluster_of_an_old_authority(tmp_path):
    async with a_server(tmp_path) as hears:
        logins = kopfthread.Logins(a_login(hears).login, listed=print)
        opened = await logins.current()
        async with opened.aiohttp_session.get(f"{opened.server}/version") as answer:
            assert answer.status == 200
        assert hears.requests[0].header("Authorization") == "Bearer t"
        await logins.close()


async def test_kopf_shows_a_certificate_that_stands_in_the_kubeconfig(tmp_path):
    ours = OLD.signs("duepoint")

    def encoded(text: bytes) -> str:
        return base64.b64encode(text).decode()

    async with a_server(tmp_path, client_ca=OLD.pem) as hears:
        document = {
            "current-context": "x",
            "clusters": [{"name": "c", "cluster": {
                "server": f"https://127.0.0.1:{hears.port}",
                "certificate-authority-data": encoded(OLD.pem)}}],
            "users": [{"name": "u", "user": {
                "client-certificate-data": encoded(ours.certificate),
                "client-key-data": encoded(ours.key)}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        (tmp_path / "config").write_text(json.dumps(document))
        logins = kopfthread.Logins(
            credentials.of_kubeconfig(tmp_path / "config").login, listed=print
        )
        opened = await logins.current()
        async with opened.aiohttp_session.get(f"{opened.server}/version") as answer:
            assert answer.status == 200
        await logins.close()


# -- Redis -----------------------------------------------------------------------------------------


async def test_a_redis_of_an_old_authority_is_believed(tmp_path):
    (tmp_path / "ca.pem").write_bytes(OLD.pem)
    async with a_server(tmp_path) as hears:
        await greeted(connecting.TlsFiles(ca_file=tmp_path / "ca.pem").context(), hears.port)


# -- receivers -------------------------------------------------------------------------------------
