"""V12: what Duepoint asks of Redis once nothing is due, by process and command.

MONITOR shows each command with the address that sent it, and CLIENT LIST says whose address that
is, so what replicas and Sentinels send does not count. What a script does inside the server stands
behind its call: it is the server's work, counted apart. The recorder has stopped reading streams.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import redis

from duepoint.delayqueue.wire import scripting
from tests.support.redisserver import RedisServer

#: Ends a look; no process of ours sends it.
_MARK = ("ECHO", "end-of-look")
_NOT_OURS = "default"
_SHOWN = 12
_PATIENCE_SECONDS = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """Commands a second.

    Attributes:
        sent: by Duepoint's processes.
        inside: carried out by its scripts.
        kinds: what was sent, the most frequent first, as ``worker claim: 3.0``.
    """

    sent: float
    inside: float
    kinds: tuple[str, ...]


def look(servers: Sequence[RedisServer], seconds: float) -> Look:
    """All of these servers for so long; blocks."""
    with ThreadPoolExecutor(len(servers)) as pool:
        each = list(pool.map(lambda server: _of_server(server, seconds), servers))
    sent = sum((one for one, _ in each), Counter[str]())
    return Look(
        sent=sent.total() / seconds,
        inside=sum(inside for _, inside in each) / seconds,
        kinds=tuple(f"{kind}: {count / seconds:.1f}" for kind, count in sent.most_common(_SHOWN)),
    )


def _of_server(server: RedisServer, seconds: float) -> tuple[Counter[str], int]:
    """What was sent by user and command, and how much scripts did."""
    by_address: Counter[tuple[str, str]] = Counter()
    inside = 0
    connected = redis.Redis(port=server.port, protocol=2, socket_timeout=_PATIENCE_SECONDS)
    with connected as client, client.monitor() as monitor:
        users = _users(client)
        ending = threading.Timer(seconds, client.execute_command, _MARK)
        ending.start()
        while True:
            shown = monitor.next_command()
            if shown["command"] == " ".join(_MARK):
                break
            if shown["client_type"] == "lua":
                inside += 1
                continue
            address = f"{shown['client_address']}:{shown['client_port']}"
            by_address[address, named(shown["command"])] += 1
        ending.join()
        users |= _users(client)
    sent: Counter[str] = Counter()
    for (address, command), count in by_address.items():
        user = users.get(address, "gone")  # it connected and left within the look
        if user != _NOT_OURS:
            sent[f"{user.removeprefix('duepoint-')} {command}"] += count
    return sent, inside


def _users(client: redis.Redis) -> dict[str, str]:
    return {one["addr"]: one["user"] for one in client.client_list()}


def named(command: str) -> str:
    """A command's first word; of a call of a script the script's name."""
    word, _, rest = command.partition(" ")
    return _scripts().get(rest.partition(" ")[0], word) if word.upper() == "EVALSHA" else word


@functools.cache
def _scripts() -> dict[str, str]:
    return {scripting.sha1(name): name for name in scripting.names()}
