"""Servers that other servers name: what they may be called."""

from __future__ import annotations

import dataclasses

import pytest

from duepoint.net import dialling
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from duepoint.targets.kafka import target as kafkatarget
from duepoint.targets.secretaccess import servers
from duepoint.targets.stream import external
from tests.support import othertargets, vaults


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("", 80),
        ("canary of a broker", 80),
        ("canary,canary", 80),
        ("https://canary/", 80),
        ("c" * 254, 80),
        ("canary\n", 80),
        ("canary", 0),
        ("canary", -1),
        ("canary", 65_536),
        ("canary", 2**31 - 1),
    ],
)
def test_what_no_server_can_be_called_is_refused_without_being_repeated(host, port):
    with pytest.raises(OSError, match="no name, or no port") as caught:
        servers.require_server(host, port)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "host", ["redis", "redis.shop.svc", "a_b-1.example.", "192.0.2.1", "2001:db8::1", "müller.de"]
)
def test_names_and_addresses_of_servers_are_taken(host):
    servers.require_server(host, 6379)


async def read(**secret):
    api = await vaults.api_with(vaults.a_secret("it", **secret))
    return await othertargets.a_reader(api).read(
        kafkatarget.PATH, "default", "it", kafkatarget.KEYS, "bootstrap.servers"
    )


SHORT = {"bootstrap__servers": "two:9092", "username": "rw", "password": "a"}


TROUBLE = target.Trouble(reason=Reason.NETWORK, message="Service a/canary has no endpoints")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (dialling.Blocked("canary is private"), "is not allowed"),
        (dialling.Unresolved("canary cannot be resolved"), "cannot be used: Unresolved"),
        (ConnectionRefusedError("canary refused"), "cannot be used: ConnectionRefusedError"),
        (servers.ServerRefused(TROUBLE), "cannot be found now"),
        (servers.ServerRefused(dataclasses.replace(TROUBLE, final=True)), "is not allowed"),
    ],
)
def test_a_server_that_another_one_names_is_never_named_by_us(error, said):
    without = servers.unnamed(error)
    assert str(without) == f"a server that it names {said}"
    if isinstance(error, dialling.Blocked | servers.ServerRefused):
        assert isinstance(without, type(error))


async def test_a_consent_that_lacks_a_named_server_is_asked_for_without_its_name():
    found = await read(send_to="two", **SHORT)
    found.require_server("two", 9092)
    with pytest.raises(servers.ServerRefused) as caught:
        found.require_server("canary", 9092)
    assert caught.value.trouble.reason is Reason.SECRET_UNAVAILABLE
    assert "a server that it names is not allowed" in str(caught.value)
    assert "duepoint.dev/send-to=HOSTS" in str(caught.value)
    assert "canary" not in str(caught.value)


async def test_what_a_library_says_is_redacted():
    found = await read(**SHORT | {"password": "canary-pass"})
    assert found.redacted("login canary-pass failed") == "login [redacted] failed"
    api = await vaults.api_with(vaults.a_secret("it", url="redis://h/?canary=1", password="canary"))
    streams = external.ExternalStreams(othertargets.a_reader(api), lambda _: None)
    trouble = await streams.check("default", "it")
    assert "canary" not in trouble.message
    assert trouble.message.startswith("spec.stream.connectionSecretRef: key url of Secret default/")
