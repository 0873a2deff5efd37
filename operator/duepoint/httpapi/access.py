"""Who asks, and whether they may: by the API server, remembered for seconds.

A token is known by its hash only. What was granted is remembered for ten seconds, what was not for
two; both within bounds, and one question to the API server answers all that wait for it. Who may
not do something hears 403 only where they may read the set; others learn nothing: 404.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
import re
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import msgspec

from duepoint import telemetry
from duepoint.httpapi.problems import OperationProblem
from duepoint.kube import errors as kube_errors
from duepoint.kube import port, reviews

GRANTED_SECONDS = 10.0
REFUSED_SECONDS = 2.0
_MOST_KNOWN = 20_000
#: Questions to the API server at a time: a flood of made-up tokens must not be one there.
_MOST_ASKED = 32
#: And of those that wait for their turn; more are refused at once.
_MOST_WAITING = 1_000
_LONGEST_TOKEN = 16_384
#: RFC 6750, 2.1. Of "a b" the API server would look at a alone, which we did not remember.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")

#: Of each answer 401.
CHALLENGE = (("WWW-Authenticate", 'Bearer realm="duepoint"'),)

KeyT = TypeVar("KeyT", bound=Hashable)
FoundT = TypeVar("FoundT")


class Remembered(Generic[KeyT, FoundT]):
    """Answers for a while, the oldest forgotten first; equal questions at a time are one.

    ``seconds``: how long an answer that says yes is kept.
    """

    def __init__(self, most: int = _MOST_KNOWN, *, seconds: float = GRANTED_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._known: collections.OrderedDict[KeyT, tuple[float, FoundT]] = collections.OrderedDict()
        self._asked: dict[KeyT, asyncio.Future[FoundT]] = {}

    def known(self, key: KeyT) -> tuple[float, FoundT] | None:
        """The answer and until when it holds; None where there is none that holds."""
        found = self._known.get(key)
        if found is None or found[0] <= asyncio.get_running_loop().time():
            return None
        return found

    async def find(self, key: KeyT, ask: Callable[[], Awaitable[FoundT]]) -> FoundT:
        """The answer, known or asked for; what ``ask`` raises is not remembered."""
        if (found := self.known(key)) is not None:
            return found[1]
        if (asked := self._asked.get(key)) is not None:
            return await asyncio.shield(asked)
        if len(self._asked) >= _MOST_WAITING:
            raise OperationProblem("Overloaded", "too many tokens to check", retry_after_seconds=1)
        loop = asyncio.get_running_loop()
        future = self._asked[key] = loop.create_future()
        try:
            answer = await ask()
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError)
            future.set_exception(_unavailable() if is_cancelled else error)
            future.exception()  # no other request may be waiting
            raise
        finally:
            del self._asked[key]
        future.set_result(answer)
        seconds = self._seconds if answer else REFUSED_SECONDS
        self._known[key] = loop.time() + seconds, answer
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return answer


class Caller:
    """A user whose token is valid."""

    __slots__ = ("key", "user")

    def __init__(self, user: reviews.User) -> None:
        self.user = user
        #: Stands for all that the API server's decision depends on.
        facts = (user.username, user.uid, sorted(user.groups or ()), user.extra or {})
        text = msgspec.json.encode(facts, order="deterministic")
        self.key = hashlib.sha256(text).digest()


class Access:
    """Knows callers, and what they may do."""

    def __init__(self, api: port.Api, audiences: tuple[str, ...] = ()) -> None:
        self._api = api
        self._audiences = audiences
        self._callers: Remembered[bytes, Caller | None] = Remembered()
        self._rights: Remembered[tuple[object, ...], bool] = Remembered()
        self._places = asyncio.Semaphore(_MOST_ASKED)

    async def caller(self, authorization: str) -> Caller:
        """Who asks; raises Problem Unauthenticated, AuthenticationUnavailable."""
        token = token_of(authorization)
        digest = hashlib.sha256(token.encode("latin-1")).digest()
        if (known := self._callers.known(digest)) is not None:
            found = known[1]
        else:
            found = await self._callers.find(digest, lambda: self._review(token))
        if found is None:
            message = "the token is not valid: expired, revoked, or of another cluster or audience"
            raise OperationProblem("Unauthenticated", message, headers=CHALLENGE)
        return found

    async def _review(self, token: str) -> Caller | None:
        if not _TOKEN.fullmatch(token):
            return None
        async with self._places:
            try:
                user = await reviews.user_of(self._api, token, self._audiences)
            except kube_errors.ApiError as error:
                telemetry.logger.warning("tokens cannot be checked", error=str(error)[:300])
                raise _unavailable() from error
        return None if user is None else Caller(user)

    async def check(
        self, caller: Caller, namespace: str, name: str, verbs: tuple[str, ...]
    ) -> None:
        """Raise Problem Forbidden, or NotFound where the caller may not even read the set."""
        for verb in verbs:
            if await self._may(caller, namespace, name, verb):
                continue
            if verb != "get" and await self._may(caller, namespace, name, "get"):
                message = (
                    f"you may not {verb} schedulesets/schedules of this set; ask for a role "
                    "that has this verb, such as duepoint's edit role"
                )
                raise OperationProblem("Forbidden", message)
            raise OperationProblem("NotFound", "there is nothing here, or nothing that you may see")

    async def _may(self, caller: Caller, namespace: str, name: str, verb: str) -> bool:
        wanted = reviews.Attributes(
            namespace=namespace,
            verb=verb,
            group="duepoint.dev",
            resource="schedulesets",
            subresource="schedules",
            name=name,
        )
        return await self.may(caller, wanted)

    async def may(self, caller: Caller, wanted: reviews.Attributes) -> bool:
        """Whether the caller may do this; raises Problem AuthenticationUnavailable."""
        key = (caller.key, *msgspec.structs.astuple(wanted))
        if (known := self._rights.known(key)) is not None:
            return known[1]

        async def ask() -> bool:
            async with self._places:
                try:
                    return await reviews.may(self._api, caller.user, wanted)
                except kube_errors.ApiError as error:
                    telemetry.logger.warning("rights cannot be checked", error=str(error)[:300])
                    raise _unavailable() from error

        return await self._rights.find(key, ask)


def token_of(authorization: str) -> str:
    """The bearer token of the header; raises Problem Unauthenticated."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
        message = "send the header Authorization: Bearer and a token of this cluster"
        raise OperationProblem("Unauthenticated", message, headers=CHALLENGE)
    return token


def _unavailable() -> OperationProblem:
    message = "the Kubernetes API server cannot be asked whose token it is, or what they may do"
    return OperationProblem("AuthenticationUnavailable", message, retry_after_seconds=1)
