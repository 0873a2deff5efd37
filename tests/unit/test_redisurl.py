"""What a Redis URL says, and what one that says nothing is answered."""

from __future__ import annotations

import pytest

from duepoint import redisurl
from duepoint.redisurl import ServerKind


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("redis://redis", (("redis", 6379),)),
        ("rediss://[fd00::1]:7000", (("fd00::1", 7000),)),
        ("redis+cluster://a:1,b,[::1]:3", (("a", 1), ("b", 6379), ("::1", 3))),
        ("rediss+sentinel://:pw@a,b:5/main", (("a", 26379), ("b", 5))),
    ],
)
def test_hosts_and_their_usual_ports(text, hosts):
    found = redisurl.parse(text)
    assert found.hosts == hosts
    assert found.tls is text.startswith("rediss")


def test_the_primary_that_sentinel_knows():
    found = redisurl.parse("redis+sentinel://worker:pw@s1/the%20primary/2")
    assert found.kind is ServerKind.SENTINEL
    assert (found.primary, found.database, found.username) == ("the primary", 2, "worker")


def test_what_the_servers_are_called_and_who_asks_the_sentinels():
    found = redisurl.parse("rediss+sentinel://a/main?server_name=x.example&sentinel_username=me")
    assert (found.server_name, found.sentinel_username) == ("x.example", "me")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a Redis URL"),
        ("localhost:6379", "is not a Redis URL"),
        ("http://x", "redis://host"),
        ("redis+clutser://a", "redis[+]cluster://"),
        ("unix+cluster:///x", "is not a Redis URL"),
        ("redis://", "names no host"),
        ("redis://:hunter2@", "names no host"),
        ("redis://host:99999", "port"),
        ("redis://host:port", "port"),
        ("redis://host:0", "names no host"),
        ("redis://a,b", "several servers"),
        ("redis+cluster://a,,b", "names no host"),
        ("redis+cluster://a/1", "database 0"),
        ("redis+sentinel://a", "name the primary in Sentinel"),
        ("redis+sentinel://a/", "name the primary in Sentinel"),
        ("redis://a/first", "database"),
        ("redis://a?db=x", "database"),
        ("redis://a?timeout=3", '"timeout"'),
        ("redis://a?ssl_ca_certs=/x", "unknown parameter"),
        ("rediss://a?ssl_cert_reqs=none", "unknown parameter"),
        ("redis://:a#b@host", "%23"),
        ("unix://", "names no socket"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(text, says):
    with pytest.raises(ValueError, match=says) as found:
        redisurl.parse(text)
    assert "hunter2" not in str(found.value)
