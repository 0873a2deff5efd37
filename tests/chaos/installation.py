"""The processes of a run, each behind its own proxies, and a supervisor that restarts them.

Two operators and three workers log in as the chart's accounts. Like a kubelet, the supervisor
restarts an ended process a second later.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit

from tests.chaos.plan import OPERATORS, WORKERS
from tests.chaos.servers import RedisSetup
from tests.support import stack as stacks
from tests.support.proxy import Proxy
from tests.support.stack import Process, Stack

#: Short, so that a run sees many of them expire.
LEASE_SECONDS = 3
_GRACE_SECONDS = 5
_LOOK_SECONDS = 0.2
_RESTART_SECONDS = 1.0
_OF_WATCHDOG = 70


@dataclasses.dataclass(slots=True, eq=False)
class Member:
    """A process and its proxies.

    Attributes:
        redis: None if the set-up allows no proxy in front of the servers.
        is_wanted: whether the supervisor restarts it.
        is_expected_to_end: whether a fault ends it or gives it a reason to end.
        lock: held by a fault while it acts on the process.
    """

    process: Process
    api: Proxy
    redis: Proxy | None
    is_wanted: bool = True
    is_expected_to_end: bool = False
    lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        return self.process.name


class Installation:
    """Processes of a stack.

    Args:
        stood_still: whether the machine has just stalled: a leader then ends itself (exit code
            70), because it could not renew its term.

    Attributes:
        exits: processes that ended by themselves, a line each.
    """

    def __init__(self, stack: Stack, redis: RedisSetup, stood_still: Callable[[], bool]) -> None:
        self.stack = stack
        self._stood_still = stood_still
        self.exits: list[str] = []
        self.operators: list[Member] = []
        self.workers: list[Member] = []
        self._redis = redis
        self._folder: Path = stack.folder

    @property
    def members(self) -> list[Member]:
        return [*self.operators, *self.workers]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all processes within the block, which begins once they are ready."""
        async with contextlib.AsyncExitStack() as held:
            for number in range(OPERATORS):
                self.operators.append(await self._member(held, "operator", number))
            for number in range(WORKERS):
                self.workers.append(await self._member(held, "worker", number))
            for member in self.members:
                await member.process.wait_until_ready()
            supervising = asyncio.create_task(self._supervise())
            try:
                yield
            finally:
                supervising.cancel()
                await asyncio.gather(supervising, return_exceptions=True)
                for member in self.members:
                    member.process.end()

    def troubled_logs(self) -> list[str]:
        """Return log lines that no fault explains: bugs."""
        found = []
        for member in self.members:
            lines = member.process.log.read_text(errors="replace").splitlines()
            found += [f"{member.name}: {line[:300]}" for line in lines if "errors.Bug" in line]
        return found

    async def _member(self, held: contextlib.AsyncExitStack, role: str, number: int) -> Member:
        parts = urlsplit(self.stack.plane.server)
        assert parts.hostname is not None
        assert parts.port is not None
        api = await held.enter_async_context(_between(parts.hostname, parts.port))
        login = self.stack.login(role, f"https://127.0.0.1:{api.port}")
        settings = {"KUBECONFIG": str(login), **self._redis.settings}
        redis, address = None, self._redis.proxied()
        if address is not None:
            redis = await held.enter_async_context(_between(*address))
            url = self._redis.url_of(role)
            settings["redis_url"] = url.replace(f":{address[1]}/", f":{redis.port}/")
        name = f"{role}-{number}"
        if role == "operator":
            process = self.stack.operator(name, **settings)
        else:
            process = self.stack.worker(
                name,
                lease_seconds=str(LEASE_SECONDS),
                grace_seconds=str(_GRACE_SECONDS),
                **settings,
            )
        return Member(process, api, redis)

    async def _supervise(self) -> None:
        while True:
            for member in self.members:
                if member.is_wanted and member.process.has_ended:
                    await self._start_again(member)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _start_again(self, member: Member) -> None:
        code = await member.process.wait_for_end()
        if not member.is_expected_to_end and not (code == _OF_WATCHDOG and self._stood_still()):
            self.exits.append(f"{member.name} ended with {code}, and nothing asked it to")
        member.is_expected_to_end = False
        await asyncio.sleep(_RESTART_SECONDS)
        member.process.start()


@contextlib.asynccontextmanager
async def _between(host: str, port: int) -> AsyncIterator[Proxy]:
    from tests.support import proxy

    async with proxy.between(host, port) as made:
        yield made


def leader_of(installation: Installation, holder: str) -> Member:
    """Return the operator that holds the Lease, by its identity; else the first."""
    named = (one for one in installation.operators if holder.startswith(f"{one.name}_"))
    return next(named, installation.operators[0])


eventually = stacks.eventually
