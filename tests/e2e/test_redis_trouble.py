"""Redis that cannot be used: one line in the log, not ready, alive, and well again by itself."""

from __future__ import annotations

import json

import pytest

from tests.support import redisusers, stack, tlsservers
from tests.support.redisserver import EACH_KIND
from tests.support.tlsfiles import Authority


def _lines(process, event):
    """Lines of a process's log that tell this."""
    found = [json.loads(line) for line in process.log.read_text().splitlines() if line[:1] == "{"]
    return [line for line in found if event in line["event"]]


async def _both_say(processes, text):
    for process in processes:

        async def says(process=process):
            try:
                return text in (await process.troubles()).lower()
            except OSError:
                return False

        await stack.eventually(says, f"{process.name} says {text!r} in /readyz; see {process.log}")


#: What the leader says, which may have to get its Lease first, and what a worker says.
_TELLS = ("index cannot be opened", "waiting for the queue")


def _one_line_each(*processes):
    for process, event in zip(processes, _TELLS, strict=True):
        assert len(_lines(process, event)) == 1


async def test_an_address_where_nobody_answers(stack):
    port = stack.redis.port
    stack.redis.stop()
    operator, worker = stack.operator(), stack.worker()
    await _both_say([operator, worker], f"127.0.0.1:{port}")
    await _try_on_and_live(operator, worker)
    stack.redis.start()
    await operator.wait_until_ready()
    await worker.wait_until_ready()
    _one_line_each(operator, worker)


async def test_a_wrong_password_until_it_is_right(stack, tmp_path):
    files = {}
    for role in ("operator", "worker"):
        files[role] = tmp_path / f"{role}-password"
        files[role].write_text("not the right one")
    operator, worker = (
        start(
            redis_url=stack.redis.url,
            redis_username=redisusers.name(role),
            redis_password_file=str(files[role]),
        )
        for role, start in (("operator", stack.operator), ("worker", stack.worker))
    )
    await _both_say([operator, worker], "invalid username-password")
    await _try_on_and_live(operator, worker)
    for role, file in files.items():
        file.write_text(redisusers.password(role))
    await operator.wait_until_ready()
    await worker.wait_until_ready()
    _one_line_each(operator, worker)
    for process in (operator, worker):
        assert "not the right one" not in process.log.read_text()


@pytest.mark.parametrize("kind", EACH_KIND)
async def test_a_certificate_of_another_name_until_it_is_replaced(stack, tmp_path, kind):
    authority = Authority(tmp_path / "ca")
    issued = authority.issue("server", "somebody.else")
    with tlsservers.tls_server(kind, tmp_path / "tls", authority, issued) as tls:
        operator, worker = (
            start(
                redis_url=tls.url_of(role),
                redis_ca_file=str(authority.file),
                redis_server_name="redis.example.com",
            )
            for role, start in (("operator", stack.operator), ("worker", stack.worker))
        )
        await _both_say([operator, worker], "certificate")
        await _try_on_and_live(operator, worker)
        tls.present(authority.issue("right", "redis.example.com"))
        await operator.wait_until_ready()
        await worker.wait_until_ready()
        _one_line_each(operator, worker)


async def test_a_policy_that_evicts_until_it_is_changed(stack):
    with stack.redis.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        operator, worker = stack.operator(), stack.worker()
        await _both_say([operator, worker], "maxmemory-policy noeviction")
        client.config_set("maxmemory-policy", "noeviction")
    await operator.wait_until_ready()
    await worker.wait_until_ready()
    for process in (operator, worker):
        assert len(_lines(process, "unfit queue server")) == 1


async def _try_on_and_live(*processes):
    """They have tried more than once, have said so, and live."""
    for process, event in zip(processes, _TELLS, strict=True):

        async def has_said(process=process, event=event):
            return bool(_lines(process, event))

        await stack.eventually(has_said, f"{process.name} says {event!r}; see {process.log}")
        before = process.pid
        for _ in range(5):
            assert await process.troubles()
        assert process.pid == before
        assert process._child.poll() is None
