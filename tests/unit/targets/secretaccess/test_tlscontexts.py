"""How much of certificates is read, and how long a context is kept."""

from __future__ import annotations

import base64

import pytest

from duepoint.targets.secretaccess import tlscontexts
from tests.support import certificates

CA = certificates.authority()


def distinct(count):
    """A bundle of so many certificates."""
    lines = CA.pem.decode().strip().splitlines()
    der = base64.b64decode("".join(lines[1:-1]))
    for number in range(count):
        body = base64.b64encode(der[:-4] + number.to_bytes(4, "big")).decode()
        yield f"{lines[0]}\n{body}\n{lines[-1]}\n".encode()


def material(namespace="a", **parts):
    return tlscontexts.TlsMaterial(owner=(namespace, False), **parts)


def a_ca(number):
    """The same authority in a bundle that is another one."""
    return f"# {number}\n".encode() + CA.pem


@pytest.mark.parametrize("count", [101, 2000])
async def test_a_bundle_of_many_certificates_is_refused_with_what_to_write(count):
    pem = b"".join(distinct(count))
    with pytest.raises(tlscontexts.Unusable) as caught:
        await tlscontexts.TlsContexts().get(material(ca=pem))
    assert caught.value.part == "ca"
    assert str(caught.value) == (
        f"holds {count} certificates in {len(pem)} bytes; at most 100 in 65536 bytes are read: "
        "write only those that sign for this server, or none for the public ones"
    )


async def test_a_bundle_of_more_than_64_kib_is_refused_and_one_of_64_kib_is_taken():
    contexts = tlscontexts.TlsContexts()
    largest = CA.pem.ljust(tlscontexts.MOST_PEM_BYTES, b"\n")
    assert await contexts.get(material(ca=largest))
    with pytest.raises(tlscontexts.Unusable, match="holds 1 certificates in 65537 bytes"):
        await contexts.get(material(ca=largest + b"\n"))


@pytest.mark.parametrize("part", ["certificate", "key"])
async def test_a_long_chain_of_ours_is_refused_too(part):
    parts = {"certificate": CA.pem, "key": b"-", part: b"".join(distinct(101))}
    with pytest.raises(tlscontexts.Unusable, match="write the certificate and those") as caught:
        await tlscontexts.TlsContexts().get(material(ca=CA.pem, **parts))
    assert caught.value.part == "certificate"


async def test_contexts_of_one_namespace_push_out_none_of_another(monkeypatch):
    """There is room for 20 of them."""
    monkeypatch.setattr(tlscontexts, "_MOST_BYTES", 20 * material(ca=a_ca(1)).context_bytes)
    contexts = tlscontexts.TlsContexts()
    theirs = await contexts.get(material("b", ca=CA.pem))
    first = await contexts.get(material("a", ca=a_ca(0)))
    for number in range(1, 300):
        last = await contexts.get(material("a", ca=a_ca(number)))
    assert await contexts.get(material("b", ca=CA.pem)) is theirs
    assert await contexts.get(material("a", ca=a_ca(299))) is last
    assert await contexts.get(material("a", ca=a_ca(0))) is not first
