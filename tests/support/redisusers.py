"""The Redis users that the chart ships, and connections that act as both of them.

Every server that tests start has the users of ``charts/duepoint/redis``, with passwords of the
tests. ``TwoUsers`` sends each script as the user whose process calls it, so that a right missing
from a file is missing in the tests of the queue too. Commands that bypass the queue run as
administrator. Processes (``stack``) log in as one user each.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from duepoint.delayqueue.wire import connecting, nodes, scripting, servers

FOLDER = Path(__file__).resolve().parents[2] / "charts" / "duepoint" / "redis"
ROLES = ("operator", "worker", "api", "viewer", "replayer")

#: Scripts that workers call; the others are the operator's.
WORKER_SCRIPTS = frozenset(
    {
        *("append", "beat", "bury", "claim", "deliver", "extend"),
        *("release", "rights", "settle"),
    }
)
#: Scripts of the command that replays dead letters.
REPLAYER_SHARED_SCRIPTS = frozenset({"enqueue"})
#: Scripts that both call: the operator reports Jobs that have ended, and moves dead letters.
SHARED_SCRIPTS = frozenset({"activeruns", "bury"})
#: Scripts that the HTTP API shares with others: it writes members, as an operator with rows does,
#: triggers and replays.
API_SHARED_SCRIPTS = {
    *("activeruns", "put", "drop", "listmembers", "enqueue"),
}
#: Plain commands that both processes use besides their scripts.
PLAIN = frozenset(
    {
        *("evalsha", "script|load", "select", "info", "ping", "hget", "hmget"),
        *("ssubscribe", "sunsubscribe", "cluster|slots"),
    }
)
WORKER_PLAIN = PLAIN | {
    *("zadd", "zrange", "zmscore", "zrem", "set", "del", "time"),
    *("hset", "hsetnx", "hdel", "hgetall", "hlen"),
}
#: The HTTP API's plain commands; it needs no subscriptions.
API_PLAIN = (PLAIN - {"ssubscribe", "sunsubscribe"}) | {
    *("hgetall", "hscan", "zrange", "zcount", "zmscore", "xrange", "xrevrange"),
    *("wait", "waitaof", "time", "xlen", "xdel", "hincrby", "expire"),
    *("set", "get", "del", "incrby", "pexpire", "pttl"),
}
VIEWER_PLAIN = (PLAIN - {"ssubscribe", "sunsubscribe"}) | {
    *("hgetall", "hlen", "hscan", "time", "zcard", "zcount", "zmscore", "zrange", "zscore"),
    *("xlen", "xrange", "xrevrange"),
}
#: The viewer's commands, as far as they find a dead letter and its Schedule.
REPLAYER_PLAIN = VIEWER_PLAIN - {"hlen", "zcard", "zcount", "hscan"} | {"xdel"}
OPERATOR_PLAIN = PLAIN | {
    *("hgetall", "hscan", "zrange", "zscan", "zmscore", "zcard", "zcount", "xlen", "time", "wait"),
    *("xdel", "xrevrange", "hkeys", "hlen", "xrange", "unlink", "smembers", "srem", "exists"),
    *("sismember", "scard", "sadd", "object|encoding", "xgroup|create", "xgroup|destroy"),
}


def name(role: str) -> str:
    return f"duepoint-{role}"


def password(role: str) -> str:
    return f"the password of {role}"


def line(role: str) -> str:
    """Return the shipped line of a role, with the password of the tests."""
    shipped = (FOLDER / f"{role}.acl").read_text().strip()
    placeholder = f">PASSWORD-OF-{role.upper()}"
    assert placeholder in shipped
    return shipped.replace(placeholder, "#" + _sha256(password(role)))


def acl_file() -> str:
    """Return a test server's ACL: an administrator without a password, and the shipped users."""
    lines = ["user default on nopass ~* &* +@all", *(line(role) for role in ROLES)]
    return "\n".join(lines) + "\n"


def rights(role: str) -> set[str]:
    """Return the commands that the shipped line grants.

    Redis 7.0 does not have WAITAOF and would refuse to start with a line that names it. So the line
    grants the category that contains it, and takes away the category's other commands.
    """
    granted = set(re.findall(r" \+(\S+)", (FOLDER / f"{role}.acl").read_text()))
    if "@connection" in granted:
        granted = (granted - {"@connection"}) | {"waitaof"}
    return granted


def used_by(role: str) -> set[str]:
    """Return the commands that a role uses, in scripts or directly."""
    plain = {
        "worker": WORKER_PLAIN,
        "operator": OPERATOR_PLAIN,
        "api": API_PLAIN,
        "viewer": VIEWER_PLAIN,
        "replayer": REPLAYER_PLAIN,
    }
    used = set(plain[role])
    for script in scripting.names():
        is_shared = script in SHARED_SCRIPTS and role in {"worker", "operator"}
        is_shared |= role == "api" and script in API_SHARED_SCRIPTS
        is_shared |= role == "replayer" and script in REPLAYER_SHARED_SCRIPTS
        if is_shared or caller_of(script) == role:
            used |= commands_of(scripting.source(script))
    return used


def caller_of(script: str) -> str:
    """Return the role that calls a script."""
    if script in WORKER_SCRIPTS:
        return "worker"
    return "operator"


def commands_of(source: str) -> set[str]:
    """Return the commands in a Lua source, container commands with their subcommand."""
    found = re.findall(r"redis\.p?call\(\s*'(\w+)'(?:,\s*'(\w+)')?", source)
    return {
        (f"{one}|{two}" if one in ("SCRIPT", "CONFIG", "OBJECT") else one).lower()
        for one, two in found
    }


def url_for(url: str, role: str) -> str:
    """Return the URL with this user and its password."""
    return url.replace("://", f"://{name(role)}:{password(role).replace(' ', '%20')}@")


def servers_for(url: str, role: str, **options: Any) -> servers.Servers:
    """Return connections to a test server, logged in as this user."""
    return servers.open_servers(connecting.Server(url=url_for(url, role)), **options)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class TwoUsers:
    """A ``servers.Servers`` that acts as worker, operator and, behind the queue, administrator."""

    def __init__(self, url: str, *, connections: int = 8) -> None:
        self._roles = {role: servers_for(url, role, connections=connections) for role in ROLES}
        self._worker_shas = set(map(scripting.sha1, WORKER_SCRIPTS))
        granted = rights("worker")
        self._worker_plain = {right.replace("|", " ").upper() for right in granted}

    def of_role(self, role: str) -> servers.Servers:
        """Return the connections of one user."""
        return self._roles[role]

    def _of(self, commands: Sequence[servers.Command]) -> servers.Servers:
        """Return the connections of the user whose process would send these commands."""
        scripts = {command[1] for command in commands if command[0] == "EVALSHA"}
        if scripts:
            return self._roles["worker" if scripts & self._worker_shas else "operator"]
        plain = {command[0] for command in commands}
        if plain <= self._worker_plain:
            return self._roles["worker"]
        return self._roles["api" if plain & {"INCRBY", "GET"} else "operator"]

    async def exchange(self, commands: Sequence[servers.Command], **how: Any) -> list[Any]:
        return await self._of(commands).exchange(commands, **how)

    async def everywhere(self, commands: Sequence[servers.Command]) -> list[list[Any]]:
        await self._roles["operator"].everywhere(commands)
        return await self._roles["worker"].everywhere(commands)

    async def keepalive(self) -> None:
        for each in self._roles.values():
            await each.keepalive()

    async def refresh(self) -> None:
        for each in self._roles.values():
            await each.refresh()

    async def close(self) -> None:
        for each in self._roles.values():
            await each.close()

    @property
    def changes(self) -> _ChangesOfAll:
        roles = sorted(self._roles, key=lambda role: role != "worker")
        return _ChangesOfAll([self._roles[role].changes for role in roles])

    @property
    def is_cluster(self) -> bool:
        return self._roles["worker"].is_cluster

    def hosts(self) -> Any:
        return self._roles["worker"].hosts()

    def homes(self, names: Sequence[str]) -> Any:
        return self._roles["worker"].homes(names)

    def listener(self, home: Any) -> Any:
        return self._roles["worker"].listener(home)


class _ChangesOfAll:
    """The changes of all roles' servers; ownership is as the first connection sees it."""

    def __init__(self, each: Sequence[nodes.ServerChanges]) -> None:
        self._each = each

    @property
    def upheavals(self) -> int:
        return sum(one.upheavals for one in self._each)

    @property
    def on_upheaval(self) -> _OfBoth:
        return _OfBoth([one.on_upheaval for one in self._each])

    @property
    def generation(self) -> int:
        return self._each[0].generation

    async def wait_for_change(self, seen: int) -> int:
        return await self._each[0].wait_for_change(seen)


class _OfBoth:
    """A collection that passes each addition on to all of its parts."""

    def __init__(self, lists: Sequence[list[Any]]) -> None:
        self._lists = lists

    def append(self, one: Any) -> None:
        for each in self._lists:
            each.append(one)

    def remove(self, one: Any) -> None:
        for each in self._lists:
            each.remove(one)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._lists[0])

    def __contains__(self, one: Any) -> bool:
        return any(one in each for each in self._lists)
