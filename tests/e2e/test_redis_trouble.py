"""Redis that cannot be used: one line in the log, not ready, alive, and well again by itself."""

from __future__ import annotations

import json

import pytest

from tests.support import proxy, redisusers, stack, tlsservers
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
                redis_url=f"{tls.url_of(role)}?server_name=redis.example.com",
                redis_ca_file=str(authority.file),
            )
            for role, start in (("operator", stack.operator), ("worker", stack.worker))
        )
        await _both_say([operator, worker], "certificate")
        await _try_on_and_live(operator, worker)
        tls.present(authority.issue("right", "redis.example.com"))
        await operator.wait_until_ready()
        await worker.wait_until_ready()
        _one_line_each(operator, worker)


#: What servers refuse with: by known codes, by one that does not exist yet, and without one.
REFUSALS = (
    "NOAUTH Authentication required.",
    "NOPERM User default has no permissions to run the 'info' command",
    "MISCONF Errors writing to the AOF file",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "HEADLESS a code of tomorrow",
    "ERR unknown command 'EVALSHA'",
)


async def test_a_server_that_refuses_in_any_way_is_named_and_waited_for(stack):
    async with proxy.between("127.0.0.1", stack.redis.port) as way:

        async def say(refusal):
            way.refusal = f"-{refusal}\r\n".encode()
            await way.refuse()  # cuts what is open
            await way.accept()

        async def pass_on():
            way.refusal = b""
            await way.refuse()
            await way.accept()
            for process in processes:
                await process.wait_until_ready()

        await say("DENIED Redis is running in protected mode")
        url = stack.redis.url.replace(str(stack.redis.port), str(way.port))
        operators = [stack.operator(name, redis_url=url) for name in ("operator", "standby")]
        processes = [*operators, stack.worker(redis_url=url), stack.http_api(redis_url=url)]
        await _both_say(processes, "denied")
        await pass_on()
        held = await stack.lease()
        for refusal in REFUSALS:
            await say(refusal)
            await _both_say(processes, refusal.removeprefix("ERR ").split("'")[0].lower())
        await pass_on()
        holding = await stack.lease()
        for field in ("holderIdentity", "leaseTransitions"):
            assert holding[field] == held[field]
        for process in processes:
            assert not _lines(process, "failed")
            assert await process.drain() == 0, process.log.read_text()


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
