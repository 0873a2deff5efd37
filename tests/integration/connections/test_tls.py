"""TLS on a real server: our own CA, certificates of ours, names, and files that are rotated."""

from __future__ import annotations

import pytest

from duepoint import errors
from duepoint.delayqueue import delayqueue
from duepoint.delayqueue.wire import connecting
from tests.support import queueing, redisusers, tlsservers
from tests.support.redisserver import EACH_KIND
from tests.support.tlsfiles import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def issued(authority):
    return authority.issue("server", "redis.example.com")


@pytest.fixture(params=EACH_KIND)
def server(request, tmp_path, authority, issued):
    """A server that looks at our certificate; its own names redis.example.com."""
    with tlsservers.tls_server(request.param, tmp_path, authority, issued) as server:
        yield server


def _queue(server, prefix, **tls):
    url = f"rediss://127.0.0.1:{server.port}/0"
    return delayqueue.connect(
        url,
        blob_key=queueing.BLOB_KEY,
        prefix=prefix,
        server=connecting.Server(url=url, tls=connecting.TlsFiles(**tls)),
    )


async def _trouble(queue):
    with pytest.raises(errors.QueueUnavailable) as found:
        await queue.start()
    await queue.close()
    text = str(found.value)
    assert "\n" not in text
    return text


async def test_a_server_of_our_own_ca_is_used_under_its_name(server, authority, key_prefix):
    queue = _queue(server, key_prefix, ca_file=authority.file, server_name="redis.example.com")
    await queue.start()
    await queue.membership.open(4, queueing.EPOCH)
    wakeups = queue.wakeups()
    await wakeups.start()
    assert len(await wakeups.wait_until_due(5.0)) == 4
    await wakeups.close()
    await queue.close()


async def test_an_expired_certificate_is_refused_until_it_is_replaced(
    server, authority, issued, key_prefix
):
    server.present(authority.issue("expired", "redis.example.com", expired=True))
    queue = _queue(server, key_prefix, ca_file=authority.file, server_name="redis.example.com")
    with pytest.raises(errors.QueueUnavailable, match="certificate has expi"):
        await queue.start()
    server.present(issued)
    await queue.start()
    await queue.close()


async def test_a_server_that_asks_for_a_certificate_gets_ours(server, authority, key_prefix):
    server.want_certificates()
    known = {"ca_file": authority.file, "server_name": "redis.example.com"}
    await _trouble(_queue(server, key_prefix, **known))
    ours = authority.issue("client", "duepoint")
    queue = _queue(server, key_prefix, cert_file=ours.certificate, **known)
    await queue.start()
    await queue.close()
    together = ours.key.with_name("both.pem")
    together.write_text(ours.certificate.read_text() + ours.key.read_text())
    queue = _queue(server, key_prefix, cert_file=together, **known)
    await queue.start()
    await queue.close()


async def test_a_ca_that_is_replaced_counts_from_the_next_connection(
    server, authority, tmp_path, key_prefix
):
    mounted = tmp_path / "mounted.pem"
    mounted.write_bytes(Authority(tmp_path / "other").file.read_bytes())
    queue = _queue(server, key_prefix, ca_file=mounted, server_name="redis.example.com")
    with pytest.raises(errors.QueueUnavailable):
        await queue.start()
    mounted.write_bytes(authority.file.read_bytes())
    await queue.start()
    mounted.write_text("this is not a certificate")
    await queue.index.servers.drop_idle()
    with pytest.raises(errors.QueueUnavailable):
        await queue.start()
    mounted.unlink()
    with pytest.raises(errors.QueueUnavailable):
        await queue.start()
    mounted.write_bytes(authority.file.read_bytes())
    await queue.start()
    await queue.close()


@pytest.mark.parametrize("kind", EACH_KIND)
async def test_a_cluster_over_tls_is_found_by_one_node_and_verified_by_one_name(
    kind, authority, issued, tmp_path, key_prefix
):
    with tlsservers.tls_cluster(kind, tmp_path / "cluster", authority, issued) as ports:
        login = f"{redisusers.name('operator')}:{redisusers.password('operator')}"
        url = f"rediss+cluster://{login.replace(' ', '%20')}@127.0.0.1:{ports[0]}"
        tls = connecting.TlsFiles(ca_file=authority.file, server_name="redis.example.com")
        queue = delayqueue.connect(
            url,
            blob_key=queueing.BLOB_KEY,
            prefix=key_prefix,
            server=connecting.Server(url=url, tls=tls),
        )
        await queue.start()
        await queue.membership.open(8, queueing.EPOCH)
        assert set(queue.index.servers.hosts()) == {("127.0.0.1", port) for port in ports}
        await queue.close()
