"""Authentication and authorisation by the Kubernetes API server, cached for seconds.

Tokens are cached by their hash only. A grant is cached for ten seconds, a refusal for two. A caller
without the right gets 403 only if they may read the set; others get 404 and learn nothing.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from duepoint import shares, telemetry
from duepoint.httpapi.problems import OperationProblem
from duepoint.httpapi.remembered import Remembered
from duepoint.kube import errors as kube_errors
from duepoint.kube import port

_MOST_KNOWN = 20_000
#: Most concurrent reviews at the API server, for tokens and for rights each: a flood of made-up
#: tokens must neither flood the API server nor delay callers whose tokens are cached.
_MOST_ASKED = 16
_LONGEST_TOKEN = 16_384
#: Rate limit of invalid tokens from one address: per second, and at once.
_REFUSED_PER_SECOND = 20.0
_REFUSED_AT_ONCE = 100.0
_MOST_ADDRESSES = 10_000
#: How long grants and refusals are cached.
YES_SECONDS, NO_SECONDS = 10.0, 2.0
#: RFC 6750, 2.1. The API server would read only the a of "a b", but we would cache "a b".
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")

#: Header of each 401.
CHALLENGE = (("WWW-Authenticate", 'Bearer realm="duepoint"'),)

AnswerT = TypeVar("AnswerT")


# -- reviews at the API server: TokenReview and SubjectAccessReview --------------------------------

_TOKENS_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_RIGHTS_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: Timeout of a review; a client is waiting.
_REVIEW_SECONDS = 5.0


class User(msgspec.Struct, frozen=True):
    """The owner of a token, as the API server names them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: Mapping[str, tuple[str, ...]] | None = None


class _Status(msgspec.Struct):
    """The answer to a review, of a token or of a right."""

    authenticated: bool = False
    user: User = User()
    audiences: tuple[str, ...] | None = None
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def _review(api: port.Api, path: str, kind: str, spec: dict[str, object]) -> _Status:
    body = {
        "apiVersion": path.removeprefix("/apis/").rpartition("/")[0],
        "kind": kind,
        "spec": spec,
    }
    answer = await api.request("POST", path, body, timeout_seconds=_REVIEW_SECONDS)
    return msgspec.json.decode(answer, type=_Review).status


class Attributes(msgspec.Struct, frozen=True, rename="camel"):
    """The access that a user wants, as ``ResourceAttributes``; no namespace = all of them."""

    namespace: str
    verb: str
    resource: str
    name: str = ""
    subresource: str = ""
    group: str = "duepoint.dev"


async def _user_of(api: port.Api, token: str, audiences: tuple[str, ...]) -> User | None:
    """Return the owner of a token; None if it is not valid. Raises ``kube.errors.ApiError``.

    ``audiences``: the token must be for one of them; empty = for the API server itself.
    """
    spec: dict[str, object] = {"token": token}
    if audiences:
        spec["audiences"] = audiences
    try:
        status = await _review(api, _TOKENS_PATH, "TokenReview", spec)
    except kube_errors.Invalid:
        return None
    if not status.authenticated or not status.user.username:
        return None
    if audiences and not set(audiences) & set(status.audiences or ()):
        return None  # the authenticator does not support audiences
    return status.user


async def _may(api: port.Api, user: User, wanted: Attributes) -> bool:
    """Whether the user may do this. Raises ``kube.errors.ApiError``."""
    spec: dict[str, object] = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups or (),
        "extra": user.extra or {},
        "resourceAttributes": wanted,
    }
    return (await _review(api, _RIGHTS_PATH, "SubjectAccessReview", spec)).allowed


# -- cached callers and rights ---------------------------------------------------------------------


class Caller:
    """A user whose token is valid."""

    __slots__ = ("asker", "identity", "key", "user")

    def __init__(self, user: User) -> None:
        self.user = user
        #: The same for all tokens of the user: ``extra``, which names the token, is left out.
        whose = msgspec.json.encode((user.username, user.uid))
        self.identity = hashlib.sha256(whose).digest()
        #: The owner for fair shares: all ServiceAccounts of a namespace share one.
        self.asker = user.username
        if user.username.startswith("system:serviceaccount:"):
            self.asker = user.username.rpartition(":")[0]
        #: Cache key: everything that the API server's decision depends on.
        facts = (user.username, user.uid, sorted(user.groups or ()), user.extra or {})
        text = msgspec.json.encode(facts, order="deterministic")
        self.key = hashlib.sha256(text).digest()


class _Refusals:
    """Limits invalid tokens from one address."""

    def __init__(self) -> None:
        #: Until when the invalid tokens of each address use up its rate.
        self._until: collections.OrderedDict[str, float] = collections.OrderedDict()

    def check(self, owner: str) -> None:
        """Raise Problem TooManyRequests if this address has to wait."""
        ahead = self._until.get(owner, 0.0) - asyncio.get_running_loop().time()
        if ahead * _REFUSED_PER_SECOND > _REFUSED_AT_ONCE - 1:
            message = "too many tokens from this address were not valid; repeat it later"
            raise OperationProblem("TooManyRequests", message, retry_after_seconds=1)

    def count(self, owner: str) -> None:
        """Count an invalid token from this address."""
        since = max(self._until.get(owner, 0.0), asyncio.get_running_loop().time())
        self._until[owner] = since + 1 / _REFUSED_PER_SECOND
        self._until.move_to_end(owner)
        if len(self._until) > _MOST_ADDRESSES:
            self._until.popitem(last=False)


class Access:
    """Authenticates callers and checks their rights."""

    def __init__(self, api: port.Api, audiences: tuple[str, ...] = ()) -> None:
        self._api = api
        self._audiences = audiences
        seconds = {"yes": YES_SECONDS, "no": NO_SECONDS}
        self._callers = Remembered[bytes, Caller | None](_MOST_KNOWN, **seconds)
        self._rights = Remembered[tuple[bytes, Attributes], bool](_MOST_KNOWN, **seconds)
        self._token_places = shares.FairPlaces[str](_MOST_ASKED)
        self._places = shares.FairPlaces[str](_MOST_ASKED)
        self._refusals = _Refusals()

    async def caller(self, authorization: str, peer: str = "") -> Caller:
        """Return the caller; raises Problem Unauthenticated, Unavailable, TooManyRequests.

        The sender of a new token is unknown, so token reviews are shared out by address.
        """
        token = token_of(authorization)
        digest = hashlib.sha256(token.encode("latin-1")).digest()

        async def review() -> Caller | None:
            owner = shares.owner_of(peer)
            if self._callers.former(digest) is None:
                self._refusals.check(owner)
            ask = functools.partial(_user_of, self._api, token, self._audiences)
            user = await _in_turn(self._token_places, owner, ask)
            if user is None:
                self._refusals.count(owner)
            return None if user is None else Caller(user)

        found = await self._callers.find(digest, review) if _TOKEN.fullmatch(token) else None
        if found is None:
            message = "the token is not valid: expired, revoked, or of another cluster or audience"
            raise OperationProblem("Unauthenticated", message, headers=CHALLENGE)
        return found

    async def check(
        self, caller: Caller, namespace: str, name: str, verbs: tuple[str, ...]
    ) -> None:
        """Raise Problem Forbidden, or NotFound if the caller may not even read the set."""
        for verb in verbs:
            if await self.may(caller, _on_members(namespace, name, verb)):
                continue
            if verb != "get" and await self.may(caller, _on_members(namespace, name, "get")):
                message = (
                    f"you may not {verb} schedulesets/schedules of this set; ask for a role "
                    "that has this verb, such as duepoint's edit role"
                )
                raise OperationProblem("Forbidden", message)
            raise OperationProblem("NotFound", "there is nothing here, or nothing that you may see")

    async def may(self, caller: Caller, wanted: Attributes) -> bool:
        """Whether the caller has this access; raises Problem Unavailable."""
        ask = functools.partial(_may, self._api, caller.user, wanted)
        review = functools.partial(_in_turn, self._places, caller.asker, ask)
        return await self._rights.find((caller.key, wanted), review)


async def _in_turn(
    places: shares.FairPlaces[str], asker: str, ask: Callable[[], Awaitable[AnswerT]]
) -> AnswerT:
    """Ask the API server once this asker has a place; raises Problem Unavailable."""
    async with place_of(asker, places):
        try:
            return await ask()
        except kube_errors.ApiError as error:
            telemetry.logger.warning("the API server cannot be asked", error=str(error)[:300])
            why = "your token or rights could not be checked with the Kubernetes API server"
            raise OperationProblem("Unavailable", why, retry_after_seconds=1) from error


@contextlib.asynccontextmanager
async def place_of(
    owner: str,
    places: shares.FairPlaces[str],
    seconds: float | None = None,
    what: str = "requests of yours",
) -> AsyncIterator[None]:
    """Hold a place; raises Problem TooManyRequests if none comes free in time. None = no limit."""
    if not await places.wait(owner, seconds):
        message = f"there are too many {what} at a time; repeat it later"
        raise OperationProblem("TooManyRequests", message, retry_after_seconds=1)
    try:
        yield
    finally:
        places.leave(owner)


def _on_members(namespace: str, name: str, verb: str) -> Attributes:
    return Attributes(namespace, verb, "schedulesets", name, subresource="schedules")


def token_of(authorization: str) -> str:
    """Return the bearer token of the header; raises Problem Unauthenticated."""
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
        message = "send the header Authorization: Bearer and a token of this cluster"
        raise OperationProblem("Unauthenticated", message, headers=CHALLENGE)
    return token
