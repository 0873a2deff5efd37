"""TLS on a real server: our own CA, certificates of ours, names, and files that are rotated."""

from __future__ import annotations

import shutil

import pytest

from duepoint import errors
from duepoint.delayqueue import delayqueue
from duepoint.delayqueue.wire import connecting
from tests.support import queueing, redisusers
from tests.support.rediscluster import RedisCluster
from tests.support.redisserver import RedisServer, free_port
from tests.support.tlsfiles import Authority

pytestmark = [
    pytest.mark.skipif(
        not shutil.which("redis-server"),
        reason="no redis-server on the PATH; the embedded Valkey has no TLS",
    ),
    pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl on the PATH"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def issued(authority):
    return authority.issue("server", "DNS:redis.example.com")


@pytest.fixture
def server(tmp_path, authority, issued):
    """A server that wants to see our certificate; its own names redis.example.com."""
    server = RedisServer(
        "redis-server", tmp_path, "--tls-port", str(free_port()), "--tls-ca-cert-file",
        str(authority.file), "--tls-cert-file", str(issued.certificate), "--tls-key-file",
        str(issued.key), "--tls-auth-clients", "optional",
    )  # fmt: skip
    server.start()
    yield server
    server.stop()


def _queue(server, prefix, **tls):
    url = f"rediss://127.0.0.1:{server.option('--tls-port')}/0"
    return delayqueue.DelayQueue(
        url,
        blob_key=queueing.BLOB_KEY,
        prefix=prefix,
        server=connecting.Server(url=url, tls=connecting.Tls(**tls)),
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
    await queue.open_layout(4, queueing.EPOCH)
    wakeups = queue.wakeups()
    await wakeups.start()
    assert len(await wakeups.wait_until_due(5.0)) == 4
    await wakeups.close()
    await queue.close()


async def test_a_server_with_another_name_is_refused_with_both_names(server, authority, key_prefix):
    text = await _trouble(_queue(server, key_prefix, ca_file=authority.file))
    assert "127.0.0.1" in text
    assert "certificate" in text.lower()


async def test_a_server_of_an_unknown_ca_is_refused(server, tmp_path, key_prefix):
    other = Authority(tmp_path / "other")
    text = await _trouble(
        _queue(server, key_prefix, ca_file=other.file, server_name="redis.example.com")
    )
    assert "certificate verify failed" in text
    assert "certificate verify failed" in await _trouble(
        _queue(server, key_prefix, server_name="redis.example.com")
    )


async def test_a_server_that_asks_for_a_certificate_gets_ours(server, authority, key_prefix):
    with server.client() as client:
        client.config_set("tls-auth-clients", "yes")
    known = {"ca_file": authority.file, "server_name": "redis.example.com"}
    await _trouble(_queue(server, key_prefix, **known))
    ours = authority.issue("client", "DNS:duepoint")
    queue = _queue(server, key_prefix, cert_file=ours.certificate, key_file=ours.key, **known)
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
    mounted.write_text("this is no certificate")
    await queue._servers.node.pool.disconnect()
    with pytest.raises(errors.QueueUnavailable):
        await queue.start()
    mounted.unlink()
    with pytest.raises(errors.QueueUnavailable):
        await queue.start()
    mounted.write_bytes(authority.file.read_bytes())
    await queue.start()
    await queue.close()


async def test_a_server_without_tls_behind_rediss_is_one_clear_line(server, key_prefix, authority):
    url = f"rediss://127.0.0.1:{server.port}/0"
    tls = connecting.Tls(ca_file=authority.file)
    queue = delayqueue.DelayQueue(
        url, blob_key=queueing.BLOB_KEY, server=connecting.Server(url=url, tls=tls)
    )
    await _trouble(queue)


@pytest.mark.parametrize(
    ("url", "tls", "says"),
    [
        ("redis://host", {"server_name": "x"}, "rediss"),
        ("redis+cluster://host", {"ca_file": __file__}, "rediss"),
        ("rediss://host", {"key_file": __file__}, "redis_cert_file"),
    ],
)
def test_tls_files_that_would_do_nothing_are_a_wrong_setting(url, tls, says):
    server = connecting.Server(url=url, tls=connecting.Tls(**tls))
    with pytest.raises(errors.InvalidSetting, match=says):
        delayqueue.DelayQueue(url, blob_key=queueing.BLOB_KEY, server=server)


async def test_a_cluster_over_tls_is_found_by_one_node_and_verified_by_one_name(
    authority, issued, tmp_path, key_prefix
):
    def options():
        return (
            "--tls-port", str(free_port()), "--tls-auth-clients", "no", "--tls-cluster", "yes",
            "--tls-ca-cert-file", str(authority.file), "--tls-cert-file", str(issued.certificate),
            "--tls-key-file", str(issued.key),
        )  # fmt: skip

    cluster = RedisCluster("redis-server", tmp_path / "cluster", options=options)
    try:
        cluster.start()
        login = f"{redisusers.name('operator')}:{redisusers.password('operator')}"
        port = cluster.nodes[0].option("--tls-port")
        url = f"rediss+cluster://{login.replace(' ', '%20')}@127.0.0.1:{port}"
        tls = connecting.Tls(ca_file=authority.file, server_name="redis.example.com")
        queue = delayqueue.DelayQueue(
            url,
            blob_key=queueing.BLOB_KEY,
            prefix=key_prefix,
            server=connecting.Server(url=url, tls=tls),
        )
        await queue.start()
        await queue.open_layout(8, queueing.EPOCH)
        assert set(queue._servers._map.primaries) == {
            ("127.0.0.1", int(node.option("--tls-port"))) for node in cluster.nodes
        }
        await queue.close()
    finally:
        cluster.stop()
