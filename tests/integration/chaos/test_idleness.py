"""What is counted as Duepoint's while it is idle: its users' commands, not the recorder's."""

from __future__ import annotations

import contextlib
import threading

import pytest
import redis

from duepoint.delayqueue.wire import scripting
from tests.chaos import idleness
from tests.support.redisserver import RedisServer


@pytest.fixture
def server(tmp_path):
    made = RedisServer("valkey", tmp_path)
    made.start()
    yield made
    made.stop()


@contextlib.contextmanager
def sending(url, *commands):
    """These commands, again and again within; connected when it begins."""
    over = threading.Event()
    client = redis.Redis.from_url(url, protocol=2)
    client.ping()

    def send():
        while not over.wait(0.02):
            for command in commands:
                with contextlib.suppress(redis.RedisError):
                    client.execute_command(*command)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        client.close()


def test_nothing_is_seen_where_nobody_asks(server):
    assert idleness.look([server], 0.3) == idleness.Look(sent=0.0, inside=0.0, kinds=())


def test_what_a_worker_sends_is_seen_by_name(server):
    with sending(server.url_of("worker"), ("PING",)):
        seen = idleness.look([server], 0.5)
    (kind,) = seen.kinds
    assert kind.startswith("worker PING: ")
    assert seen.sent > 2


def test_what_the_recorder_sends_is_not_seen(server):
    with sending(server.url, ("PING",)):
        assert idleness.look([server], 0.5).sent == 0


def test_a_script_is_seen_by_its_name_and_what_it_does_apart(server):
    with redis.Redis(port=server.port, protocol=2) as client:
        sha = client.script_load(scripting.source("stay"))
    with sending(server.url_of("operator"), ("EVALSHA", sha, 0)):
        seen = idleness.look([server], 0.5)
    (kind,) = seen.kinds
    assert kind.startswith("operator stay: ")
