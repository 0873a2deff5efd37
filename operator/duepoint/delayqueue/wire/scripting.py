"""Loads and calls the Lua scripts, and translates their errors.

A script is one file of ``scripts/``. In it ``-- keys NAME ...`` names its first KEYS, in capitals;
``-- include NAME`` stands for that file of ``scripts/includes/``, which may include others, each at
its first mention. ``_VARIANTS`` are scripts under other flags: a full server refuses the one and
carries out the other. Calls use EVALSHA; on NOSCRIPT (a restarted server) all scripts are loaded
and only the refused calls repeated. No other package sees a library's error.

No call is ever retried after a lost reply, because the script may have been applied. The caller
decides that, by the guarantees of the script.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib import resources
from typing import Any

import msgspec
import redis.exceptions

from duepoint import errors, faults
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.wire import nodes
from duepoint.delayqueue.wire import servers as servers_
from duepoint.faults import FaultPoint

_INCLUDE = re.compile(r"^-- include (\w+)$", re.MULTILINE)
_CODE = re.compile(r"^([A-Z][A-Z0-9]+)(?= |$)")


class ScriptCall:
    """One call of one script: its keys, and its arguments by name.

    ARGV[1] is a map of numbers and text; ``bytes``, for which cmsgpack has no type, follow it as
    values of their own, and the map has their positions in ARGV.
    """

    __slots__ = ("_positions", "keys", "named", "script", "values")

    def __init__(self, script: str, keys: Iterable[str], **named: object) -> None:
        self.script = script
        self.keys = list(keys)
        self.values: list[Any] = []
        self.named: dict[str, object] = {}
        self._positions: dict[str, int] = {}
        self.put(**named)

    def put(self, **named: object) -> None:
        """Add named arguments; bytes go into ARGV, and their position is the argument."""
        for name, value in named.items():
            self.named[name] = self.position(value) if isinstance(value, bytes) else value

    def position(self, value: bytes | str) -> int:
        """Add this value to ARGV; return its position."""
        self.values.append(value)
        return 1 + len(self.values)

    def run(self, values: Iterable[bytes | str]) -> tuple[int, int]:
        """Add these values to ARGV; return the first and last position; last < first if none."""
        first = len(self.values) + 2
        self.values.extend(values)
        return first, 1 + len(self.values)

    def key(self, name: str) -> int:
        """Add this key to KEYS, unless it was added before; return its position."""
        if name not in self._positions:
            self.keys.append(name)
            self._positions[name] = len(self.keys)
        return self._positions[name]

    def new_keys(self, names: Sequence[str]) -> int:
        """Add these new keys to KEYS; return the position of the first."""
        first = len(self.keys) + 1
        self.keys.extend(names)
        return first

    def command(self, sha: str, owner: str) -> nodes.Command:
        """Return the command for the server; ``owner``: required owner of the index, "" = any."""
        named = {**self.named, "owner": owner} if owner else self.named
        arguments = (msgspec.msgpack.encode(named), *self.values)
        return ("EVALSHA", sha, len(self.keys), *self.keys, *arguments)


#: Scripts with the code of another one and their own first line: `drop` and `withdraw` also run on
#: a full server; `deliver`, which adds entries to streams, does not.
_VARIANTS = {
    "drop": ("put", "#!lua flags=allow-oom"),
    "withdraw": ("enqueue", "#!lua flags=allow-oom"),
    "deliver": ("settle", "#!lua"),
}
_FOLDER = resources.files("duepoint.delayqueue") / "scripts"


@functools.cache
def _parts(name: str) -> tuple[str, tuple[str, ...], str]:
    """Return the parts of a script's file: its header, the keys that it names, and its code."""
    of, flags = _VARIANTS.get(name, (name, None))
    text = (_FOLDER / f"{of}.lua").read_text(encoding="utf-8")
    head, end, code = text.partition("]]\n")
    if flags is not None:
        head = flags + head[head.index("\n") :]
    if not code.startswith("-- keys "):
        return head + end, (), code
    keys, _, code = code.removeprefix("-- keys ").partition("\n")
    return head + end, tuple(keys.split()), code


def fixed_keys(name: str) -> tuple[str, ...]:
    """Return the names that a script gives to its first keys."""
    return _parts(name)[1]


@functools.cache
def source(name: str) -> str:
    """Return the text of a script as the server gets it, with its includes."""
    present: set[str] = set()

    def included(match: re.Match[str]) -> str:
        if match[1] in present:
            return ""
        present.add(match[1])
        text = (_FOLDER / "includes" / f"{match[1]}.lua").read_text(encoding="utf-8")
        return _INCLUDE.sub(included, text)

    head, keys, code = _parts(name)
    named = f"local {', '.join(keys).upper()} = unpack(KEYS, 1, {len(keys)})\n" if keys else ""
    return _INCLUDE.sub(included, head + named + code)


@functools.cache
def sha1(name: str) -> str:
    """Return the name that a server gives to the script."""
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of all scripts."""
    files = (entry.name[:-4] for entry in _FOLDER.iterdir() if entry.name.endswith(".lua"))
    return tuple(sorted((*files, *_VARIANTS)))


class Scripts:
    """Calls scripts on the servers.

    Attributes:
        owner: the owner whose index the scripts may touch, as the index has it; "" = any.
    """

    def __init__(self, servers: servers_.Servers) -> None:
        self.owner = ""
        self._servers = servers

    async def load(self) -> None:
        """Load every script on every server that answers."""
        of_those_there(await self._load(), "load the scripts")

    async def _load(self) -> list[list[Any]]:
        return await self._servers.everywhere(
            [("SCRIPT", "LOAD", source(name)) for name in names()]
        )

    async def run(self, call: ScriptCall) -> Any:  # noqa: ANN401 - the one place with raw replies
        """Return the reply to one call; raises its translated error."""
        (reply,) = await self.run_many([call])
        if isinstance(reply, errors.DuepointError):
            raise reply
        return reply

    async def run_many(self, calls: Sequence[ScriptCall], *, confirmed: bool = False) -> list[Any]:
        """Return the replies in order, in one round trip, with errors in their places.

        Args:
            confirmed: an attached replica has the writes then, or was too slow.
        """
        if not calls:
            return []
        commands = [call.command(sha1(call.script), self.owner) for call in calls]
        replies = await self._servers.exchange(commands, confirmed=confirmed)
        refused = [
            index
            for index, reply in enumerate(replies)
            if isinstance(reply, redis.exceptions.NoScriptError)
        ]
        if refused:
            await faults.reach(FaultPoint.BEFORE_SCRIPTS_LOADED)
            await self._load()  # a server that cannot take them now refuses the calls again
            asked = [commands[index] for index in refused]
            again = await self._servers.exchange(asked, confirmed=confirmed)
            for index, reply in zip(refused, again, strict=True):
                replies[index] = reply
        return [
            _translated_of(call, reply) if isinstance(reply, Exception) else reply
            for reply, call in zip(replies, calls, strict=True)
        ]


def _translated_of(call: ScriptCall, error: Exception) -> errors.DuepointError:
    translation = translated(error, f"run {call.script}")
    if isinstance(translation, queue_errors.Damaged) and call.script == _TO_USERS_STREAMS:
        return queue_errors.WrongType(str(translation))
    return translation


def good(replies: list[Any], attempted: str) -> list[Any]:
    """Return the replies; raises the translation of the first error among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise translated(reply, attempted) from reply
    return replies


def of_those_there(nodes: Sequence[list[Any]], attempted: str) -> list[list[Any]]:
    """Return the replies of each server that answers; raises if one refuses, or none answers.

    If a cluster's node is away, its shards report that, and no others wait.
    """
    there = [replies for replies in nodes if not any(map(_is_absence, replies))]
    return [good(replies, attempted) for replies in there or nodes]


def _is_absence(reply: object) -> bool:
    return isinstance(
        reply, redis.exceptions.ConnectionError | redis.exceptions.TimeoutError | OSError
    )


_OURS: dict[str, type[errors.DuepointError]] = {
    "UNINIT": queue_errors.Uninitialised,
    "WRONGLAYOUT": queue_errors.LayoutChanged,
    "FENCED": queue_errors.Fenced,
    "WRONGTYPE": queue_errors.Damaged,
}
#: Error codes for a mistake of ours. Any other code (each kind of server has some of its own) means
#: "not now" or "not you, not yet": the caller waits, it is never a bug. Missing rights are no
#: exception, because a rotated password looks the same and resolves itself.
_MISTAKES = frozenset({"", "ERR", "CROSSSLOT"})
#: The script that uses keys which users name; all other keys are ours.
_TO_USERS_STREAMS = "append"
#: Valkey's and Redis's texts for a missing right inside a script; they come without a code.
_NO_RIGHT = re.compile(r"ACL failure in script|The user executing the script can't")
#: A node's text for a key that has left with its slot, if only the script names the key.
_HAS_LEFT = "attempted to access a non local key"
#: The text for a command that the administrator has removed.
_NO_COMMAND = re.compile(r"(ERR )?unknown command\b", re.IGNORECASE)
#: Codes of waits after which it is certain that nothing was done.
_REFUSALS = frozenset({"OOM", "NOPERM"})
_REFUSING = (redis.exceptions.OutOfMemoryError, redis.exceptions.NoPermissionError)
_WAITING_ERRORS = (
    redis.exceptions.ConnectionError,  # also LOADING, wrong password, too many clients
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
    redis.exceptions.MovedError,
    redis.exceptions.AskError,
    redis.exceptions.NoScriptError,
    OSError,
)
_MOVING = (
    redis.exceptions.TryAgainError,
    redis.exceptions.MovedError,
    redis.exceptions.AskError,
)


#: MOVED is followed on a cluster: this is a client of a single server.
_MOVED_AWAY = "the server is a node of a cluster; use redis+cluster:// instead of redis://"
#: Advice if the index is not ours.
OTHER_INDEX = "set redis.prefix (DUEPOINT_REDIS_PREFIX) to a name of its own, or use another server"
#: The message of our own timeouts, which have none.
_SILENCE = "no answer in time; check the address, and that both sides use TLS or neither"


def refused_entry(text: str) -> queue_errors.WrongType | queue_errors.WriteRefused:
    """Return the error for a user's stream that refused an entry; nothing was done."""
    message = f"could not append to the stream: {errors.quoted(text)}"
    return (
        queue_errors.WrongType(message)
        if text.startswith("WRONGTYPE")
        else queue_errors.WriteRefused(message)
    )


def translated(error: Exception, attempted: str) -> errors.DuepointError:
    """Return our error for one of the library's, by what the caller should do next."""
    if isinstance(error, nodes.Unconfirmed):
        return queue_errors.NotDurable(f"stored, but less safely than requested: {error}")
    text = str(error) or (_SILENCE if isinstance(error, TimeoutError) else type(error).__name__)
    if isinstance(error, redis.exceptions.MovedError):
        text = _MOVED_AWAY
    code = str(getattr(error, "status_code", None) or "")  # the library cuts off those it knows
    if not code and (match := _CODE.match(text)):
        code = match[1]
    if code != "ERR" and not text.startswith(code):
        text = f"{code} {text}"
    message = f"could not {attempted}: {errors.quoted(text)}"
    if code == "FOREIGN":
        return queue_errors.Foreign(f"{message}; {OTHER_INDEX}")
    if code in _OURS:
        return _OURS[code](message)
    if isinstance(error, _MOVING) or _HAS_LEFT in text:
        return queue_errors.ShardMoving(message)
    if code in _REFUSALS or isinstance(error, _REFUSING):
        return queue_errors.WriteRefused(message)
    is_refused = isinstance(error, redis.exceptions.ResponseError) and code not in _MISTAKES
    is_wait = isinstance(error, _WAITING_ERRORS) or _NO_RIGHT.match(text) or _NO_COMMAND.match(text)
    return errors.QueueUnavailable(message) if is_refused or is_wait else errors.Bug(message)


def reported(text: bytes, attempted: str) -> errors.DuepointError:
    """Return our error for the text of an error within the reply of a script."""
    return translated(redis.exceptions.ResponseError(text.decode(errors="replace")), attempted)


#: Most calls of one round trip; each takes the server some 0.05 ms.
_MOST = 64


class Pipelining:
    """Sends calls made in the same turn of the event loop in one round trip.

    Arming calls a script for many schedules, a worker one for each due shard, from many tasks at a
    time; a round trip costs the client far more than the script costs the server. The first caller
    of a turn lets the others add their calls, sends all and distributes the replies. Nothing runs
    in the background, and a lone call is sent as it is.

    Args:
        send: returns the replies in order; an error of ours may take the place of a reply.
    """

    def __init__(self, send: Callable[[list[ScriptCall]], Awaitable[list[Any]]]) -> None:
        self._send = send
        self._waiting: list[tuple[ScriptCall, asyncio.Future[Any]]] = []

    async def run(self, call: ScriptCall) -> Any:  # noqa: ANN401 - a raw reply
        """Return the reply to one call; raises its translated error."""
        (reply,) = await self.replies([call])
        if isinstance(reply, errors.DuepointError):
            raise reply
        return reply

    async def replies(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Return the reply to each of these calls, or its error; they are sent together."""
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Any]] = [loop.create_future() for _ in calls]
        is_first = not self._waiting
        self._waiting += zip(calls, answers, strict=True)
        if is_first and calls:
            await self._send_all()
        return [await answer for answer in answers]

    async def _send_all(self) -> None:
        batch = self._waiting
        try:
            await asyncio.sleep(0)
            self._waiting = []
            for first in range(0, len(batch), _MOST):
                part = batch[first : first + _MOST]
                replies = await self._send([call for call, _ in part])
                for (_, answer), reply in zip(part, replies, strict=True):
                    _give(answer, reply)
        except errors.DuepointError as trouble:
            for _, answer in batch:
                _give(answer, trouble)
        finally:
            if self._waiting is batch:
                self._waiting = []
            # The sender was cancelled: the other callers cannot know whether theirs were applied.
            for _, answer in batch:
                _give(answer, errors.QueueUnavailable("the call was cancelled with another"))


def _give(answer: asyncio.Future[Any], reply: object) -> None:
    if not answer.done():
        answer.set_result(reply)


#: Later than any due and any lease.
_LATEST = 2.0**53


def scored(found: Sequence[Any]) -> list[tuple[bytes, float]]:
    """Return pairs of member and finite score, from the library's pairs or a flat list."""
    if found and isinstance(found[0], tuple | list):
        return [(member, finite(score)) for member, score in found]
    return [(member, finite(score)) for member, score in zip(found[::2], found[1::2], strict=True)]


def finite(score: float | bytes) -> float:
    """Return the score; that of a sentinel or a foreign value is cut to sort first or last."""
    return min(max(float(score), 0.0), _LATEST)


def time_us(reply: Any) -> int:  # noqa: ANN401 - as the library parses TIME
    return int(reply[0]) * 1_000_000 + int(reply[1])


def fields(reply: Any) -> dict[bytes, bytes]:  # noqa: ANN401 - the library parses some commands
    """Return a new dict of names and values, from the library's form or a flat list."""
    if isinstance(reply, dict):
        return dict(reply)
    return dict(zip(reply[::2], reply[1::2], strict=True))
